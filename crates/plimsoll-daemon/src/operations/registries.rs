//! Credentials for registries: given to the cell and taken from it by admins, used by whoever deploys, read by nobody.

use plimsoll_model::registries::{RegistryHost, RegistryLogin, RegistryPassword};
use plimsoll_model::{Change, State};

use super::{Caller, Error};
use crate::context::NodeContext;
use plimsoll_api::suggest;
use plimsoll_api::view::{self, NewRegistryLogin, Time};

pub async fn login_registry(
    cell: &NodeContext,
    caller: &Caller,
    asked: NewRegistryLogin,
) -> Result<view::RegistryLogin, Error> {
    let registry = RegistryHost::parse(&asked.registry)?;
    let (user, password) = (asked.user, RegistryPassword::new(&asked.password));
    let change = Change::LoginRegistry { registry: registry.clone(), user, password };
    caller.write(cell, vec![change.free()]).await?;
    cell.engine.machine().read(|state| find(state, registry.as_str()).map(told))
}

pub async fn logout_registry(
    cell: &NodeContext,
    caller: &Caller,
    host: &str,
) -> Result<view::RegistryLogin, Error> {
    let host = RegistryHost::parse(host)?;
    let (registry, gone) = cell.engine.machine().read(|state| {
        let (registry, login) = find(state, host.as_str())?;
        Ok::<_, Error>((registry.clone(), told((registry, login))))
    })?;
    caller.write(cell, vec![Change::LogoutRegistry { registry }.free()]).await?;
    Ok(gone)
}

pub fn registries(state: &State) -> Vec<view::RegistryLogin> {
    state.registries().iter().map(told).collect()
}

fn find<'s>(state: &'s State, host: &str) -> Result<(&'s RegistryHost, &'s RegistryLogin), Error> {
    let known = state.registries();
    known.get_key_value(host).ok_or_else(|| {
        let hint = suggest::hint(host, "registry", known.keys().map(RegistryHost::as_str));
        Error::NoSuchRegistry { registry: host.to_owned(), hint }
    })
}

fn told((registry, login): (&RegistryHost, &RegistryLogin)) -> view::RegistryLogin {
    view::RegistryLogin {
        registry: registry.to_string(),
        user: login.user.clone(),
        logged_in_at: Time(login.at),
    }
}
