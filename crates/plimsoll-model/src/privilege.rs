//! What a token with role `deploy` may ask of a container: a closed list. Whatever is not on it reaches beyond the
//! container, to its node or to other deployments, and needs role `admin`.
//!
//! Given a spec and what the nodes say of their runtimes, [`ContainerSpec::privileges`] names every field that is not on
//! the list. Who asks, and what is done about it, is settled where a spec is applied; what only shows on the node, such as
//! a symlink in a bind mount, is checked there before a container starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path};

use crate::capability::RuntimeFacts;
use crate::spec::{
    ContainerSpec, FileMount, GpuRequest, Logging, Mount, MountSource, NetworkAttachment,
    VolumeSpec,
};

#[cfg(test)]
mod tests;

/// The capabilities that an engine gives to every container: asking for them adds nothing.
const CAPABILITIES: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Options that take rights away. Labels and profiles give some, and a profile may be a file of the node.
const SECURITY_OPTIONS: [&str; 3] =
    ["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"];

/// Limits that bound a container and nobody else; `rtprio`, `rttime` and `nice` take time from others.
const ULIMITS: [&str; 11] =
    ["as", "core", "cpu", "data", "fsize", "locks", "memlock", "nofile", "nproc", "rss", "stack"];

/// Settings of the kernel that every container has of its own; one that ends in a dot stands for all below it.
const SYSCTLS: [&str; 12] = [
    "fs.mqueue.",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shm_rmid_forced",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "net.core.somaxconn",
    "net.ipv4.",
    "net.ipv6.",
];

/// Log drivers that write where the engine chooses; others connect to an address, or read a file of the node.
const LOG_DRIVERS: [&str; 3] = ["json-file", "local", "none"];

const LOG_OPTIONS: [&str; 7] =
    ["compress", "env", "env-regex", "labels", "max-file", "max-size", "tag"];

/// The bits of a file that lend its owner's rights to whoever runs it.
const SET_ID_BITS: u32 = 0o6000;

/// The most characters of a value that are repeated: a profile can be as long as a page.
const MAX_SHOWN: usize = 60;

/// A field that a `deploy` token may set within bounds only, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    Annotations,
    BindMount,
    CapAdd,
    Cgroup,
    CgroupParent,
    Configs,
    DeviceCgroupRules,
    Devices,
    Gpus,
    GroupAdd,
    Ipc,
    Logging,
    MemswapLimit,
    NetworkMode,
    Networks,
    OomKillDisable,
    OomScoreAdj,
    Pid,
    Privileged,
    Runtime,
    Secrets,
    SecurityOpt,
    StorageOpt,
    Sysctls,
    Tmpfs,
    Ulimits,
    User,
    UsernsMode,
    Uts,
    Volume,
}

impl Field {
    pub const ALL: [Self; 30] = [
        Self::Annotations,
        Self::BindMount,
        Self::CapAdd,
        Self::Cgroup,
        Self::CgroupParent,
        Self::Configs,
        Self::DeviceCgroupRules,
        Self::Devices,
        Self::Gpus,
        Self::GroupAdd,
        Self::Ipc,
        Self::Logging,
        Self::MemswapLimit,
        Self::NetworkMode,
        Self::Networks,
        Self::OomKillDisable,
        Self::OomScoreAdj,
        Self::Pid,
        Self::Privileged,
        Self::Runtime,
        Self::Secrets,
        Self::SecurityOpt,
        Self::StorageOpt,
        Self::Sysctls,
        Self::Tmpfs,
        Self::Ulimits,
        Self::User,
        Self::UsernsMode,
        Self::Uts,
        Self::Volume,
    ];

