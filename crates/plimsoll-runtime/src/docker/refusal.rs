//! Why a spec cannot run on an engine, as far as that can be told without asking it.

use std::collections::BTreeSet;

use bollard::ClientVersion;
use plimsoll_model::{Capability, ContainerSpec};

use crate::error::Reason;
use crate::refusal::invalid;

/// The first version of the engine's API that mounts a part of a volume. Older ones mount the whole without a word.
const SUBPATH: ClientVersion = ClientVersion { major_version: 1, minor_version: 45 };

/// `version` is what the engine speaks, where that is known.
pub(super) fn lacks(version: Option<ClientVersion>) -> BTreeSet<Capability> {
    let is_old = version.is_some_and(|version| version < SUBPATH);
    let subpath = is_old.then_some(Capability::VolumeSubpath);
    [Capability::NoImage].into_iter().chain(subpath).collect()
}

pub(super) fn reasons(spec: &ContainerSpec, version: Option<ClientVersion>) -> Vec<Reason> {
    let needed = lacks(version).into_iter().filter(|capability| spec.needs(*capability));
    let lacking = needed.map(|capability| match capability {
        Capability::VolumeSubpath => {
            Reason::EngineTooOld { field: "volume subpath", needs: "1.45" }
        }
        _ => Reason::NoImage,
    });
    invalid(spec).into_iter().chain(lacking).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_model::spec::{FileContent, FileMount, Mount, MountSource};

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
            unknown stop signal "SIGNOPE"
            "data" is not a mount target; use an absolute path without ".."
            key is external: this node cannot read its content
            network_mode is shared with service db, whose container may be on another node; run both as one service or on a network
            no image is set
            volume subpath needs engine API 1.45 or later; upgrade the engine"#]]
        .assert_eq(&text.join("\n"));
    }
}
