//! What follows from the facts: a finding each, with what to do about it.

use std::time::Duration;

use plimsoll_api::view::Time;
use plimsoll_model::{Bytes, Millis, Timestamp};
use plimsoll_peer::pki::BACKDATE;
use serde::Serialize;

use super::facts::{
    AgentFact, BackFact, CertificateFact, ClockFact, DaemonFact, EngineFact, Facts, FileLimit,
    IptablesFact, PeerFact, PortFact, PortState, Space,
};
use crate::age::until;

/// Below this the log, a snapshot and a pulled image may not fit, and the daemon ends when it cannot write.
const LEAST_SPACE: u64 = 1 << 30;

/// From here on there is time to act before it runs out.
const SPARE_SHARE: u64 = 10;

/// What the daemon itself opens, with a node and a few clients.
const LEAST_FILES: u64 = 1_024;

/// A leader holds one for each node, and a router two for each connection.
const MANY_FILES: u64 = 16_384;

/// Times of different nodes stand side by side in logs and audit; beyond this their order misleads.
const CLOCK_SKEW: Millis = Millis(2_000);

/// Servers with a disk this slow take longer than a second to replace a leader.
const SLOW_ELECTION: Duration = Duration::from_secs(1);

/// The longest a server waits, however slow its disk: above, heartbeats come too late by themselves.
const BROKEN_DISK: Duration = Duration::from_secs(1);

/// Node certificates are renewed long before; with less left something is wrong.
const SOON: Millis = Millis::minutes(24 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckResult {
    Ok,
    Warn,
    Fail,
}

impl CheckResult {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) result: CheckResult,
    pub(crate) found: String,
    /// What to do; none where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

fn ok(check: &'static str, found: impl Into<String>) -> Finding {
    Finding { check, result: CheckResult::Ok, found: found.into(), advice: None }
}

fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    let advice = Some(advice.into());
    Finding { check, result: CheckResult::Warn, found: found.into(), advice }
}

fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { result: CheckResult::Fail, ..warn(check, found, advice) }
}

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings =
        vec![daemon(&facts.daemon), engine(&facts.engine), iptables(&facts.iptables)];
    findings.extend(facts.ports.iter().map(port));
    findings.push(disk(&facts.disk));
    findings.push(space(&facts.space));
    findings.push(files(facts.files));
    findings.extend(
        facts.no_identity.as_ref().map(|why| {
            warn("peers", why.clone(), "run it as the daemon's user, on the node itself")
        }),
    );
    if facts.peers.is_empty() && facts.no_identity.is_none() {
        findings.push(ok("peers", "there is no other server"));
    }
    for peer in &facts.peers {
        findings.push(reach(peer));
        findings.extend(peer.clock.map(|found| clock(&peer.node, found)));
    }
    findings.extend(facts.agents.iter().map(|found| agent(found, facts.now)));
    findings.extend(facts.certificates.iter().map(|found| certificate(found, facts.now)));
    findings
}

fn daemon(fact: &DaemonFact) -> Finding {
    match fact {
        DaemonFact::Down { socket } => warn(
            "daemon",
            format!("no daemon answers at {socket}"),
            "start it with `plimsoll up`, or name its socket with --host",
        ),
        DaemonFact::Unheard { why } => {
            fail("daemon", why.clone(), "look at its log: `journalctl -u plimsoll`")
        }
        DaemonFact::Up { node, role, version, leader, missing } => {
            let leads = leader.as_ref().map_or_else(
                || "no node leads".to_owned(),
                |leader| {
                    if leader == node { "leads".to_owned() } else { format!("{leader} leads") }
                },
            );
            let found = format!("{node} is up ({role}, plimsoll {version}), {leads}");
            if missing.is_empty() && leader.is_some() {
                return ok("daemon", found);
            }
            let why = [&[found][..], &missing[..]].concat().join("; ");
            fail("daemon", why, "`plimsoll cell status` shows which servers answer")
        }
    }
}

