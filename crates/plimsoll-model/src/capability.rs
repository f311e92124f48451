//! What a container may need of the runtime of its node that not every runtime has. A node says what its own lacks, and
//! placement keeps away what needs that.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::spec::{ContainerSpec, Mount, MountSource, PortMode};

/// What a node says of its runtime. A node that says nothing lacks nothing: its runtime refuses what it cannot do.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RuntimeFacts {
    pub name: String,
    pub lacks: BTreeSet<Capability>,
    /// Directories of the node below which anybody who may deploy may bind.
    #[serde(default)]
    pub bind_roots: BTreeSet<String>,
    /// Whether root in a container is root of the node, and a group in it a group of the node.
    #[serde(default)]
    pub root_is_host: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// To take the command from the image.
    ImageCommand,
    /// To run a command without an image.
    NoImage,
    /// To publish a port under another number.
    PortMapping,
    /// A mount inside another mount.
    NestedMounts,
    /// A volume that is more than a directory of the node.
    VolumeDrivers,
    /// To mount a part of a volume.
    VolumeSubpath,
    Sysctls,
    ExtraHosts,
    /// `network_mode: none`.
    NoNetwork,
    /// To find services by name on more than one network.
    SeveralNetworks,
    /// For who is no admin, to bind a path that lies below none of the node's bind roots.
    BindPath,
    /// For who is no admin, to run as root of the node or in a group of it.
    HostUser,
}

impl Capability {
    pub const ALL: [Self; 12] = [
        Self::ImageCommand,
        Self::NoImage,
        Self::PortMapping,
        Self::NestedMounts,
        Self::VolumeDrivers,
        Self::VolumeSubpath,
        Self::Sysctls,
        Self::ExtraHosts,
        Self::NoNetwork,
        Self::SeveralNetworks,
        Self::BindPath,
        Self::HostUser,
    ];

    /// As it is written in files and answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::ImageCommand => "image_command",
            Self::NoImage => "no_image",
            Self::PortMapping => "port_mapping",
            Self::NestedMounts => "nested_mounts",
            Self::VolumeDrivers => "volume_drivers",
            Self::VolumeSubpath => "volume_subpath",
            Self::Sysctls => "sysctls",
            Self::ExtraHosts => "extra_hosts",
            Self::NoNetwork => "no_network",
            Self::SeveralNetworks => "several_networks",
            Self::BindPath => "bind_path",
            Self::HostUser => "host_user",
        }
    }

    /// What to do where no node has it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::ImageCommand => "set `command`",
            Self::NoImage => "set `image`",
            Self::PortMapping => "publish the port under its own number",
            Self::NestedMounts => "mount side by side",
            Self::VolumeDrivers => "use a volume of the driver local, without driver_opts",
            Self::VolumeSubpath => "mount the whole volume, or upgrade the engine",
            Self::Sysctls => "remove `sysctls`",
            Self::ExtraHosts => "remove `extra_hosts`",
            Self::NoNetwork => "remove `network_mode: none`",
            Self::SeveralNetworks => "put the service on one network, or use Docker",
            Self::BindPath => "bind below a --bind-root of a node, or apply with role admin",
            Self::HostUser => "set `user` to one other than root, or apply with role admin",
        }
    }
}

/// The thing it is, as the object of "cannot" or "lacks".
impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ImageCommand => "run the command of an image",
            Self::NoImage => "run a command without an image",
            Self::PortMapping => "publish a port under another number",
            Self::NestedMounts => "nest mounts",
            Self::VolumeDrivers => "use volume drivers",
            Self::VolumeSubpath => "mount part of a volume",
            Self::Sysctls => "set sysctls",
            Self::ExtraHosts => "add extra_hosts",
            Self::NoNetwork => "run without a network",
            Self::SeveralNetworks => "resolve service names on several networks",
            Self::BindPath => "bind a path outside its bind roots for role deploy",
            Self::HostUser => "run as root for role deploy",
        })
    }
}

impl RuntimeFacts {
    /// Whether it makes containers from images at all.
    pub fn pulls_images(&self) -> bool {
        !self.lacks.contains(&Capability::ImageCommand)
    }

    /// Whether a container that needs this does not find it here.
    fn is_without(&self, capability: Capability, spec: &ContainerSpec) -> bool {
        match capability {
            Capability::BindPath => !spec.binds_below(&self.bind_roots),
            Capability::HostUser => self.root_is_host,
            other => self.lacks.contains(&other),
        }
    }
}

