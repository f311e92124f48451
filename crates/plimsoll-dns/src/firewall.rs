//! The kernel's rules for virtual IPs: they are addresses of this host, connections to them are redirected to the daemon,
//! and they cannot be reached from other networks. The rules are in chains of our own, each rewritten as a whole; in the
//! chains of others only the jumps to ours are touched.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
}

/// The firewall rules of one daemon.
#[derive(Debug)]
pub(crate) struct Firewall {
    chain: String,
    /// Whether the built-in chains jump to ours, as far as is known.
    is_hooked: AtomicBool,
}

/// The built-in chains that jump to ours, by table.
const HOOKS: [(&str, &str); 3] =
    [("nat", "PREROUTING"), ("raw", "PREROUTING"), ("filter", "INPUT")];

impl Firewall {
    pub(crate) fn new(owner: &str) -> Self {
        let chain = format!("PLIMSOLL-{:08x}", digest(owner));
        Self { chain, is_hooked: AtomicBool::new(false) }
    }

    /// Whether this host supports these rules; if not, why, as a sentence.
    pub(crate) async fn check(&self) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("redirecting connections of containers needs root".to_owned());
        }
        run("ip", &["route", "show", "table", "local"], None).await?;
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
            return Ok(());
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
        Ok(())
    }

    /// Applies the rules again if something else has flushed them.
    pub(crate) async fn restore_if_flushed(
        &self,
        networks: impl Iterator<Item = &NetworkRules>,
    ) -> Result<(), String> {
        let networks: Vec<&NetworkRules> = networks.collect();
        let mut is_kept = true;
        for (table, hook) in HOOKS {
            let jump = ["-w", "-t", table, "-C", hook, "-j", self.chain.as_str()];
            is_kept &= run("iptables", &jump, None).await.is_ok();
        }
        if is_kept {
            return Ok(());
        }
        self.is_hooked.store(false, Relaxed);
        for rules in &networks {
            self.route(rules).await?;
        }
        self.apply(networks.into_iter()).await
    }

    /// Makes the virtual IPs local addresses, so that this host answers ARP for them.
    pub(crate) async fn route(&self, rules: &NetworkRules) -> Result<(), String> {
        let block = rules.block.to_string();
        run("ip", &["route", "replace", "local", &block, "dev", "lo"], None).await
    }

    pub(crate) async fn unroute(&self, rules: &NetworkRules) {
        let block = rules.block.to_string();
        let _ = run("ip", &["route", "del", "local", &block, "dev", "lo"], None).await;
    }

    /// In the format of `iptables-save`, where naming a chain flushes it.
    fn rules(&self, networks: &[&NetworkRules]) -> String {
        let chain = &self.chain;
        let (mut nat, mut raw, mut filter) = (String::new(), String::new(), String::new());
        for NetworkRules { interface, block, tcp_port, resolvers } in networks {
            for (address, port) in resolvers {
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

/// Runs a program and waits for it. An error is a sentence.
async fn run(program: &str, arguments: &[&str], input: Option<&str>) -> Result<(), String> {
    let said = |what: &str| format!("{program} {what}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null())
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
        return Ok(());
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
}
