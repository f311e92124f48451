//! Why a spec cannot run as a process.

use std::path::{Component, Path};

use plimsoll_model::spec::{FileContent, MountSource, PortMode};
use plimsoll_model::{Capability, ContainerSpec};

use super::launch::{self, Stop};
use super::{limits, users};
use crate::error::Reason;

/// What a process of this host cannot be given.
pub(super) const LACKS: [Capability; 7] = [
    Capability::ImageCommand,
    Capability::PortMapping,
    Capability::NestedMounts,
    Capability::VolumeDrivers,
    Capability::Sysctls,
    Capability::ExtraHosts,
    Capability::NoNetwork,
];

pub(super) fn reasons(spec: &ContainerSpec, etc: &Path, is_root: bool) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if launch::command(spec).is_empty() {
        reasons.push(Reason::NoCommand);
    }
    reasons.extend(users::credentials(etc, spec, is_root).err());
    reasons.extend(Stop::of(spec).err());
    reasons.extend(limits::of(spec).err());
    reasons.extend(targets(spec));
    reasons.extend(volumes(spec));
    let files = spec.configs.iter().chain(&spec.secrets);
    reasons.extend(
        files
            .filter(|file| matches!(file.content, FileContent::External(_)))
            .map(|file| Reason::ExternalFile { name: file.name.clone() }),
    );
    reasons.extend(spec.ports.iter().filter_map(|port| match (port.mode, port.published) {
        (PortMode::Host, Some(published)) if published != port.target => {
            Some(Reason::PortRemapped { target: port.target, published })
        }
        _ => None,
    }));
    reasons.extend(unsupported(spec).map(|field| Reason::Unsupported { field }));
    reasons
}

/// Settings of the kernel or of name lookup that would reach the whole host, or be without effect where the service
/// needs them to work.
fn unsupported(spec: &ContainerSpec) -> impl Iterator<Item = &'static str> {
    let has_network = spec.network_mode.as_deref() != Some("none");
    [
        (!spec.sysctls.is_empty(), "sysctls"),
        (!spec.extra_hosts.is_empty(), "extra_hosts"),
        (!has_network, "network_mode: none"),
    ]
    .into_iter()
    .filter_map(|(is_asked, field)| is_asked.then_some(field))
}

fn targets(spec: &ContainerSpec) -> Vec<Reason> {
    let mounts = spec.mounts.iter().map(|mount| mount.target.as_str());
    let files = spec.configs.iter().chain(&spec.secrets).map(|file| file.target.as_str());
    let mut targets: Vec<&str> = mounts.chain(files).collect();
    targets.sort_unstable();
    let wrong = targets.iter().filter(|target| below(target).is_none());
    let mut reasons: Vec<Reason> =
        wrong.map(|target| Reason::MountTarget { target: (*target).to_owned() }).collect();
    for outer in &targets {
        // A directory of ours may hold several files; a mount is a link to elsewhere and may not hold another.
        let nested = targets.iter().filter(|inner| {
            inner != &outer && Path::new(inner).starts_with(outer) && below(inner).is_some()
        });
        reasons.extend(nested.map(|inner| Reason::MountNested {
            inner: (*inner).to_owned(),
            outer: (*outer).to_owned(),
        }));
    }
    reasons
}

/// A mount's place below the working directory: its absolute target without the leading slash.
pub(super) fn below(target: &str) -> Option<&Path> {
    let path = Path::new(target).strip_prefix("/").ok()?;
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_plain && path.components().next().is_some()).then_some(path)
}

