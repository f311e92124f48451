//! What a person means by a name: a replica or a service, also by its last part where that is enough.

use plimsoll_model::ServiceKey;

use crate::decided::{Decided, Outcome};
use crate::near;
use crate::trouble::Trouble;

#[derive(Debug)]
pub(super) enum Named<'d> {
    Replica(&'d Outcome),
    Service(&'d ServiceKey),
}

pub(super) fn find<'d>(decided: &'d Decided, text: &str) -> Result<Named<'d>, Trouble> {
    let states = [&decided.after, &decided.before.state];
    let ids = states.into_iter().filter_map(|state| state.find_replica(text));
    if let Some(outcome) = ids.chain(text.parse().ok()).find_map(|id| decided.outcome(&id)) {
        return Ok(Named::Replica(outcome));
    }
    let services = decided.after.services();
    let written = text.parse::<ServiceKey>().ok();
    if let Some((key, _)) = written.and_then(|key| services.get_key_value(&key)) {
        return Ok(Named::Service(key));
    }

    // `web-2` and `web`, where only one deployment has them.
    let tail = format!("-{text}");
    let replicas = decided.outcomes.iter().filter(|o| o.id.to_string().ends_with(&tail));
    let services = services.keys().filter(|key| key.service.as_str() == text);
    let meant: Vec<Named<'d>> =
        replicas.map(Named::Replica).chain(services.map(Named::Service)).collect();
    match <[Named<'d>; 1]>::try_from(meant) {
        Ok([named]) => Ok(named),
        Err(none) if none.is_empty() => Err(unknown(decided, text)),
        Err(several) => Err(ambiguous(text, &several)),
    }
}

fn ambiguous(text: &str, meant: &[Named<'_>]) -> Trouble {
    let names: Vec<String> = meant.iter().map(Named::shown).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Trouble::refused(format!("{text} can mean {}", near::or(&names))).hint("write the whole name")
}

fn unknown(decided: &Decided, text: &str) -> Trouble {
    let replicas = decided.outcomes.iter().map(|outcome| outcome.id.to_string());
    let services = decided.after.services().keys().map(ToString::to_string);
    let names: Vec<String> = replicas.chain(services).collect();
    let near = near::nearest(text, names.iter().map(String::as_str));
    let hint = match near.as_slice() {
        [] => "leave the name out to see all of them".to_owned(),
        near => format!("did you mean {}?", near::or(near)),
    };
    Trouble::refused(format!("there is no replica or service {text}")).hint(hint)
}

impl Named<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Replica(outcome) => outcome.id.to_string(),
            Self::Service(key) => key.to_string(),
        }
    }
}