    /// As a compose file has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Annotations => "annotations",
            Self::BindMount | Self::Volume => "volumes",
            Self::CapAdd => "cap_add",
            Self::Cgroup => "cgroup",
            Self::CgroupParent => "cgroup_parent",
            Self::Configs => "configs",
            Self::DeviceCgroupRules => "device_cgroup_rules",
            Self::Devices => "devices",
            Self::Gpus => "gpus",
            Self::GroupAdd => "group_add",
            Self::Ipc => "ipc",
            Self::Logging => "logging",
            Self::MemswapLimit => "memswap_limit",
            Self::NetworkMode => "network_mode",
            Self::Networks => "networks",
            Self::OomKillDisable => "oom_kill_disable",
            Self::OomScoreAdj => "oom_score_adj",
            Self::Pid => "pid",
            Self::Privileged => "privileged",
            Self::Runtime => "runtime",
            Self::Secrets => "secrets",
            Self::SecurityOpt => "security_opt",
            Self::StorageOpt => "storage_opt",
            Self::Sysctls => "sysctls",
            Self::Tmpfs => "tmpfs",
            Self::Ulimits => "ulimits",
            Self::User => "user",
            Self::UsernsMode => "userns_mode",
            Self::Uts => "uts",
        }
    }

    /// What a `deploy` token may set it to.
    pub fn allowed(self) -> String {
        match self {
            Self::Annotations
            | Self::CgroupParent
            | Self::DeviceCgroupRules
            | Self::Devices
            | Self::Pid
            | Self::Runtime
            | Self::StorageOpt
            | Self::UsernsMode
            | Self::Uts => "nothing".to_owned(),
            Self::BindMount => "a path below a directory that a node was started with as \
                `--bind-root`, without `propagation` or `selinux`"
                .to_owned(),
            Self::CapAdd => CAPABILITIES.join(", "),
            Self::Cgroup => "private".to_owned(),
            Self::Configs | Self::Secrets => "a `mode` without setuid and setgid".to_owned(),
            Self::Gpus => "the driver nvidia or none named, without `options`".to_owned(),
            Self::GroupAdd => "any on Docker, nothing on the process runtime".to_owned(),
            Self::Ipc => "none, private, shareable".to_owned(),
            Self::Logging => format!(
                "the drivers {}; the options {}",
                LOG_DRIVERS.join(", "),
                LOG_OPTIONS.join(", ")
            ),
            Self::MemswapLimit | Self::OomScoreAdj => "0 or more".to_owned(),
            Self::NetworkMode => "none".to_owned(),
            Self::Networks => {
                "networks of the deployment: neither `external` nor `name`".to_owned()
            }
            Self::OomKillDisable | Self::Privileged => "false".to_owned(),
            Self::SecurityOpt => SECURITY_OPTIONS[1].to_owned(),
            Self::Sysctls => {
                let all = SYSCTLS
                    .map(|name| format!("{name}{}", if name.ends_with('.') { "*" } else { "" }));
                all.join(", ")
            }
            Self::Tmpfs => "any option but `dev`".to_owned(),
            Self::Ulimits => ULIMITS.join(", "),
            Self::User => {
                "any on Docker; on the process runtime a user other than root, without a group"
                    .to_owned()
            }
            Self::Volume => "volumes of the deployment: no `external`, `name`, `driver_opts`, or \
                `driver` other than local"
                .to_owned(),
        }
    }
}

/// One field that needs role `admin`, as a compose file has it: `privileged: true`. A value that may be a secret is named
/// by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privilege {
    pub field: Field,
    pub value: String,
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field.word(), self.value)
    }
}

/// What was found so far.
#[derive(Default)]
struct Privileges(Vec<Privilege>);

impl Privileges {
    fn add(&mut self, field: Field, value: impl fmt::Display) {
        let value = value.to_string();
        let cut = value.char_indices().nth(MAX_SHOWN).map(|(at, _)| at);
        let value = cut.map_or(value.clone(), |at| format!("{}…", &value[..at]));
        self.0.push(Privilege { field, value });
    }

    fn add_all<T: fmt::Display>(&mut self, field: Field, values: impl IntoIterator<Item = T>) {
        for value in values {
            self.add(field, value);
        }
    }

    /// A word that is not one of these; nothing said is fine.
    fn add_unless(&mut self, field: Field, value: Option<&String>, allowed: &[&str]) {
        self.add_all(field, value.filter(|value| !allowed.contains(&value.as_str())));
    }
}