fn volumes(spec: &ContainerSpec) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for mount in &spec.mounts {
        let MountSource::Volume { name, subpath, .. } = &mount.source else { continue };
        let declared = spec.volumes.get(name);
        let named = declared.and_then(|volume| volume.name.as_ref()).unwrap_or(name);
        let escapes = |path: &String| below(&format!("/{path}")).is_none();
        if !is_file_name(named) || subpath.as_ref().is_some_and(escapes) {
            reasons.push(Reason::VolumeName { name: named.clone() });
        }
        let driver = declared.and_then(|volume| volume.driver.as_deref());
        let has_options = declared.is_some_and(|volume| !volume.driver_opts.is_empty());
        match driver {
            Some(driver) if driver != "local" => reasons
                .push(Reason::VolumeDriver { volume: name.clone(), driver: driver.to_owned() }),
            _ if has_options => reasons.push(Reason::VolumeDriver {
                volume: name.clone(),
                driver: "local, with driver_opts".to_owned(),
            }),
            _ => {}
        }
    }
    reasons
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_model::spec::{Mount, Port, Protocol, Ulimit, VolumeSpec};

    use super::*;

    fn spec() -> ContainerSpec {
        ContainerSpec { command: Some(vec!["true".into()]), ..ContainerSpec::default() }
    }

    fn mount(source: MountSource, target: &str) -> Mount {
        Mount { source, target: target.into(), read_only: false, consistency: None }
    }

    fn volume(name: &str) -> MountSource {
        MountSource::Volume { name: name.into(), subpath: None, nocopy: false }
    }

    fn port(published: u16) -> Port {
        let (target, protocol, mode) = (80, Protocol::Tcp, PortMode::Host);
        let (published, host_ip, proxy_protocol) = (Some(published), None, None);
        Port { target, published, host_ip, protocol, mode, proxy_protocol }
    }

    #[test]
    fn a_process_is_refused_what_it_cannot_be_given() {
        let nfs = VolumeSpec { driver: Some("nfs".into()), ..VolumeSpec::default() };
        for (case, spec, expected) in vec![
            ("nothing special", spec(), ""),
            (
                "no command",
                ContainerSpec::default(),
                "no command, and the process runtime has no image to take one from; set `command`",
            ),
            (
                "an entrypoint is a command",
                ContainerSpec { entrypoint: Some(vec!["x".into()]), ..ContainerSpec::default() },
                "",
            ),
            (
                "a signal",
                ContainerSpec { stop_signal: Some("SIGNO".into()), ..spec() },
                "unknown stop signal \"SIGNO\"",
            ),
            (
                "a ulimit",
                ContainerSpec {
                    ulimits: BTreeMap::from([("files".into(), Ulimit { soft: 1, hard: 1 })]),
                    ..spec()
                },
                "unknown ulimit \"files\"",
            ),
            (
                "a target that climbs out",
                ContainerSpec { mounts: vec![mount(volume("data"), "/a/../../etc")], ..spec() },
                "\"/a/../../etc\" is not a mount target; use an absolute path without \"..\"",
            ),
            (
                "a mount in a mount",
                ContainerSpec {
                    mounts: vec![mount(volume("a"), "/data"), mount(volume("b"), "/data/b")],
                    ..spec()
                },
                "/data/b is inside /data; the process runtime cannot nest mounts",
            ),
            (
                "a volume that climbs out",
                ContainerSpec { mounts: vec![mount(volume("../x"), "/data")], ..spec() },
                "\"../x\" is not a valid volume name",
            ),
            (
                "a volume of a driver",
                ContainerSpec {
                    mounts: vec![mount(volume("data"), "/data")],
                    volumes: BTreeMap::from([("data".into(), nfs)]),
                    ..spec()
                },
                "volume data needs the driver \"nfs\"; the process runtime supports local directories only",
            ),
            ("a port of the host", ContainerSpec { ports: vec![port(80)], ..spec() }, ""),
            (
                "a port that would have to change its number",
                ContainerSpec { ports: vec![port(8_080)], ..spec() },
                "port 80 cannot be published as 8080; a process binds its own ports",
            ),
            (
                "kernel settings",
                ContainerSpec { sysctls: BTreeMap::from([("net.x".into(), "1".into())]), ..spec() },
                "the process runtime does not support sysctls",
            ),
            (
                "a user nobody has",
                ContainerSpec { user: Some("nobody-at-all".into()), ..spec() },
                "user \"nobody-at-all\" is not known on this host",
            ),
        ] {
            let found = reasons(&spec, Path::new("/etc"), true);
            if LACKS.iter().any(|capability| spec.needs(*capability)) {
                assert!(!found.is_empty(), "{case}: what is lacking is refused");
            }
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join("; "), expected, "{case}");
        }
    }
}
