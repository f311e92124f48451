//! What the kernel is told: that addresses which stand for services are this host's, that connections to them are led to
//! the daemon, and that nobody from elsewhere reaches them. The rules are in chains of our own, each rewritten as a
//! whole; of others' chains only the jumps to ours are touched.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_runtime::Block;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// What leads from one network to the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) interface: String,
    pub(crate) block: Block,
    /// Where connections are taken.
    pub(crate) streams: u16,
    /// Where questions are.
    pub(crate) resolvers: [(Ipv4Addr, u16); 2],
}

/// See the module's own words.
#[derive(Debug)]
pub(crate) struct Host {
    chain: String,
    /// Whether others' chains lead to ours, as far as is known.
    is_hooked: AtomicBool,
}

/// The chains that lead to ours, by table.
const HOOKS: [(&str, &str); 3] =
    [("nat", "PREROUTING"), ("raw", "PREROUTING"), ("filter", "INPUT")];

impl Host {
    pub(crate) fn new(owner: &str) -> Self {
        let chain = format!("PLIMSOLL-{:08x}", digest(owner));
        Self { chain, is_hooked: AtomicBool::new(false) }
    }

    /// Whether this host can do what it will be told; if not, why, as a sentence.
    pub(crate) async fn check(&self) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root may lead connections of containers elsewhere".to_owned());
        }
        run("ip", &["route", "show", "table", "local"], None).await?;
        for (table, hook) in HOOKS {
            run("iptables", &["-w", "-t", table, "-S", hook], None).await?;
        }
        Ok(())
    }

    /// Has the kernel do this and nothing else of ours.
    pub(crate) async fn tell(&self, entries: impl Iterator<Item = &Entry>) -> Result<(), String> {
        let entries: Vec<&Entry> = entries.collect();
        run("iptables-restore", &["-w", "--noflush"], Some(&self.rules(&entries))).await?;
        if !entries.is_empty() && self.is_hooked.load(Relaxed) {
            return Ok(());
        }
        for (table, hook) in HOOKS {
            let jump = |action| ["-w", "-t", table, action, hook, "-j", self.chain.as_str()];
            let is_there = run("iptables", &jump("-C"), None).await.is_ok();
            if entries.is_empty() {
                if is_there {
                    run("iptables", &jump("-D"), None).await?;
                }
                run("iptables", &["-w", "-t", table, "-X", &self.chain], None).await?;
            } else if !is_there {
                // Before those of engines, which lead what is sent to any address of this host elsewhere.
                run("iptables", &jump("-I"), None).await?;
            }
        }
        self.is_hooked.store(!entries.is_empty(), Relaxed);
        Ok(())
    }

    /// Tells it again if it has forgotten.
    pub(crate) async fn tell_again(
        &self,
        entries: impl Iterator<Item = &Entry>,
    ) -> Result<(), String> {
        let entries: Vec<&Entry> = entries.collect();
        let mut is_kept = true;
        for (table, hook) in HOOKS {
            let jump = ["-w", "-t", table, "-C", hook, "-j", self.chain.as_str()];
            is_kept &= run("iptables", &jump, None).await.is_ok();
        }
        if is_kept {
            return Ok(());
        }
        self.is_hooked.store(false, Relaxed);
        for entry in &entries {
            self.route(entry).await?;
        }
        self.tell(entries.into_iter()).await
    }

    /// Makes the addresses this host's, so that it answers when a container looks for them.
    pub(crate) async fn route(&self, entry: &Entry) -> Result<(), String> {
        let block = entry.block.to_string();
        run("ip", &["route", "replace", "local", &block, "dev", "lo"], None).await
    }

    pub(crate) async fn unroute(&self, entry: &Entry) {
        let block = entry.block.to_string();
        let _ = run("ip", &["route", "del", "local", &block, "dev", "lo"], None).await;
    }

    /// In the form of `iptables-save`. To name a chain is to empty it.
    fn rules(&self, entries: &[&Entry]) -> String {
        let chain = &self.chain;
        let (mut nat, mut raw, mut filter) = (String::new(), String::new(), String::new());
        for Entry { interface, block, streams, resolvers } in entries {
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
                "-A {chain} -i {interface} -d {block} -p tcp -j REDIRECT --to-ports {streams}"
            );
            let _ = writeln!(raw, "-A {chain} ! -i {interface} -d {block} -j DROP");
            let _ =
                writeln!(filter, "-A {chain} -i {interface} -p tcp --dport {streams} -j ACCEPT");
            let _ = writeln!(filter, "-A {chain} -i {interface} -d {block} -p udp -j ACCEPT");
        }
        let table = |name, rules| format!("*{name}\n:{chain} - [0:0]\n{rules}COMMIT\n");
        [table("nat", nat), table("raw", raw), table("filter", filter)].concat()
    }
}

/// A short name for a long one (FNV-1a).
fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Runs a program to its end. An error is a sentence.
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
        written.map_err(|error| said(&format!("does not listen: {error}")))?;
    }
    let ended = child.wait_with_output().await;
    let ended = ended.map_err(|error| said(&format!("was lost: {error}")))?;
    if ended.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&ended.stderr);
    Err(said(&format!("says: {}", error.trim().lines().next().unwrap_or("nothing"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_lead_what_comes_from_the_network_and_drop_what_comes_from_elsewhere() {
        let host = Host::new("harbour/ash");
        let entry = Entry {
            interface: "br-1".to_owned(),
            block: "10.208.1.0/24".parse().unwrap(),
            streams: 4_000,
            resolvers: [([10, 208, 1, 1].into(), 4_001), ([10, 208, 1, 2].into(), 4_002)],
        };
        let chain = &host.chain;
        assert!(chain.len() < 28, "{chain} is too long a name for a chain");
        let rules = host.rules(&[&entry]);
        for line in [
            "-i br-1 -d 10.208.1.0/24 -p tcp -j REDIRECT --to-ports 4000",
            "-i br-1 -d 10.208.1.1/32 -p udp --dport 53 -j REDIRECT --to-ports 4001",
            "-i br-1 -d 10.208.1.2/32 -p udp --dport 53 -j REDIRECT --to-ports 4002",
            "! -i br-1 -d 10.208.1.0/24 -j DROP",
            "-i br-1 -p tcp --dport 4000 -j ACCEPT",
        ] {
            assert!(rules.contains(&format!("-A {chain} {line}\n")), "{line} is not in\n{rules}");
        }
        assert_ne!(Host::new("harbour/birch").chain, *chain, "two daemons have rules of their own");
    }
}
