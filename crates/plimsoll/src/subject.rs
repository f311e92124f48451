//! What a person means by a name: a deployment, a service of one, or a replica; also by the last part of the name where
//! that is enough.

use plimsoll_api::view::{Deployment, Replica, Service, Status};

use crate::error::CliError;
use plimsoll_api::suggest;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'s> {
    Deployment(&'s Deployment),
    Service(&'s Deployment, &'s Service),
    Replica(&'s Deployment, &'s Service, &'s Replica),
}

impl<'s> Subject<'s> {
    /// Its whole name: `shop`, `shop/web`, `shop-web-2`.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Deployment(deployment) => deployment.name.clone(),
            Self::Service(deployment, service) => format!("{}/{}", deployment.name, service.name),
            Self::Replica(_, _, replica) => replica.id.clone(),
        }
    }

    pub(crate) fn deployment(&self) -> &'s Deployment {
        match self {
            Self::Deployment(deployment)
            | Self::Service(deployment, _)
            | Self::Replica(deployment, _, _) => deployment,
        }
    }

    pub(crate) fn replicas(&self) -> Vec<&'s Replica> {
        match self {
            Self::Deployment(deployment) => {
                deployment.services.iter().flat_map(|service| &service.replicas).collect()
            }
            Self::Service(_, service) => service.replicas.iter().collect(),
            Self::Replica(_, _, replica) => vec![replica],
        }
    }
}

fn all(status: &Status) -> impl Iterator<Item = Subject<'_>> {
    status.deployments.iter().flat_map(|deployment| {
        let services = deployment.services.iter().flat_map(move |service| {
            let replicas =
                service.replicas.iter().map(move |it| Subject::Replica(deployment, service, it));
            [Subject::Service(deployment, service)].into_iter().chain(replicas)
        });
        [Subject::Deployment(deployment)].into_iter().chain(services)
    })
}

pub(crate) fn find<'s>(status: &'s Status, text: &str) -> Result<Subject<'s>, CliError> {
    if let Some(exact) = all(status).find(|subject| subject.name() == text) {
        return Ok(exact);
    }
    // `web` and `web-2`, where only one deployment has them.
    let tail = format!("-{text}");
    let is_meant = |subject: &Subject<'_>| match subject {
        Subject::Deployment(_) => false,
        Subject::Service(_, service) => service.name == text,
        Subject::Replica(_, _, replica) => replica.id.ends_with(&tail),
    };
    let meant: Vec<Subject<'s>> = all(status).filter(is_meant).collect();
    match meant.as_slice() {
        [one] => Ok(*one),
        [] => Err(unknown(status, text)),
        several => {
            let names: Vec<String> = several.iter().map(Subject::name).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Err(CliError::refused(format!("{text} can mean {}", suggest::or(&names)))
                .hint("write the whole name"))
        }
    }
}

pub(crate) fn no_deployment(status: &Status, name: &str) -> CliError {
    let names = status.deployments.iter().map(|deployment| deployment.name.as_str());
    CliError::refused(format!("there is no deployment {name}")).hint(suggest::hint(
        name,
        "deployment",
        names,
    ))
}

fn unknown(status: &Status, text: &str) -> CliError {
    let names: Vec<String> = all(status).map(|subject| subject.name()).collect();
    let hint = match suggest::nearest(text, names.iter().map(String::as_str)).as_slice() {
        [] => "`plimsoll status` shows all names".to_owned(),
        near => format!("did you mean {}?", suggest::or(near)),
    };
    CliError::refused(format!("there is no deployment, service or replica {text}")).hint(hint)
}
