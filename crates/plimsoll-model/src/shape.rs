//! What no service can say, whoever asks: values that the reader of compose files refuses, found in the spec itself, so
//! that who speaks to the API by other means gets the same answer. How much it may say is in [`ceilings`](crate::ceilings),
//! what takes which role in [`privilege`](crate::privilege).

use std::collections::BTreeSet;
use std::net::IpAddr;

use thiserror::Error;

use crate::Mode;
use crate::spec::{
    ContainerSpec, MountSource, Placement, Port, PortMode, Protocol, RouteSpec, ServiceSpec,
};

pub const NETWORK_MODES: [&str; 3] = ["bridge", "host", "none"];
pub const IPC_MODES: [&str; 4] = ["host", "private", "shareable", "none"];
pub const PID_MODES: [&str; 1] = ["host"];
pub const UTS_MODES: [&str; 1] = ["host"];
pub const CGROUP_MODES: [&str; 2] = ["host", "private"];
pub const PROPAGATIONS: [&str; 6] = ["shared", "slave", "private", "rshared", "rslave", "rprivate"];
pub const CONSISTENCIES: [&str; 4] = ["consistent", "cached", "delegated", "default"];
pub const SELINUX: [&str; 2] = ["z", "Z"];

/// Options of a tmpfs that have no value; `ro` and `rw` are fields of their own.
pub const TMPFS_OPTIONS: [&str; 14] = [
    "exec",
    "noexec",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "sync",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
];

/// Options of a tmpfs that have a number.
pub const TMPFS_NUMBERS: [&str; 4] = ["uid", "gid", "nr_inodes", "nr_blocks"];

/// The largest mode a file can have.
pub const MAX_FILE_MODE: u32 = 0o7777;

/// A value that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Mistake {
    #[error("{field} must be {}, found {found:?}", allowed.join(" or "))]
    Word { field: &'static str, found: String, allowed: Vec<&'static str> },
    #[error("{field}: {found} is another container's, which may run elsewhere or be replaced")]
    Shared { field: &'static str, found: String },
    #[error("network_mode and networks exclude each other")]
    NetworkTwice,
    #[error("the bind source {path:?} is not an absolute path")]
    RelativeBind { path: String },
    #[error("two mounts at {target}")]
    MountedTwice { target: String },
    #[error("volume {name:?} is not declared")]
    UndeclaredVolume { name: String },
    #[error("volume {name:?} has scope global, which takes a driver other than local")]
    GlobalVolume { name: String },
    #[error("{option:?} is not an option of tmpfs")]
    TmpfsOption { option: String },
    #[error("{mode:o} is not a file mode")]
    FileMode { mode: u32 },
    #[error("{ip:?} is not an IP address")]
    HostIp { ip: String },
    #[error("0 is not a port")]
    PortZero,
    #[error("proxy_protocol of port {target}: it is for tcp, and this is {protocol}")]
    ProxyProtocolNotTcp { target: u16, protocol: Protocol },
    #[error("proxy_protocol of port {target}: with mode host clients reach the container directly")]
    ProxyProtocolOnHost { target: u16 },
    #[error(
        "port {target} is published with and without proxy_protocol: a server expects it of every connection or of none"
    )]
    ProxyProtocolMixed { target: u16 },
    #[error("a route leads to port {target}, which is published with proxy_protocol")]
    ProxyProtocolRouted { target: u16 },
    #[error("{permissions:?} are not permissions of a device; use r, w and m")]
    DevicePermissions { permissions: String },
    #[error("ulimit {name} has a soft limit above its hard one")]
    UlimitReversed { name: String },
    #[error("{key:?} is not the name of a variable")]
    Variable { key: String },
    #[error("placement hosts names no node")]
    NoHosts,
}