fn engine(fact: &EngineFact) -> Finding {
    match fact {
        EngineFact::Process => ok("engine", "none needed: this node runs processes"),
        EngineFact::Answers { name, version, api } => {
            let api = api.as_ref().map(|api| format!(", API {api}")).unwrap_or_default();
            ok("engine", format!("{name} {version}{api}"))
        }
        EngineFact::Silent { socket, why } => fail(
            "engine",
            format!("no engine answers at {socket}: {why}"),
            "start it (`systemctl start docker`), and let this user open its socket",
        ),
        EngineFact::Absent => fail(
            "engine",
            "there is no Docker or Podman socket",
            "install Docker or Podman, name the socket with --docker-socket, or run processes: `plimsoll up --runtime process`",
        ),
    }
}

fn iptables(fact: &IptablesFact) -> Finding {
    match fact {
        IptablesFact::Unneeded => ok("iptables", "none needed: processes share the host's network"),
        IptablesFact::Absent => fail(
            "iptables",
            "there is no iptables: service names of containers cannot be resolved",
            "install it: `apt-get install iptables`",
        ),
        IptablesFact::Works { version } => ok("iptables", version.clone()),
        IptablesFact::Untried { version } => {
            warn("iptables", format!("{version}, not tried"), "run `plimsoll doctor` as root")
        }
        IptablesFact::Fails { why } => fail(
            "iptables",
            format!("iptables does not work: {why}"),
            "load the nat table (`modprobe iptable_nat` or nf_tables), and run the daemon as root",
        ),
    }
}

fn port(fact: &PortFact) -> Finding {
    let PortFact { what, address, state } = fact;
    match state {
        PortState::Free => ok("port", format!("{what} {address} is free")),
        PortState::Held => ok("port", format!("{what} {address} is the daemon's")),
        PortState::Refused { why } => fail(
            "port",
            format!("cannot bind the {what} {address}: {why}"),
            format!("`ss -ltnp` shows who has it; end that, or choose another port for the {what}"),
        ),
    }
}

fn disk(fact: &Result<plimsoll_store::embedded::Timing, String>) -> Finding {
    let timing = match fact {
        Ok(timing) => timing,
        Err(why) => {
            let advice = "let the daemon's user write to it, or choose another with --data-dir";
            return fail(
                "fsync",
                format!("the data directory cannot be written to: {why}"),
                advice,
            );
        }
    };
    let millis = |span: Duration| {
        let tenths = span.as_micros() / 100;
        format!("{}.{} ms", tenths / 10, tenths % 10)
    };
    let found = format!(
        "an entry is safe after {}: heartbeats every {} ms, an election after {} to {} ms without one",
        millis(timing.append),
        timing.heartbeat.as_millis(),
        timing.election.as_millis(),
        2 * timing.election.as_millis()
    );
    let advice = "put --data-dir on a faster disk (local flash), away from other writers";
    if timing.append >= BROKEN_DISK {
        fail("fsync", found, advice)
    } else if timing.election >= SLOW_ELECTION {
        warn("fsync", found, advice)
    } else {
        ok("fsync", found)
    }
}

fn space(fact: &Result<Space, String>) -> Finding {
    let space = match fact {
        Ok(space) => space,
        Err(why) => return fail("space", why.clone(), "name the data directory with --data-dir"),
    };
    let Space { path, free, total, free_files, total_files } = space;
    let found = format!("{} of {} free at {path}", Bytes(*free), Bytes(*total));
    let advice = "delete what is not needed, images first: `docker image prune`";
    if *free < LEAST_SPACE {
        return fail("space", found, advice);
    }
    let is_scarce = |free: u64, total: u64| total > 0 && free < total / SPARE_SHARE;
    if is_scarce(*free, *total) {
        return warn("space", found, advice);
    }
    if is_scarce(*free_files, *total_files) {
        let found = format!("{free_files} of {total_files} files (inodes) left at {path}");
        return warn("space", found, "delete directories with many small files");
    }
    ok("space", found)
}

