//! What of a container's spec reaches beyond the container, to the node it runs on: whoever may ask for it may do
//! anything there.

use std::fmt;

use crate::spec::{ContainerSpec, MountSource};

/// Capabilities that are as good as being root on the node.
const CAPABILITIES: [&str; 10] = [
    "ALL",
    "BPF",
    "DAC_READ_SEARCH",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_TIME",
    "SYSLOG",
];

/// Directories that are the node itself, or hold the sockets that command it; to read them is enough.
const HOST: [&str; 12] = [
    "/boot",
    "/dev",
    "/etc/shadow",
    "/proc",
    "/root",
    "/run",
    "/sys",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/plimsoll",
    "/var/run",
];

/// Directories of the node that are harmless to read and not to write.
const HOST_TO_WRITE: [&str; 6] = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];

/// One such field, as a compose file has it: `privileged: true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privilege {
    pub field: &'static str,
    pub value: String,
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.value)
    }
}

impl ContainerSpec {
    /// The fields that reach beyond the container; empty for an ordinary one.
    pub fn privileges(&self) -> Vec<Privilege> {
        let mut found = Vec::new();
        let mut add = |field, value: &str| found.push(Privilege { field, value: value.to_owned() });
        if self.privileged == Some(true) {
            add("privileged", "true");
        }
        for (field, value) in [
            ("pid", &self.pid),
            ("network_mode", &self.network_mode),
            ("ipc", &self.ipc),
            ("uts", &self.uts),
            ("userns_mode", &self.userns_mode),
            ("cgroup", &self.cgroup),
        ] {
            if value.as_deref() == Some("host") {
                add(field, "host");
            }
        }
        for capability in &self.cap_add {
            let name = capability.to_uppercase();
            if CAPABILITIES.contains(&name.strip_prefix("CAP_").unwrap_or(&name)) {
                add("cap_add", capability);
            }
        }
        for option in &self.security_opt {
            if option.contains("unconfined")
                || option == "label:disable"
                || option == "label=disable"
            {
                add("security_opt", option);
            }
        }
        for device in &self.devices {
            add("devices", &device.source);
        }
        for rule in &self.device_cgroup_rules {
            add("device_cgroup_rules", rule);
        }
        for mount in &self.mounts {
            if let MountSource::Bind { path, .. } = &mount.source
                && reaches_the_host(path, mount.read_only)
            {
                add("volumes", &format!("{path}:{}", mount.target));
            }
        }
        found
    }
}

fn reaches_the_host(path: &str, is_read_only: bool) -> bool {
    let path = plain(path);
    let is_within = |dir: &&str| is_below(&path, dir);
    // Whoever has a directory has all that is below it.
    let holds = |dir: &&str| is_below(dir, &path);
    HOST.iter().any(|dir| is_within(dir) || holds(dir))
        || (!is_read_only && HOST_TO_WRITE.iter().any(is_within))
}

fn is_below(path: &str, dir: &str) -> bool {
    let rest = path.strip_prefix(dir.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path without detours.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Device, Mount};

    fn bind(path: &str, read_only: bool) -> ContainerSpec {
        let source = MountSource::Bind {
            path: path.to_owned(),
            propagation: None,
            create_host_path: true,
            selinux: None,
        };
        let mount = Mount { source, target: "/x".to_owned(), read_only, consistency: None };
        ContainerSpec { mounts: vec![mount], ..ContainerSpec::default() }
    }

    #[test]
    fn every_way_to_the_node_is_named_by_its_field() {
        let host = || Some("host".to_owned());
        let none = ContainerSpec::default;
        let device = Device {
            source: "/dev/kvm".to_owned(),
            target: "/dev/kvm".to_owned(),
            permissions: "rwm".to_owned(),
        };
        for (spec, expected) in [
            (ContainerSpec { privileged: Some(true), ..none() }, "privileged: true"),
            (ContainerSpec { pid: host(), ..none() }, "pid: host"),
            (ContainerSpec { network_mode: host(), ..none() }, "network_mode: host"),
            (
                ContainerSpec { cap_add: ["cap_sys_admin".to_owned()].into(), ..none() },
                "cap_add: cap_sys_admin",
            ),
            (
                ContainerSpec { security_opt: vec!["seccomp=unconfined".to_owned()], ..none() },
                "security_opt: seccomp=unconfined",
            ),
            (ContainerSpec { devices: vec![device], ..none() }, "devices: /dev/kvm"),
            (bind("/", true), "volumes: /:/x"),
            (bind("/var/run/docker.sock", true), "volumes: /var/run/docker.sock:/x"),
        ] {
            let found: Vec<String> = spec.privileges().iter().map(ToString::to_string).collect();
            assert_eq!(found, [expected]);
        }
    }

    #[test]
    fn what_stays_in_its_container_takes_no_privilege() {
        let none = ContainerSpec::default;
        for spec in [
            none(),
            ContainerSpec { privileged: Some(false), ..none() },
            ContainerSpec { network_mode: Some("none".to_owned()), ..none() },
            ContainerSpec { cap_add: ["NET_BIND_SERVICE".to_owned()].into(), ..none() },
            ContainerSpec { security_opt: vec!["no-new-privileges:true".to_owned()], ..none() },
        ] {
            assert_eq!(spec.privileges(), []);
        }
    }

    #[test]
    fn a_bind_mount_reaches_the_node_where_it_holds_what_commands_it() {
        for (path, read_only, reaches) in [
            ("/srv/data", false, false),
            ("/home/ada/shop/conf", false, false),
            ("/var/log/shop", false, false),
            ("/var/lib/postgresql/data", false, false),
            ("/var/lib", true, true),
            ("/etc/localtime", true, false),
            ("/etc/localtime", false, true),
            ("/etc", true, true),
            ("/srv/../etc/", true, true),
            ("/var", true, true),
            ("/proc/1", true, true),
            ("//", true, true),
            ("/runner", false, false),
            ("/usr/share/zoneinfo", true, false),
        ] {
            let found = !bind(path, read_only).privileges().is_empty();
            assert_eq!(found, reaches, "{path}, read only: {read_only}");
        }
    }
}