impl ServiceSpec {
    /// Every value that cannot be.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let container = &self.container;
        let mut found = Vec::new();
        namespaces(container, &mut found);
        mounts(container, &mut found);
        let nowhere = container.volumes.iter().filter(|(_, volume)| !volume.can_have_scope());
        found.extend(nowhere.map(|(name, _)| Mistake::GlobalVolume { name: name.clone() }));
        let ports = container.ports.iter();
        if ports.clone().any(|port| port.target == 0 || port.published == Some(0)) {
            found.push(Mistake::PortZero);
        }
        proxy_protocol(&container.ports, &mut found);
        let ips = ports.filter_map(|port| port.host_ip.clone());
        let not_ips = ips.filter(|ip| ip.parse::<IpAddr>().is_err());
        found.extend(not_ips.map(|ip| Mistake::HostIp { ip }));
        let files = container.configs.iter().chain(&container.secrets);
        let modes = files.filter_map(|file| file.mode).filter(|mode| *mode > MAX_FILE_MODE);
        found.extend(modes.map(|mode| Mistake::FileMode { mode }));
        let permissions = container.devices.iter().map(|device| &device.permissions);
        let odd = permissions.filter(|it| it.is_empty() || !it.chars().all(|c| "rwm".contains(c)));
        found.extend(odd.map(|it| Mistake::DevicePermissions { permissions: it.clone() }));
        let limits = container.ulimits.iter();
        let reversed = limits.filter(|(_, limit)| limit.hard >= 0 && limit.soft > limit.hard);
        found.extend(reversed.map(|(name, _)| Mistake::UlimitReversed { name: name.clone() }));
        let keys = container.environment.keys();
        let odd = keys.filter(|key| key.is_empty() || key.contains(['=', '\0']));
        found.extend(odd.map(|key| Mistake::Variable { key: key.clone() }));
        let Placement { mode, .. } = &self.placement;
        if matches!(mode, Mode::Hosts { hosts, .. } if hosts.is_empty()) {
            found.push(Mistake::NoHosts);
        }
        found
    }
}

impl ContainerSpec {
    /// Why requests cannot be routed to it so: a connection that carries the requests of many clients cannot begin with the
    /// address of one.
    pub fn route_mistake(&self, route: &RouteSpec) -> Option<Mistake> {
        let target = route.port;
        self.proxied_ports().contains(&target).then_some(Mistake::ProxyProtocolRouted { target })
    }
}

/// What is carried to a port begins with its client's address, or nothing is: whoever listens there cannot tell.
fn proxy_protocol(ports: &[Port], found: &mut Vec<Mistake>) {
    let routed = |port: &&Port| port.protocol == Protocol::Tcp && port.mode == PortMode::Routed;
    let plain = ports.iter().filter(routed).filter(|port| port.proxy_protocol.is_none());
    let plain: BTreeSet<u16> = plain.map(|port| port.target).collect();
    let mut mixed = BTreeSet::new();
    for port in ports.iter().filter(|port| port.proxy_protocol.is_some()) {
        let (target, protocol) = (port.target, port.protocol);
        if protocol != Protocol::Tcp {
            found.push(Mistake::ProxyProtocolNotTcp { target, protocol });
        } else if port.mode == PortMode::Host {
            found.push(Mistake::ProxyProtocolOnHost { target });
        } else if plain.contains(&target) && mixed.insert(target) {
            found.push(Mistake::ProxyProtocolMixed { target });
        }
    }
}

/// A namespace is the container's own or the node's, never another container's.
fn namespaces(container: &ContainerSpec, found: &mut Vec<Mistake>) {
    let modes: [(&'static str, &Option<String>, &[&'static str]); 5] = [
        ("network_mode", &container.network_mode, &NETWORK_MODES),
        ("ipc", &container.ipc, &IPC_MODES),
        ("pid", &container.pid, &PID_MODES),
        ("uts", &container.uts, &UTS_MODES),
        ("cgroup", &container.cgroup, &CGROUP_MODES),
    ];
    for (field, mode, allowed) in modes {
        match mode {
            Some(mode) if mode.starts_with("service:") || mode.starts_with("container:") => {
                found.push(Mistake::Shared { field, found: mode.clone() });
            }
            mode => word(field, mode.as_ref(), allowed, found),
        }
    }
    if container.network_mode.is_some() && !container.networks.is_empty() {
        found.push(Mistake::NetworkTwice);
    }
}

