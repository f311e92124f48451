//! Hosts on one machine, each a set of namespaces with an address of its own, and between them a wire that can be cut,
//! slowed and made to lose packets; and a checker that says whether what clients saw could have happened.
//!
//! For tests and for people who try things out: nothing that is shipped depends on it. It takes root and `/dev/net/tun`;
//! [`missing`] says what is not there. Everything it makes goes when the process that made it does, however it ends.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

mod counters;
mod engine;
mod error;
pub mod history;
mod host;
pub mod load;
mod process;
mod rng;
mod rule;
mod running_host;
mod switch;
pub mod watch;

pub use counters::CpuCounters;
pub use engine::LabEngine;
pub use error::Error;
pub use host::{Host, within};
pub use process::Process;
pub use rng::LabRng;
pub use rule::LinkRule;

use running_host::Processes;
use switch::Switch;

/// What hosts are called, in order; so many there can be.
pub const NAMES: [&str; 16] = [
    "ash", "birch", "cedar", "elm", "fir", "hazel", "juniper", "larch", "maple", "oak", "pine",
    "rowan", "spruce", "teak", "willow", "yew",
];

/// Some hosts and the wire between them. Hosts are numbered from 0 in the order of [`NAMES`].
#[derive(Debug)]
pub struct Lab {
    // Before the hosts: the wire ends while both its ends are there.
    switch: Switch,
    hosts: Vec<Host>,
}

impl Lab {
    /// So many hosts, switched on, with a sound wire from each to each. What the wire loses is drawn from the seed.
    pub fn new(count: usize, seed: u64) -> Result<Self, Error> {
        Self::with(count, seed, Processes::Own)
    }

    /// The same, whose processes see each other and those of engines, as on a host that runs both. A power cut ends what was
    /// started on such a host and none of what that started.
    pub fn seeing_processes(count: usize, seed: u64) -> Result<Self, Error> {
        Self::with(count, seed, Processes::Shared)
    }

    fn with(count: usize, seed: u64, processes: Processes) -> Result<Self, Error> {
        let names = NAMES.get(..count).ok_or(Error::TooMany { count, max: NAMES.len() })?;
        let mut hosts = Vec::with_capacity(count);
        let mut devices = Vec::with_capacity(count);
        for (at, name) in names.iter().enumerate() {
            let (host, device) = Host::new(name, address(at), processes)?;
            hosts.push(host);
            devices.push(device);
        }
        Ok(Self { switch: Switch::start(devices, seed)?, hosts })
    }

    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub fn host(&self, at: usize) -> &Host {
        &self.hosts[at]
    }

    /// The number of the host of this name.
    pub fn find(&self, name: &str) -> Result<usize, Error> {
        let found = self.hosts.iter().position(|host| host.name() == name);
        found.ok_or_else(|| Error::NoSuchHost {
            name: name.to_owned(),
            known: self.hosts.iter().map(Host::name).collect::<Vec<_>>().join(", "),
        })
    }

    /// What happens to packets from one host to another.
    pub fn rule(&self, from: usize, to: usize) -> LinkRule {
        self.switch.rules().get(from, to)
    }

    pub fn set_rule(&self, from: usize, to: usize, rule: LinkRule) {
        self.switch.rules().set(from, to, rule);
    }

    /// Nothing passes between the two any more.
    pub fn cut(&self, a: usize, b: usize) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Nothing passes from the one to the other any more; the way back is left as it is.
    pub fn cut_one_way(&self, from: usize, to: usize) {
        self.change(from, to, |rule| rule.is_cut = true);
    }

    /// Cuts the host from all others.
    pub fn isolate(&self, at: usize) {
        self.others(at).for_each(|other| self.cut(at, other));
    }

    /// Delays what passes between the two, by so much each way.
    pub fn delay(&self, a: usize, b: usize, by: Duration) {
        self.change(a, b, |rule| rule.delay = by);
        self.change(b, a, |rule| rule.delay = by);
    }

    /// Loses so many of a hundred packets between the two, each way.
    pub fn lose(&self, a: usize, b: usize, percent: u8) {
        self.change(a, b, |rule| rule.loss_percent = percent);
        self.change(b, a, |rule| rule.loss_percent = percent);
    }

    /// Makes the wire between the two sound again.
    pub fn heal(&self, a: usize, b: usize) {
        self.set_rule(a, b, LinkRule::default());
        self.set_rule(b, a, LinkRule::default());
    }

    /// Makes every wire sound again.
    pub fn heal_all(&self) {
        for at in 0..self.hosts.len() {
            self.others(at).for_each(|other| self.heal(at, other));
        }
    }

    fn others(&self, at: usize) -> impl Iterator<Item = usize> {
        (0..self.hosts.len()).filter(move |other| *other != at)
    }

    fn change(&self, from: usize, to: usize, change: impl FnOnce(&mut LinkRule)) {
        let mut rule = self.rule(from, to);
        change(&mut rule);
        self.set_rule(from, to, rule);
    }
}

/// The address of a host. Every lab has the same: they are in networks of their own.
pub fn address(at: usize) -> Ipv4Addr {
    let last = u8::try_from(at + 1).expect("there are fewer hosts than addresses");
    Ipv4Addr::new(10, 77, 0, last)
}

/// What keeps this machine from having hosts; none: nothing.
pub fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root can make network namespaces".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun".to_owned());
    }
    let tools = ["ip", "mount", "setpriv", "nsenter"];
    let lacking: Vec<&str> = tools.into_iter().filter(|tool| !is_installed(tool)).collect();
    (!lacking.is_empty()).then(|| format!("not installed: {}", lacking.join(", ")))
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(tool).exists())
}

impl fmt::Display for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for host in &self.hosts {
            writeln!(f, "{:<10} {}", host.name(), host.address())?;
        }
        Ok(())
    }
}