impl ContainerSpec {
    /// Whether it needs this of a runtime.
    pub fn needs(&self, capability: Capability) -> bool {
        match capability {
            Capability::ImageCommand => {
                let is_empty =
                    |words: &Option<Vec<String>>| words.as_ref().is_none_or(Vec::is_empty);
                is_empty(&self.entrypoint) && is_empty(&self.command)
            }
            Capability::NoImage => self.image.is_empty(),
            Capability::PortMapping => self.ports.iter().any(|port| {
                port.mode == PortMode::Host && port.published.is_some_and(|at| at != port.target)
            }),
            Capability::NestedMounts => self.has_nested_mounts(),
            Capability::VolumeDrivers => self.has_driven_volume(),
            Capability::VolumeSubpath => self
                .mounts
                .iter()
                .any(|mount| matches!(&mount.source, MountSource::Volume { subpath: Some(_), .. })),
            Capability::Sysctls => !self.sysctls.is_empty(),
            Capability::ExtraHosts => !self.extra_hosts.is_empty(),
            Capability::NoNetwork => self.network_mode.as_deref() == Some("none"),
            Capability::SeveralNetworks => self.network_mode.is_none() && self.networks.len() > 1,
            Capability::BindPath => self.asked_by.is_some() && self.has_binds(),
            Capability::HostUser => self.asked_by.is_some() && self.wants_host_user(),
        }
    }

    /// Makes it need just these, as a case or a simulated service says it of a container that it does not describe. Fails with
    /// the first that takes more than a container of its own: a volume, networks, or the role of who asked for it.
    pub fn need_only(&mut self, needs: &BTreeSet<Capability>) -> Result<(), Capability> {
        self.command = Some(vec!["run".to_owned()]);
        for need in needs {
            match need {
                Capability::ImageCommand => self.command = None,
                Capability::NoImage => self.image.clear(),
                Capability::PortMapping => {
                    let port = self.ports.iter_mut().find(|port| port.mode == PortMode::Host);
                    let port = port.ok_or(*need)?;
                    port.target = port.published.map_or(port.target, |at| at ^ 1);
                }
                Capability::NestedMounts => {
                    for target in ["/nested", "/nested/mount"] {
                        let source =
                            MountSource::Tmpfs { size: None, mode: None, options: BTreeSet::new() };
                        let target = target.to_owned();
                        let mount = Mount { source, target, read_only: false, consistency: None };
                        self.mounts.push(mount);
                    }
                }
                Capability::Sysctls => {
                    self.sysctls.insert("net.core.somaxconn".to_owned(), "1024".to_owned());
                }
                Capability::ExtraHosts => {
                    self.extra_hosts.insert("other".to_owned(), vec!["192.0.2.1".to_owned()]);
                }
                Capability::NoNetwork => {
                    self.network_mode = Some("none".to_owned());
                    self.networks.clear();
                }
                // Its networks say so themselves.
                Capability::SeveralNetworks if self.networks.len() > 1 => {}
                Capability::VolumeDrivers
                | Capability::VolumeSubpath
                | Capability::SeveralNetworks
                | Capability::BindPath
                | Capability::HostUser => return Err(*need),
            }
        }
        Ok(())
    }

