//! Changes to what the cell shows registries.

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::registries::{
    MAX_CREDENTIAL, MAX_REGISTRIES, RegistryHost, RegistryLogin, RegistryPassword,
};

impl Txn<'_> {
    /// Whoever logs in again replaces what was there.
    pub(super) fn login_registry(
        &mut self,
        registry: &RegistryHost,
        user: &str,
        password: &RegistryPassword,
    ) -> Result<(), Refusal> {
        for (what, text) in [("user", user), ("password", password.expose())] {
            let what = format!("the {what} for registry {registry}");
            match text.len() {
                0 => return Err(Refusal::EmptyCredential { what }),
                1..=MAX_CREDENTIAL => {}
                found => {
                    let (found, max) = (found as u64, MAX_CREDENTIAL as u64);
                    return Err(Refusal::Quota { what, found, max });
                }
            }
        }
        let known = &self.state.registries;
        if known.len() >= MAX_REGISTRIES && !known.contains_key(registry) {
            let (what, found) = ("registries".to_owned(), known.len() + 1);
            return Err(Refusal::TooMany { what, found, max: MAX_REGISTRIES });
        }
        let (user, password) = (user.to_owned(), password.clone());
        let login = RegistryLogin { user: user.clone(), password, at: self.at };
        self.set_registry(registry, Some(login));
        self.audit(AuditKind::RegistryLogin { registry: registry.clone(), user });
        Ok(())
    }

    pub(super) fn logout_registry(&mut self, registry: &RegistryHost) -> Result<(), Refusal> {
        if !self.state.registries.contains_key(registry) {
            return Err(Refusal::NoSuchRegistry { registry: registry.clone() });
        }
        self.set_registry(registry, None);
        self.audit(AuditKind::RegistryLogout { registry: registry.clone() });
        Ok(())
    }
}
