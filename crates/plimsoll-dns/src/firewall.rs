//! The kernel's rules for virtual IPs: they are addresses of this host, connections to them are redirected to the daemon,
//! and they cannot be reached from other networks. The rules are in chains of our own, each rewritten as a whole; in the
//! chains of others only the jumps to ours are touched.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_runtime::Block;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The rules of one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkRules {
    pub(crate) interface: String,
    pub(crate) block: Block,
    /// The port that TCP connections are redirected to.
    pub(crate) tcp_port: u16,
    /// The addresses of resolvers, and the port that queries to each are redirected to.
    pub(crate) resolvers: [(Ipv4Addr, u16); 2],
    /// Whether the engine asks them too, from this host.
    pub(crate) is_asked_from_host: bool,
}

/// The firewall rules of one daemon.
#[derive(Debug)]
pub(crate) struct Firewall {
    chain: String,
    /// Whether the built-in chains jump to ours, as far as is known.
    is_hooked: AtomicBool,
    /// Our chain in each table as the kernel listed it when it was last written: it spells rules in its own way.
    written: Mutex<BTreeMap<&'static str, String>>,
}

/// What is programmed into the kernel for virtual IPs, and can go missing there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelPart {
    /// The route that makes the virtual IPs of a network addresses of this host.
    Route,
    /// A rule of our own chains.
    Rule,
    /// The jump from a chain of the host to ours.
    Jump,
    /// A resolver or the listener for redirected connections.
    Listener,
}

impl KernelPart {
    pub const ALL: [Self; 4] = [Self::Route, Self::Rule, Self::Jump, Self::Listener];

    pub fn word(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Rule => "rule",
            Self::Jump => "jump",
            Self::Listener => "listener",
        }
    }
}

/// The built-in chains that jump to ours, by table.
const HOOKS: [(&str, &str); 3] =
    [("nat", "PREROUTING"), ("raw", "PREROUTING"), ("filter", "INPUT")];

/// How the routes are listed that make addresses this host's own.
const LOCAL_ROUTES: [&str; 5] = ["-4", "route", "show", "table", "local"];

impl Firewall {
    pub(crate) fn new(owner: &str) -> Self {
        let chain = format!("PLIMSOLL-{:08x}", digest(owner));
        Self { chain, is_hooked: AtomicBool::new(false), written: Mutex::default() }
    }

    #[cfg(test)]
    pub(crate) fn chain(&self) -> &str {
        &self.chain
    }

    /// Whether this host supports these rules; if not, why, as a sentence.
    pub(crate) async fn check(&self) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("redirecting connections of containers needs root".to_owned());
        }
        run("ip", &LOCAL_ROUTES, None).await?;
        for (table, hook) in HOOKS {
            run("iptables", &["-w", "-t", table, "-S", hook], None).await?;
        }
        Ok(())
    }

    /// Replaces this daemon's rules by those of these networks.
    pub(crate) async fn apply(
        &self,
        networks: impl Iterator<Item = &NetworkRules>,
    ) -> Result<(), String> {
        let networks: Vec<&NetworkRules> = networks.collect();
        run("iptables-restore", &["-w", "--noflush"], Some(&self.rules(&networks))).await?;
        if !networks.is_empty() && self.is_hooked.load(Relaxed) {
            return self.remember().await;
        }
        for (table, hook) in HOOKS {
            let jump = |action| ["-w", "-t", table, action, hook, "-j", self.chain.as_str()];
            let is_there = run("iptables", &jump("-C"), None).await.is_ok();
            if networks.is_empty() {
                if is_there {
                    run("iptables", &jump("-D"), None).await?;
                }
                run("iptables", &["-w", "-t", table, "-X", &self.chain], None).await?;
            } else if !is_there {
                // First, because the rules of container engines redirect what is sent to any address of this host.
                run("iptables", &jump("-I"), None).await?;
            }
        }
        self.is_hooked.store(!networks.is_empty(), Relaxed);
        if networks.is_empty() { Ok(()) } else { self.remember().await }
    }

    /// Compares what is in the kernel with what these networks need, and puts back what is missing or different. Says what
    /// was.
    pub(crate) async fn reconcile(
        &self,
        networks: &[&NetworkRules],
    ) -> Result<Vec<KernelPart>, String> {
        let mut repaired = Vec::new();
        let routes = run("ip", &LOCAL_ROUTES, None).await?;
        for rules in networks {
            if !has_route(&routes, rules.block) {
                self.route(rules).await?;
                repaired.push(KernelPart::Route);
            }
        }
        for (table, hook) in HOOKS {
            let jump = ["-w", "-t", table, "-C", hook, "-j", self.chain.as_str()];
            if run("iptables", &jump, None).await.is_err() {
                repaired.push(KernelPart::Jump);
            }
            let listed = run("iptables", &["-w", "-t", table, "-S", &self.chain], None).await;
            let is_kept = listed.is_ok_and(|it| self.written().get(table) == Some(&it));
            if !is_kept {
                repaired.push(KernelPart::Rule);
            }
        }
        if repaired.iter().any(|part| *part != KernelPart::Route) {
            self.is_hooked.store(false, Relaxed);
            self.apply(networks.iter().copied()).await?;
        }
        Ok(repaired)
    }

    /// Notes how the kernel lists our chains.
    async fn remember(&self) -> Result<(), String> {
        for (table, _) in HOOKS {
            let listed = run("iptables", &["-w", "-t", table, "-S", &self.chain], None).await?;
            self.written().insert(table, listed);
        }
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the virtual IPs local addresses, so that this host answers ARP for them.
    pub(crate) async fn route(&self, rules: &NetworkRules) -> Result<(), String> {
        let block = rules.block.to_string();
        run("ip", &["route", "replace", "local", &block, "dev", "lo"], None).await.map(drop)
    }

    pub(crate) async fn unroute(&self, rules: &NetworkRules) {
        let block = rules.block.to_string();
        let _ = run("ip", &["route", "del", "local", &block, "dev", "lo"], None).await;
    }

    /// In the format of `iptables-save`, where naming a chain flushes it.
    fn rules(&self, networks: &[&NetworkRules]) -> String {
        let chain = &self.chain;
        let (mut nat, mut raw, mut filter) = (String::new(), String::new(), String::new());
        for NetworkRules { interface, block, tcp_port, resolvers, is_asked_from_host } in networks {
            for (address, port) in resolvers {
                if *is_asked_from_host {
                    // What this host sends to an address of its own comes from that address, and the answer goes there.
                    let _ = writeln!(
                        raw,
                        "-A {chain} -i lo -s {address}/32 -d {address}/32 -p udp -j ACCEPT"
                    );
                }
                let _ = writeln!(
                    nat,
                    "-A {chain} -i {interface} -d {address}/32 -p udp --dport 53 -j REDIRECT --to-ports {port}"
                );
                let _ =
                    writeln!(filter, "-A {chain} -i {interface} -p udp --dport {port} -j ACCEPT");
            }
            let _ = writeln!(
                nat,
                "-A {chain} -i {interface} -d {block} -p tcp -j REDIRECT --to-ports {tcp_port}"
            );
            let _ = writeln!(raw, "-A {chain} ! -i {interface} -d {block} -j DROP");
            let _ =
                writeln!(filter, "-A {chain} -i {interface} -p tcp --dport {tcp_port} -j ACCEPT");
            let _ = writeln!(filter, "-A {chain} -i {interface} -d {block} -p udp -j ACCEPT");
        }
        let table = |name, rules| format!("*{name}\n:{chain} - [0:0]\n{rules}COMMIT\n");
        [table("nat", nat), table("raw", raw), table("filter", filter)].concat()
    }
}