impl ContainerSpec {
    /// The fields that need role `admin` in a cell whose nodes have these runtimes; empty for what `deploy` may ask for.
    pub fn privileges(&self, runtimes: &[&RuntimeFacts]) -> Vec<Privilege> {
        // Every field by name: a new one does not compile until it is judged here.
        let Self {
            // What runs, how it is told to stop and how it is found well.
            image: _,
            pull: _,
            platform: _,
            entrypoint: _,
            command: _,
            environment: _,
            working_dir: _,
            hostname: _,
            domainname: _,
            labels: _,
            healthcheck: _,
            stop_signal: _,
            stop_grace: _,
            init: _,
            read_only: _,
            tty: _,
            stdin_open: _,
            cap_drop: _,
            // Ports and names: what others have already is refused to every role.
            ports: _,
            expose: _,
            dns: _,
            dns_opt: _,
            dns_search: _,
            extra_hosts: _,
            // Shares of a node, which placement counts and the kernel holds a container to.
            reservations: _,
            limits: _,
            pids_limit: _,
            gpus: _,
            shm_size: _,
            memory_swappiness: _,
            cpu_shares: _,
            cpuset: _,
            // Written by whoever applies it, never by who asks.
            asked_by: _,
            digest: _,
            user: _,
            group_add: _,
            mounts,
            volumes,
            configs,
            secrets,
            networks,
            network_mode,
            gpu_requests,
            privileged,
            cap_add,
            security_opt,
            devices,
            device_cgroup_rules,
            ulimits,
            sysctls,
            oom_score_adj,
            oom_kill_disable,
            memory_swap,
            ipc,
            pid,
            uts,
            userns_mode,
            cgroup,
            cgroup_parent,
            storage_opt,
            runtime,
            logging,
            annotations,
        } = self;
        let mut found = Privileges::default();
        found.add_all(Field::Privileged, privileged.filter(|is_set| *is_set));
        found.add_unless(Field::Pid, pid.as_ref(), &[]);
        found.add_unless(Field::NetworkMode, network_mode.as_ref(), &["none"]);
        found.add_unless(Field::Ipc, ipc.as_ref(), &["none", "private", "shareable"]);
        found.add_unless(Field::Uts, uts.as_ref(), &[]);
        found.add_unless(Field::UsernsMode, userns_mode.as_ref(), &[]);
        found.add_unless(Field::Cgroup, cgroup.as_ref(), &["private"]);
        found.add_unless(Field::CgroupParent, cgroup_parent.as_ref(), &[]);
        found.add_unless(Field::Runtime, runtime.as_ref(), &[]);
        found.add_all(Field::CapAdd, cap_add.iter().filter(|name| !is_usual(name)));
        let is_strict = |option: &&String| SECURITY_OPTIONS.contains(&option.as_str());
        found.add_all(Field::SecurityOpt, security_opt.iter().filter(|it| !is_strict(it)));
        found.add_all(Field::Devices, devices.iter().map(|device| &device.source));
        found.add_all(Field::DeviceCgroupRules, device_cgroup_rules);
        let is_own_limit = |name: &&String| ULIMITS.contains(&name.as_str());
        found.add_all(Field::Ulimits, ulimits.keys().filter(|name| !is_own_limit(name)));
        found.add_all(Field::Sysctls, sysctls.keys().filter(|name| !is_own_setting(name)));
        found.add_all(Field::OomKillDisable, oom_kill_disable.filter(|is_set| *is_set));
        found.add_all(Field::OomScoreAdj, oom_score_adj.filter(|score| *score < 0));
        found.add_all(Field::MemswapLimit, memory_swap.filter(|limit| *limit < 0));
        found.add_all(Field::StorageOpt, storage_opt.keys());
        found.add_all(Field::Annotations, annotations.keys());
        requests(&mut found, gpu_requests);
        files(&mut found, Field::Configs, configs);
        files(&mut found, Field::Secrets, secrets);
        attached(&mut found, networks);
        logged(&mut found, logging.as_ref());
        declared(&mut found, volumes);
        mounted(&mut found, mounts, volumes, runtimes);
        if !runtimes.is_empty() && runtimes.iter().all(|runtime| runtime.root_is_host) {
            self.host_user(&mut found);
        }
        found.0
    }

    /// Whether it would run as root of its node, or in a group that somebody chose, where users are the node's own.
    pub(crate) fn wants_host_user(&self) -> bool {
        let mut found = Privileges::default();
        self.host_user(&mut found);
        !found.0.is_empty()
    }

    fn host_user(&self, found: &mut Privileges) {
        let user = self.user.as_deref().unwrap_or_default();
        let (name, group) = user.split_once(':').unwrap_or((user, ""));
        let is_root = name.is_empty() || name == "root" || name.parse::<u32>() == Ok(0);
        if is_root || !group.is_empty() {
            found.add(Field::User, if user.is_empty() { "(not set: root)" } else { user });
        }
        found.add_all(Field::GroupAdd, &self.group_add);
    }

    /// Whether every bind mount lies below one of these, by name. Where symlinks lead shows on the node alone.
    pub fn binds_below(&self, roots: &BTreeSet<String>) -> bool {
        self.mounts.iter().all(|mount| match &mount.source {
            MountSource::Bind { path, .. } => roots.iter().any(|root| is_below(path, root)),
            MountSource::Volume { .. } | MountSource::Anonymous | MountSource::Tmpfs { .. } => true,
        })
    }
}