fn word(
    field: &'static str,
    value: Option<&String>,
    allowed: &[&'static str],
    found: &mut Vec<Mistake>,
) {
    if let Some(value) = value.filter(|value| !allowed.contains(&value.as_str())) {
        found.push(Mistake::Word { field, found: value.clone(), allowed: allowed.to_vec() });
    }
}

fn mounts(container: &ContainerSpec, found: &mut Vec<Mistake>) {
    let mut targets = BTreeSet::new();
    for mount in &container.mounts {
        if !targets.insert(&mount.target) {
            found.push(Mistake::MountedTwice { target: mount.target.clone() });
        }
        word("consistency", mount.consistency.as_ref(), &CONSISTENCIES, found);
        match &mount.source {
            MountSource::Bind { path, propagation, create_host_path: _, selinux } => {
                if !path.starts_with('/') {
                    found.push(Mistake::RelativeBind { path: path.clone() });
                }
                word("propagation", propagation.as_ref(), &PROPAGATIONS, found);
                word("selinux", selinux.as_ref(), &SELINUX, found);
            }
            MountSource::Volume { name, .. } => {
                if !container.volumes.contains_key(name) {
                    found.push(Mistake::UndeclaredVolume { name: name.clone() });
                }
            }
            MountSource::Anonymous => {}
            MountSource::Tmpfs { size: _, mode, options } => {
                let mode = mode.filter(|mode| *mode > MAX_FILE_MODE);
                found.extend(mode.map(|mode| Mistake::FileMode { mode }));
                let odd = options.iter().filter(|option| !is_tmpfs_option(option));
                found.extend(odd.map(|it| Mistake::TmpfsOption { option: it.clone() }));
            }
        }
    }
}

fn is_tmpfs_option(option: &str) -> bool {
    match option.split_once('=') {
        Some((key, value)) => TMPFS_NUMBERS.contains(&key) && !value.contains(','),
        None => TMPFS_OPTIONS.contains(&option),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testkit::spread;

    fn said(field: &str, value: Value) -> Vec<String> {
        let mut spec = serde_json::to_value(spread(1)).unwrap();
        spec["container"][field] = value;
        let spec: ServiceSpec = serde_json::from_value(spec).unwrap();
        spec.mistakes().iter().map(ToString::to_string).collect()
    }

    fn mount(source: &Value) -> Value {
        json!([{"source": source, "target": "/x", "read_only": false, "consistency": null}])
    }

    fn bind(path: &str, propagation: &str) -> Value {
        mount(
            &json!({"bind": {"path": path, "propagation": propagation, "create_host_path": true, "selinux": null}}),
        )
    }

    /// Ports that lead to the same one: the protocol, the mode, and whether it asks for its clients' addresses.
    fn proxied(ports: &[(&str, &str, bool)]) -> Value {
        let port = |(at, (protocol, mode, is_proxied)): (usize, &(&str, &str, bool))| {
            json!({"target": 80, "published": 8080 + at, "host_ip": null, "protocol": protocol, "mode": mode,
                   "proxy_protocol": is_proxied.then_some("v2")})
        };
        ports.iter().enumerate().map(port).collect()
    }

    #[test]
    fn what_no_file_can_say_is_a_mistake_of_the_spec_too() {
        let tmpfs = |option: &str| {
            mount(&json!({"tmpfs": {"size": null, "mode": null, "options": [option]}}))
        };
        let volume = mount(&json!({"volume": {"name": "data", "subpath": null, "nocopy": false}}));
        let port = |ip: Value| json!([{"target": 80, "published": 80, "host_ip": ip, "protocol": "tcp", "mode": "host"}]);
        for (field, value, expected) in [
            ("network_mode", json!("host"), ""),
            (
                "network_mode",
                json!("container:db"),
                "network_mode: container:db is another container's, which may run elsewhere or be replaced",
            ),
            (
                "ipc",
                json!("service:db"),
                "ipc: service:db is another container's, which may run elsewhere or be replaced",
            ),
            ("pid", json!("private"), "pid must be host, found \"private\""),
            ("cgroup", json!("x"), "cgroup must be host or private, found \"x\""),
            ("mounts", bind("/srv", "rslave"), ""),
            ("mounts", bind("srv", "rslave"), "the bind source \"srv\" is not an absolute path"),
            (
                "mounts",
                bind("/srv", "rw,Z"),
                "propagation must be shared or slave or private or rshared or rslave or rprivate, found \"rw,Z\"",
            ),
            ("mounts", volume, "volume \"data\" is not declared"),
            ("mounts", tmpfs("uid=7"), ""),
            ("mounts", tmpfs("uid=7,dev"), "\"uid=7,dev\" is not an option of tmpfs"),
            ("mounts", tmpfs("mpol=x"), "\"mpol=x\" is not an option of tmpfs"),
            ("ports", port(json!("::1")), ""),
            ("ports", port(json!("local")), "\"local\" is not an IP address"),
            ("ports", proxied(&[("tcp", "routed", true), ("udp", "routed", false)]), ""),
            (
                "ports",
                proxied(&[("udp", "routed", true)]),
                "proxy_protocol of port 80: it is for tcp, and this is udp",
            ),
            (
                "ports",
                proxied(&[("tcp", "host", true)]),
                "proxy_protocol of port 80: with mode host clients reach the container directly",
            ),
            (
                "ports",
                proxied(&[
                    ("tcp", "routed", true),
                    ("tcp", "routed", false),
                    ("tcp", "routed", true),
                ]),
                "port 80 is published with and without proxy_protocol: a server expects it of every connection or of none",
            ),
            ("environment", json!({"A=B": "c"}), "\"A=B\" is not the name of a variable"),
            (
                "ulimits",
                json!({"nofile": {"soft": 2, "hard": 1}}),
                "ulimit nofile has a soft limit above its hard one",
            ),
        ] {
            assert_eq!(said(field, value.clone()).join("; "), expected, "{field}: {value}");
        }
    }
}
