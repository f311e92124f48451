//! Why a spec can run nowhere, whatever the runtime: it can be said before anything is placed.

use std::path::{Component, Path};

use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::FileContent;

use crate::error::Reason;

/// Everything about the spec that no runtime can make work.
pub fn invalid(spec: &ContainerSpec) -> Vec<Reason> {
    let files = || spec.configs.iter().chain(&spec.secrets);
    let targets = spec.mounts.iter().map(|mount| &mount.target);
    let targets = targets.chain(files().map(|file| &file.target));
    let signal = spec.stop_signal.iter().filter(|signal| !is_signal(signal));
    let mut reasons: Vec<Reason> =
        signal.map(|signal| Reason::UnknownSignal { signal: signal.clone() }).collect();
    let wrong = targets.filter(|target| !is_place(target));
    reasons.extend(wrong.map(|target| Reason::MountTarget { target: target.clone() }));
    let external = files().filter(|file| matches!(file.content, FileContent::External(_)));
    reasons.extend(external.map(|file| Reason::ExternalFile { name: file.name.clone() }));
    reasons.extend(shared(spec));
    reasons
}

/// A container of another service may run on another node, or come and go; it cannot lend a namespace.
fn shared(spec: &ContainerSpec) -> impl Iterator<Item = Reason> {
    let modes = [("network_mode", &spec.network_mode), ("ipc", &spec.ipc), ("pid", &spec.pid)];
    modes.into_iter().filter_map(|(field, mode)| {
        let service = mode.as_ref()?.strip_prefix("service:")?;
        Some(Reason::SharedNamespace { field, service: service.to_owned() })
    })
}

fn is_place(target: &str) -> bool {
    let path = Path::new(target);
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}

/// A name or a number in an engine's eyes, real-time signals included.
fn is_signal(text: &str) -> bool {
    if let Ok(number) = text.parse::<u8>() {
        return (1..=64).contains(&number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    name.starts_with("RTM") || crate::process::signals::parse(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_those_of_an_engine() {
        for (text, is_known) in [
            ("SIGTERM", true),
            ("usr1", true),
            ("9", true),
            ("SIGRTMIN+3", true),
            ("0", false),
            ("65", false),
            ("SIGNONSENSE", false),
        ] {
            assert_eq!(is_signal(text), is_known, "{text}");
        }
    }
}