    /// Everything it needs that the runtime lacks.
    pub fn all_lacking(&self, runtime: &RuntimeFacts) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(|it| runtime.is_without(*it, self) && self.needs(*it))
    }

    /// The first thing it needs that the runtime lacks.
    pub fn lacking(&self, runtime: &RuntimeFacts) -> Option<Capability> {
        self.all_lacking(runtime).next()
    }

    fn has_binds(&self) -> bool {
        self.mounts.iter().any(|mount| matches!(mount.source, MountSource::Bind { .. }))
    }

    fn has_nested_mounts(&self) -> bool {
        let files = self.configs.iter().chain(&self.secrets).map(|file| file.target.as_str());
        let targets: BTreeSet<&Path> = self
            .mounts
            .iter()
            .map(|mount| mount.target.as_str())
            .chain(files)
            .map(Path::new)
            .collect();
        targets.iter().any(|inner| inner.ancestors().skip(1).any(|outer| targets.contains(outer)))
    }

    fn has_driven_volume(&self) -> bool {
        self.mounts.iter().any(|mount| {
            let MountSource::Volume { name, .. } = &mount.source else { return false };
            self.volumes.get(name).is_some_and(|volume| {
                let driver = volume.driver.as_deref().unwrap_or("local");
                driver != "local" || !volume.driver_opts.is_empty()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::spec::{NetworkAttachment, Port, Protocol, VolumeSpec};

    fn plain() -> ContainerSpec {
        ContainerSpec {
            image: "app:1".into(),
            command: Some(vec!["run".into()]),
            ..ContainerSpec::default()
        }
    }

    fn volume(target: &str, subpath: Option<&str>) -> Mount {
        let subpath = subpath.map(str::to_owned);
        let source = MountSource::Volume { name: "data".into(), subpath, nocopy: false };
        Mount { source, target: target.into(), read_only: false, consistency: None }
    }

    fn port(published: u16, mode: PortMode) -> Port {
        Port {
            target: 80,
            published: Some(published),
            host_ip: None,
            protocol: Protocol::Tcp,
            mode,
            proxy_protocol: None,
        }
    }

    fn driven(volume: VolumeSpec) -> ContainerSpec {
        ContainerSpec {
            mounts: vec![self::volume("/data", None)],
            volumes: BTreeMap::from([("data".to_owned(), volume)]),
            ..plain()
        }
    }

    fn joining(networks: &[&str]) -> ContainerSpec {
        let networks = networks.iter().map(|it| ((*it).to_owned(), NetworkAttachment::default()));
        ContainerSpec { networks: networks.collect(), ..plain() }
    }

    #[test]
    fn a_container_needs_just_what_its_spec_asks_for() {
        let nfs = VolumeSpec { driver: Some("nfs".into()), ..VolumeSpec::default() };
        let options = BTreeMap::from([("type".to_owned(), "tmpfs".to_owned())]);
        let with_options = VolumeSpec { driver_opts: options, ..VolumeSpec::default() };
        for (case, spec, expected) in vec![
            ("nothing special", plain(), None),
            (
                "no command",
                ContainerSpec { command: None, ..plain() },
                Some(Capability::ImageCommand),
            ),
            (
                "an entrypoint is a command",
                ContainerSpec { command: None, entrypoint: Some(vec!["x".into()]), ..plain() },
                None,
            ),
            (
                "no image",
                ContainerSpec { image: String::new(), ..plain() },
                Some(Capability::NoImage),
            ),
            (
                "another port of the host",
                ContainerSpec { ports: vec![port(8_080, PortMode::Host)], ..plain() },
                Some(Capability::PortMapping),
            ),
            (
                "the same port, or one that is routed",
                ContainerSpec {
                    ports: vec![port(80, PortMode::Host), port(8_080, PortMode::Routed)],
                    ..plain()
                },
                None,
            ),
            (
                "a mount in a mount",
                ContainerSpec { mounts: vec![volume("/a", None), volume("/a/b", None)], ..plain() },
                Some(Capability::NestedMounts),
            ),
            (
                "mounts side by side",
                ContainerSpec { mounts: vec![volume("/a", None), volume("/ab", None)], ..plain() },
                None,
            ),
            ("a volume of a driver", driven(nfs), Some(Capability::VolumeDrivers)),
            ("a volume with options", driven(with_options), Some(Capability::VolumeDrivers)),
            ("a plain volume", driven(VolumeSpec::default()), None),
            (
                "a part of a volume",
                ContainerSpec { mounts: vec![volume("/a", Some("x"))], ..plain() },
                Some(Capability::VolumeSubpath),
            ),
            (
                "kernel settings",
                ContainerSpec { sysctls: BTreeMap::from([("a".into(), "1".into())]), ..plain() },
                Some(Capability::Sysctls),
            ),
            (
                "no network",
                ContainerSpec { network_mode: Some("none".into()), ..plain() },
                Some(Capability::NoNetwork),
            ),
            ("two networks", joining(&["front", "back"]), Some(Capability::SeveralNetworks)),
            ("one network", joining(&["front"]), None),
        ] {
            let needs: Vec<Capability> =
                Capability::ALL.into_iter().filter(|it| spec.needs(*it)).collect();
            assert_eq!(needs, expected.into_iter().collect::<Vec<_>>(), "{case}");
        }
    }

    #[test]
    fn a_container_can_be_made_to_need_what_takes_no_volume_and_no_role() {
        for need in Capability::ALL {
            let mut container =
                ContainerSpec { image: "app:1".to_owned(), ..ContainerSpec::default() };
            container.ports.push(Port {
                target: 80,
                published: Some(80),
                host_ip: None,
                protocol: Protocol::Tcp,
                mode: PortMode::Host,
                proxy_protocol: None,
            });
            let is_possible = container.need_only(&BTreeSet::from([need])).is_ok();
            let needs: Vec<_> =
                Capability::ALL.into_iter().filter(|it| container.needs(*it)).collect();
            let expected = if is_possible { vec![need] } else { Vec::new() };
            assert_eq!(needs, expected, "{}", need.word());
            assert_eq!(serde_json::to_value(need).unwrap(), need.word());
        }
    }

    #[test]
    fn what_a_runtime_lacks_is_missed_only_by_who_needs_it() {
        let lacks = BTreeSet::from([Capability::Sysctls, Capability::ImageCommand]);
        let runtime = RuntimeFacts { name: "process".into(), lacks, ..RuntimeFacts::default() };
        assert_eq!(plain().lacking(&runtime), None);
        let spec = ContainerSpec { command: None, ..plain() };
        assert_eq!(spec.lacking(&runtime), Some(Capability::ImageCommand));
        assert_eq!(spec.lacking(&RuntimeFacts::default()), None, "who says nothing lacks nothing");
    }
}