/// A short hash of the owner's name (FNV-1a): names of chains are limited to 28 bytes.
fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Whether the kernel's list of local routes has that block. A whole block is listed with its length, an address without.
fn has_route(listed: &str, block: Block) -> bool {
    let block = block.to_string();
    let block = block.strip_suffix("/32").unwrap_or(&block);
    let mut routes = listed.lines().map(str::split_whitespace);
    routes.any(|mut words| words.next() == Some("local") && words.next() == Some(block))
}

/// Runs a program, waits for it and returns what it printed. An error is a sentence.
async fn run(program: &str, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
    let said = |what: &str| format!("{program} {what}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| said(&format!("cannot be run: {error}")))?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        let written = pipe.write_all(input.as_bytes()).await;
        written.map_err(|error| said(&format!("does not read its input: {error}")))?;
    }
    let ended = child.wait_with_output().await;
    let ended = ended.map_err(|error| said(&format!("cannot be waited for: {error}")))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&ended.stderr);
    Err(said(&format!("failed: {}", error.trim().lines().next().unwrap_or("no error message"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_redirect_traffic_of_the_network_and_drop_traffic_from_others() {
        let firewall = Firewall::new("harbour/ash");
        let network = NetworkRules {
            interface: "br-1".to_owned(),
            block: "10.208.1.0/24".parse().unwrap(),
            tcp_port: 4_000,
            resolvers: [([10, 208, 1, 1].into(), 4_001), ([10, 208, 1, 2].into(), 4_002)],
            is_asked_from_host: false,
        };
        let chain = &firewall.chain;
        assert!(chain.len() < 28, "{chain} is too long a name for a chain");
        let rules = firewall.rules(&[&network]);
        for line in [
            "-i br-1 -d 10.208.1.0/24 -p tcp -j REDIRECT --to-ports 4000",
            "-i br-1 -d 10.208.1.1/32 -p udp --dport 53 -j REDIRECT --to-ports 4001",
            "-i br-1 -d 10.208.1.2/32 -p udp --dport 53 -j REDIRECT --to-ports 4002",
            "! -i br-1 -d 10.208.1.0/24 -j DROP",
            "-i br-1 -p tcp --dport 4000 -j ACCEPT",
        ] {
            assert!(rules.contains(&format!("-A {chain} {line}\n")), "{line} is not in\n{rules}");
        }
        assert_ne!(
            Firewall::new("harbour/birch").chain,
            *chain,
            "two daemons have rules of their own"
        );
    }

    #[test]
    fn a_route_is_found_among_those_that_the_kernel_lists() {
        let listed = "local 10.208.1.0/24 dev lo scope host\nbroadcast 10.208.9.0/24 dev lo\nlocal 127.0.0.1 dev lo\n";
        for (block, is_there) in [
            ("10.208.1.0/24", true),
            ("10.208.9.0/24", false),
            ("10.208.1.0/25", false),
            ("127.0.0.1/32", true),
        ] {
            assert_eq!(has_route(listed, block.parse().unwrap()), is_there, "{block}");
        }
    }
}
