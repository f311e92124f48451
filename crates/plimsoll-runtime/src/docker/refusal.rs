//! Why a spec cannot run on an engine, as far as that can be told without asking it.

use std::path::{Component, Path};

use bollard::ClientVersion;
use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{FileContent, MountSource};

use crate::error::Reason;

/// The first version of the engine's API that mounts a part of a volume. Older ones mount the whole without a word.
const SUBPATH: ClientVersion = ClientVersion { major_version: 1, minor_version: 45 };

/// `version` is what the engine speaks, where that is known.
pub(super) fn reasons(spec: &ContainerSpec, version: Option<ClientVersion>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if spec.image.is_empty() {
        reasons.push(Reason::NoImage);
    }
    let signal = spec.stop_signal.as_ref().filter(|signal| !is_signal(signal));
    reasons.extend(signal.map(|signal| Reason::UnknownSignal { signal: signal.clone() }));
    let files = || spec.configs.iter().chain(&spec.secrets);
    let targets = spec.mounts.iter().map(|mount| &mount.target);
    let wrong = targets.chain(files().map(|file| &file.target)).filter(|path| !is_place(path));
    reasons.extend(wrong.map(|target| Reason::MountTarget { target: target.clone() }));
    reasons.extend(
        files()
            .filter(|file| matches!(file.content, FileContent::External(_)))
            .map(|file| Reason::ExternalFile { name: file.name.clone() }),
    );
    reasons.extend(shared(spec));
    if version.is_some_and(|version| version < SUBPATH) && has_subpath(spec) {
        reasons.push(Reason::EngineTooOld { field: "volume subpath", needs: "1.45" });
    }
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

fn has_subpath(spec: &ContainerSpec) -> bool {
    spec.mounts
        .iter()
        .any(|mount| matches!(&mount.source, MountSource::Volume { subpath: Some(_), .. }))
}

fn is_place(target: &str) -> bool {
    let path = Path::new(target);
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}

/// A name or a number in the engine's eyes, real-time signals included.
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
    use plimsoll_model::spec::{FileMount, Mount};

    use super::*;

    #[test]
    fn what_an_engine_cannot_run_is_refused_in_words() {
        let good = ContainerSpec { image: "app:1".into(), ..ContainerSpec::default() };
        assert_eq!(reasons(&good, None), []);
        let subpath = Some("logs".to_owned());
        let source = MountSource::Volume { name: "data".into(), subpath, nocopy: false };
        let target = "data".to_owned();
        let spec = ContainerSpec {
            stop_signal: Some("SIGNOPE".into()),
            network_mode: Some("service:db".into()),
            mounts: vec![Mount { source, target, read_only: false, consistency: None }],
            secrets: vec![FileMount {
                name: "key".into(),
                target: "/run/secrets/key".into(),
                content: FileContent::External("vault".into()),
                uid: None,
                gid: None,
                mode: None,
            }],
            ..ContainerSpec::default()
        };
        let version = ClientVersion { major_version: 1, minor_version: 41 };
        let text: Vec<String> =
            reasons(&spec, Some(version)).iter().map(ToString::to_string).collect();
        expect_test::expect![[r#"
            it names no image
            stop signal "SIGNOPE" is not one that can be sent here
            "data" is not a place to mount at; write an absolute path without ".."
            the content of key is kept outside the deployment, where this node cannot get it
            network_mode is shared with service db, whose container may be on another node; run both as one service or on a network
            volume subpath needs API 1.45 of the engine, and this one is older; upgrade it"#]]
        .assert_eq(&text.join("\n"));
    }

    #[test]
    fn signals_are_those_of_the_engine() {
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
