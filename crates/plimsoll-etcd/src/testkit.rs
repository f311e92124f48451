//! Real etcd clusters for tests of this and other crates, started by `lab/etcd`. Where `PLIMSOLL_LAB_ETCD` does not name
//! that script there are none: tests that need one say so and pass; `lab/etcd with` and `./test` see to it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::EtcdConfig;

/// A cluster that goes when the test ends.
#[derive(Debug)]
pub struct EtcdLab {
    script: String,
    name: String,
    pub endpoints: Vec<String>,
}

impl EtcdLab {
    /// A cluster of so many members, each started with the flags.
    pub fn start(members: usize, flags: &[&str]) -> Option<Self> {
        Self::start_in(None, members, flags)
    }

    /// A network for a cluster to come, which puts its members at its first addresses.
    pub fn net() -> Option<String> {
        Some(run(&script()?, &["net"], None))
    }

    pub fn start_in(net: Option<&str>, members: usize, flags: &[&str]) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let script = script()?;
        let name = format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let count = members.to_string();
        let args = ["start", &name, &count].into_iter().chain(flags.iter().copied());
        let endpoints = run(&script, &args.collect::<Vec<_>>(), net);
        let endpoints = endpoints.split(',').map(str::to_owned).collect();
        Some(Self { script, name, endpoints })
    }

    pub fn config(&self) -> EtcdConfig {
        EtcdConfig::open(self.endpoints.clone())
    }

    /// Members are counted from one.
    pub fn kill(&self, member: usize) {
        self.tell("kill", member);
    }

    pub fn revive(&self, member: usize) {
        self.tell("revive", member);
    }

    pub fn pause(&self, member: usize) {
        self.tell("pause", member);
    }

    pub fn resume(&self, member: usize) {
        self.tell("resume", member);
    }

    /// Has the only member start again on an empty disk.
    pub fn wipe(&self) {
        self.tell("wipe", 1);
    }

    /// Writes what there is to a file.
    pub fn save(&self, file: &Path) {
        self.ctl(&["snapshot", "save", &file.display().to_string()]);
    }

    /// Has the only member start again with what was saved to a file.
    pub fn restore(&self, file: &Path) {
        run(&self.script, &["restore", &self.name, "1", &file.display().to_string()], None);
    }

    fn tell(&self, verb: &str, member: usize) {
        run(&self.script, &[verb, &self.name, &member.to_string()], None);
    }

    /// Runs etcd's own client against the cluster, and returns what it printed.
    pub fn ctl(&self, args: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.args(["--endpoints", &self.endpoints.join(",")]).args(args);
        let output = command.env("ETCDCTL_API", "3").output().expect("etcdctl runs");
        assert!(
            output.status.success(),
            "etcdctl {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for EtcdLab {
    fn drop(&mut self) {
        // By the status alone: a test that failed must not panic twice.
        Command::new(&self.script).args(["stop", &self.name]).status().ok();
    }
}

fn script() -> Option<String> {
    let script = std::env::var("PLIMSOLL_LAB_ETCD").ok().filter(|script| !script.is_empty());
    if script.is_none() {
        eprintln!("PLIMSOLL_LAB_ETCD names no etcd; left out");
    }
    script
}

fn run(script: &str, args: &[&str], net: Option<&str>) -> String {
    let mut command = Command::new(script);
    command.args(args);
    if let Some(net) = net {
        command.env("PLIMSOLL_LAB_NET", net);
    }
    let output = command.output().expect("the lab's script runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lab/etcd {args:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
