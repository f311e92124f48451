//! What a person means by a name: a replica or a service, also by its last part where that is enough.

use plimsoll_api::suggest;
use plimsoll_kernel::plan::ReplicaOutcome;
use plimsoll_model::ServiceKey;

use crate::decided::Decided;

/// Why a name explains nothing.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    #[error("there is no replica or service {name}")]
    Unknown { name: String, near: Vec<String> },
    #[error("{name} can mean {}", any_of(meant))]
    Ambiguous { name: String, meant: Vec<String> },
    #[error("cannot explain {0}")]
    Unexplained(String),
}

impl NameError {
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Unexplained(_))
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { near, .. } if near.is_empty() => {
                Some("leave the name out to see all of them".to_owned())
            }
            Self::Unknown { near, .. } => Some(format!("did you mean {}?", any_of(near))),
            Self::Ambiguous { .. } => Some("write the whole name".to_owned()),
            Self::Unexplained(_) => None,
        }
    }
}

fn any_of(names: &[String]) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    suggest::or(&names)
}

#[derive(Debug)]
pub(super) enum NamedSubject<'d> {
    Replica(&'d ReplicaOutcome),
    Service(&'d ServiceKey),
}

pub(super) fn find<'d>(decided: &'d Decided, text: &str) -> Result<NamedSubject<'d>, NameError> {
    let states = [&decided.after, &decided.before.state];
    let ids = states.into_iter().filter_map(|state| state.find_replica(text));
    if let Some(outcome) = ids.chain(text.parse().ok()).find_map(|id| decided.plan.outcome(&id)) {
        return Ok(NamedSubject::Replica(outcome));
    }
    let services = decided.after.services();
    let written = text.parse::<ServiceKey>().ok();
    if let Some((key, _)) = written.and_then(|key| services.get_key_value(&key)) {
        return Ok(NamedSubject::Service(key));
    }

    // `web-2` and `web`, where only one deployment has them.
    let tail = format!("-{text}");
    let replicas = decided.plan.outcomes.iter().filter(|o| o.id.to_string().ends_with(&tail));
    let services = services.keys().filter(|key| key.service.as_str() == text);
    let meant: Vec<NamedSubject<'d>> =
        replicas.map(NamedSubject::Replica).chain(services.map(NamedSubject::Service)).collect();
    match <[NamedSubject<'d>; 1]>::try_from(meant) {
        Ok([named]) => Ok(named),
        Err(none) if none.is_empty() => Err(unknown(decided, text)),
        Err(several) => Err(ambiguous(text, &several)),
    }
}

fn ambiguous(text: &str, meant: &[NamedSubject<'_>]) -> NameError {
    let meant = meant.iter().map(NamedSubject::shown).collect();
    NameError::Ambiguous { name: text.to_owned(), meant }
}

fn unknown(decided: &Decided, text: &str) -> NameError {
    let replicas = decided.plan.outcomes.iter().map(|outcome| outcome.id.to_string());
    let services = decided.after.services().keys().map(ToString::to_string);
    let names: Vec<String> = replicas.chain(services).collect();
    let near = suggest::nearest(text, names.iter().map(String::as_str));
    let near = near.into_iter().map(str::to_owned).collect();
    NameError::Unknown { name: text.to_owned(), near }
}

impl NamedSubject<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Replica(outcome) => outcome.id.to_string(),
            Self::Service(key) => key.to_string(),
        }
    }
}