fn files(fact: FileLimit) -> Finding {
    let whose = if fact.is_daemons { "the daemon" } else { "a daemon started from here" };
    let Some(most) = fact.most else {
        return ok("files", format!("{whose} may have any number of files open"));
    };
    let found = format!("{whose} may have {most} files open");
    let advice =
        "raise it: `LimitNOFILE=1048576` in its unit, or `ulimit -Hn` in the shell that starts it";
    if most < LEAST_FILES {
        fail("files", found, advice)
    } else if most < MANY_FILES {
        warn("files", found, advice)
    } else {
        ok("files", found)
    }
}

fn reach(fact: &PeerFact) -> Finding {
    let PeerFact { node, address, there, back, .. } = fact;
    let there = match there {
        Ok(took) => took,
        Err(why) => {
            return fail(
                "peers",
                format!("cannot reach {node} at {address}: {why}"),
                format!("start it, or let TCP to {address} through the firewalls between"),
            );
        }
    };
    let took = format!("{node} at {address} answers in {} ms", there.as_millis());
    match back {
        BackFact::Reaches => ok("peers", format!("{took}, and reaches this node")),
        BackFact::DoesNot => fail(
            "peers",
            format!("{took}, and does not reach this node"),
            "let TCP to this node's --address through its firewall, and check that the others can route to it",
        ),
        BackFact::Unknown { why } => ok("peers", format!("{took}; the way back: {why}")),
    }
}

fn clock(node: &str, fact: ClockFact) -> Finding {
    let off = fact.ahead_ms.unsigned_abs().saturating_sub(fact.give_ms.unsigned_abs());
    let tenths = fact.ahead_ms.unsigned_abs() / 100;
    let (seconds, tenth) = (tenths / 10, tenths % 10);
    let side = if fact.ahead_ms < 0 { "behind" } else { "ahead of" };
    let found = format!("the clock of {node} is {seconds}.{tenth} s {side} ours");
    let advice = "have both set their time from the network: `timedatectl set-ntp true`";
    // A certificate made there would not be valid here yet, or the other way round.
    if off >= BACKDATE.0 {
        fail("clock", found, advice)
    } else if off >= CLOCK_SKEW.0 {
        warn("clock", found, advice)
    } else {
        ok("clock", format!("the clock of {node} agrees with ours"))
    }
}

fn agent(fact: &AgentFact, now: Timestamp) -> Finding {
    let AgentFact { node, status, last_heard } = fact;
    let heard = last_heard.map_or_else(
        || "no heartbeat yet".to_owned(),
        |at| format!("last heartbeat {} ago", crate::age::age(at, now)),
    );
    let found = format!("agent {node} is {status}, {heard}");
    if status == "ready" {
        return ok("peers", found);
    }
    warn("peers", found, format!("run `plimsoll doctor` on {node}"))
}

fn certificate(fact: &CertificateFact, now: Timestamp) -> Finding {
    let CertificateFact { of, expires_at, is_overdue, trouble } = fact;
    let trouble = trouble.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    let Some(at) = expires_at else {
        let advice = "`plimsoll get certificates` shows when it is tried again";
        return warn("certificate", format!("{of} has none{trouble}"), advice);
    };
    let is_over = |at: &Time, then: Timestamp| at.0 <= then;
    let advice = if of.starts_with("node") {
        "the daemon renews it while it reaches a server: see its log"
    } else {
        "`plimsoll get certificates` shows why it is not renewed"
    };
    if is_over(at, now) {
        return fail("certificate", format!("{of} expired at {at}{trouble}"), advice);
    }
    let found = format!("{of} expires {}{trouble}", until(*at, now));
    if *is_overdue || !trouble.is_empty() || is_over(at, now.plus(SOON)) {
        warn("certificate", found, advice)
    } else {
        ok("certificate", found)
    }
}

#[cfg(test)]
mod tests;