/// Whether the path is the directory or in it. A path with `..` is nowhere: what it means depends on symlinks.
pub fn is_below(path: &str, directory: &str) -> bool {
    let path = Path::new(path);
    let is_plain =
        path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    is_plain && path.is_absolute() && path.starts_with(directory)
}

fn is_usual(capability: &str) -> bool {
    let name = capability.to_ascii_uppercase();
    CAPABILITIES.contains(&name.strip_prefix("CAP_").unwrap_or(&name))
}

fn is_own_setting(name: &str) -> bool {
    SYSCTLS.iter().any(|own| if own.ends_with('.') { name.starts_with(own) } else { name == *own })
}

fn requests(found: &mut Privileges, requests: &[GpuRequest]) {
    for request in requests {
        let GpuRequest { driver, count: _, device_ids: _, capabilities: _, options } = request;
        found.add_unless(Field::Gpus, driver.as_ref(), &["", "nvidia"]);
        found.add_all(Field::Gpus, options.keys());
    }
}

fn files(found: &mut Privileges, field: Field, files: &[FileMount]) {
    for file in files {
        let FileMount { name, target: _, content: _, uid: _, gid: _, mode } = file;
        let lends = mode.filter(|mode| mode & SET_ID_BITS != 0);
        found.add_all(field, lends.map(|mode| format!("{name} with mode {mode:04o}")));
    }
}

/// A network by its name on the engine is anybody's; one called `host` is the node's.
fn attached(found: &mut Privileges, networks: &BTreeMap<String, NetworkAttachment>) {
    for (key, network) in networks {
        let NetworkAttachment {
            name,
            external,
            internal: _,
            aliases: _,
            ipv4_address: _,
            ipv6_address: _,
        } = network;
        let named = name.as_ref().map(|name| format!("{key} with name {name}"));
        found.add_all(
            Field::Networks,
            named.or_else(|| external.then(|| format!("{key}, external"))),
        );
    }
}

fn logged(found: &mut Privileges, logging: Option<&Logging>) {
    let Some(Logging { driver, options }) = logging else { return };
    found.add_unless(Field::Logging, driver.as_ref(), &LOG_DRIVERS);
    let is_plain = |key: &&String| LOG_OPTIONS.contains(&key.as_str());
    let other = options.keys().filter(|key| !is_plain(key));
    found.add_all(Field::Logging, other.map(|key| format!("options.{key}")));
}

/// A volume by its name on the engine is anybody's, and with `driver_opts` it can be a directory of the node.
fn declared(found: &mut Privileges, volumes: &BTreeMap<String, VolumeSpec>) {
    for (key, volume) in volumes {
        let VolumeSpec { name, external, driver, driver_opts, labels: _, scope: _ } = volume;
        let mut add = |what: String| found.add(Field::Volume, format!("{key} with {what}"));
        if let Some(name) = name {
            add(format!("name {name}"));
        }
        if *external {
            add("external".to_owned());
        }
        if let Some(driver) = driver.as_ref().filter(|driver| *driver != "local") {
            add(format!("driver {driver}"));
        }
        for option in driver_opts.keys() {
            add(format!("driver_opts.{option}"));
        }
    }
}

fn mounted(
    found: &mut Privileges,
    mounts: &[Mount],
    volumes: &BTreeMap<String, VolumeSpec>,
    runtimes: &[&RuntimeFacts],
) {
    for Mount { source, target, read_only: _, consistency: _ } in mounts {
        match source {
            MountSource::Bind { path, propagation, create_host_path: _, selinux } => {
                let roots = runtimes.iter().flat_map(|runtime| &runtime.bind_roots);
                if !roots.into_iter().any(|root| is_below(path, root)) {
                    found.add(Field::BindMount, format!("{path}:{target}"));
                }
                for option in propagation.iter().chain(selinux) {
                    found.add(Field::BindMount, format!("{path}:{target}:{option}"));
                }
            }
            MountSource::Volume { name, subpath: _, nocopy: _ } => {
                // One that nothing declares is the deployment's own; the engine would take a path for a bind mount.
                if !volumes.contains_key(name) && name.contains('/') {
                    found.add(Field::Volume, name);
                }
            }
            MountSource::Anonymous => {}
            MountSource::Tmpfs { size: _, mode: _, options } => {
                found.add_all(Field::Tmpfs, options.iter().filter(|option| *option == "dev"));
            }
        }
    }
}
