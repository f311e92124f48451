use plimsoll_store::embedded::Timing;

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn later(minutes: u64) -> Time {
    Time(NOW.plus(Millis::minutes(minutes)))
}

#[track_caller]
fn is(case: &str, found: &Finding, result: CheckResult, says: &str) {
    assert_eq!(found.result, result, "{case}: {found:?}");
    assert!(found.found.contains(says), "{case}: {found:?}");
    assert_eq!(found.advice.is_some(), result != CheckResult::Ok, "{case}: what to do");
}

use CheckResult::{Fail, Ok as Good, Warn};

#[test]
fn a_daemon_is_up_or_not_or_up_and_lacks_something() {
    let up = |leader: Option<&str>, missing: &[&str]| DaemonFact::Up {
        node: "ash".into(),
        role: "voter".into(),
        version: "0.1.0".into(),
        leader: leader.map(str::to_owned),
        missing: missing.iter().map(|it| (*it).to_owned()).collect(),
    };
    let down = DaemonFact::Down { socket: "unix:///run/it.sock".into() };
    let unheard = DaemonFact::Unheard { why: "token needed here".into() };
    for (case, fact, result, says) in [
        ("before `up`", down, Warn, "no daemon answers at unix:///run/it.sock"),
        ("it cannot be asked", unheard, Fail, "token needed"),
        (
            "a follower",
            up(Some("birch"), &[]),
            Good,
            "ash is up (voter, plimsoll 0.1.0), birch leads",
        ),
        ("the leader", up(Some("ash"), &[]), Good, "0.1.0), leads"),
        ("no leader", up(None, &[]), Fail, "no node leads"),
        ("no engine", up(Some("ash"), &["not_ready: docker"]), Fail, "not_ready: docker"),
    ] {
        is(case, &daemon(&fact), result, says);
    }
}

#[test]
fn an_engine_answers_or_is_not_needed() {
    let answers = |api: Option<&str>| EngineFact::Answers {
        name: "docker".into(),
        version: "27.1".into(),
        api: api.map(str::to_owned),
    };
    let silent = EngineFact::Silent { socket: "/s".into(), why: "permission denied".into() };
    for (case, fact, result, says) in [
        ("processes", EngineFact::Process, Good, "none needed"),
        ("it answers", answers(Some("1.46")), Good, "docker 27.1, API 1.46"),
        ("as the daemon knows it", answers(None), Good, "docker 27.1"),
        ("it does not answer", silent, Fail, "no engine answers at /s: permission denied"),
        ("there is none", EngineFact::Absent, Fail, "no Docker or Podman socket"),
    ] {
        is(case, &engine(&fact), result, says);
    }
    let version = || "iptables v1.8.9 (nf_tables)".to_owned();
    for (case, fact, result, says) in [
        ("processes", IptablesFact::Unneeded, Good, "none needed"),
        ("missing", IptablesFact::Absent, Fail, "there is no iptables"),
        ("it works", IptablesFact::Works { version: version() }, Good, "v1.8.9"),
        ("not root", IptablesFact::Untried { version: version() }, Warn, "not tried"),
        ("no module", IptablesFact::Fails { why: "no nat".into() }, Fail, "does not work: no nat"),
    ] {
        is(case, &iptables(&fact), result, says);
    }
}

#[test]
fn a_port_is_free_ours_or_somebody_elses() {
    let of = |state| PortFact { what: "peer port", address: "0.0.0.0:7117".into(), state };
    for (case, state, result, says) in [
        ("free", PortState::Free, Good, "peer port 0.0.0.0:7117 is free"),
        ("the daemon's", PortState::Held, Good, "is the daemon's"),
        (
            "taken",
            PortState::Refused { why: "address in use".into() },
            Fail,
            "cannot bind the peer port 0.0.0.0:7117: address in use",
        ),
    ] {
        is(case, &port(&of(state)), result, says);
    }
}

#[test]
fn a_slow_disk_is_told_with_the_elections_that_follow() {
    for (case, append_ms, result, says) in [
        (
            "flash",
            2,
            Good,
            "safe after 2.0 ms: heartbeats every 50 ms, an election after 250 to 500 ms",
        ),
        ("a busy disk", 40, Good, "an election after 400 to 800 ms"),
        ("elections of a second", 100, Warn, "an election after 1000 to 2000 ms"),
        ("a broken disk", 1_500, Fail, "an election after 10000 to 20000 ms"),
    ] {
        let timing = Timing::from_append(Duration::from_millis(append_ms));
        is(case, &disk(&Ok(timing)), result, says);
    }
    is("read-only", &disk(&Err("read-only file system".into())), Fail, "cannot be written to");
}

#[test]
fn space_and_files_run_out_loudly() {
    const GIB: u64 = 1 << 30;
    let of = |free, total, free_files, total_files| {
        space(&Ok(Space { path: "/data".into(), free, total, free_files, total_files }))
    };
    for (case, found, result, says) in [
        ("plenty", of(50 * GIB, 100 * GIB, 900, 1_000), Good, "50 GiB of 100 GiB free at /data"),
        ("a file system without inodes", of(50 * GIB, 100 * GIB, 0, 0), Good, "50 GiB"),
        ("a tenth", of(9 * GIB, 100 * GIB, 900, 1_000), Warn, "9 GiB of 100 GiB"),
        ("inodes", of(50 * GIB, 100 * GIB, 99, 1_000), Warn, "99 of 1000 files"),
        ("hardly any", of(GIB - 1, 2 * GIB, 900, 1_000), Fail, "of 2 GiB free"),
        ("nobody knows", space(&Err("no such directory".into())), Fail, "no such directory"),
    ] {
        is(case, &found, result, says);
    }
    for (case, most, result) in [
        ("any number", None, Good),
        ("as systemd gives", Some(524_288), Good),
        ("for a small cell", Some(4_096), Warn),
        ("the edge", Some(16_384), Good),
        ("too few", Some(256), Fail),
    ] {
        is(case, &files(FileLimit { most, is_daemons: true }), result, "the daemon may have");
    }
}

#[test]
fn a_peer_must_be_reached_both_ways() {
    let of = |there: Result<u64, &str>, back| PeerFact {
        node: "birch".into(),
        address: "10.0.0.2:7117".into(),
        there: there.map(Duration::from_millis).map_err(str::to_owned),
        back,
        clock: None,
    };
    let unknown = || BackFact::Unknown { why: "this node holds no log".into() };
    for (case, fact, result, says) in [
        ("both", of(Ok(3), BackFact::Reaches), Good, "answers in 3 ms, and reaches this node"),
        ("one way", of(Ok(3), BackFact::DoesNot), Fail, "and does not reach this node"),
        ("nobody says", of(Ok(3), unknown()), Good, "the way back: this node holds no log"),
        ("no way", of(Err("timed out"), unknown()), Fail, "cannot reach birch at 10.0.0.2:7117"),
    ] {
        is(case, &reach(&fact), result, says);
    }
    let of = |status: &str| AgentFact {
        node: "elm".into(),
        status: status.into(),
        last_heard: Some(Time(Timestamp(NOW.0 - 4_000))),
    };
    is("heard", &agent(&of("ready"), NOW), Good, "agent elm is ready, last heartbeat 4s ago");
    is("not heard", &agent(&of("down"), NOW), Warn, "agent elm is down");
}

#[test]
fn clocks_may_differ_by_what_the_way_leaves_open() {
    for (case, ahead_ms, give_ms, result, says) in [
        ("equal", 300, 500, Good, "the clock of birch agrees with ours"),
        ("within what is not known", -2_400, 500, Good, "agrees"),
        ("behind", -2_500, 500, Warn, "birch is 2.5 s behind ours"),
        ("ahead", 61_000, 500, Warn, "birch is 61.0 s ahead of ours"),
        ("certificates fail", 3_600_500, 500, Fail, "3600.5 s ahead of ours"),
    ] {
        is(case, &clock("birch", ClockFact { ahead_ms, give_ms }), result, says);
    }
}

#[test]
fn a_certificate_is_told_before_it_expires() {
    let of = |of: &str, expires_at, is_overdue, trouble: Option<&str>| CertificateFact {
        of: of.into(),
        expires_at,
        is_overdue,
        trouble: trouble.map(str::to_owned),
    };
    for (case, fact, result, says) in [
        (
            "good",
            of("node ash", Some(later(10 * 24 * 60)), false, None),
            Good,
            "node ash expires in 10d",
        ),
        ("a day left", of("node ash", Some(later(24 * 60)), false, None), Warn, "expires in 1d"),
        ("overdue", of("route a.b", Some(later(10 * 24 * 60)), true, None), Warn, "route a.b"),
        ("refused", of("route a.b", Some(later(9_999)), false, Some("429")), Warn, "; 429"),
        ("none", of("route a.b", None, false, Some("no answer")), Warn, "has none; no answer"),
        ("over", of("node ash", Some(Time(NOW)), false, None), Fail, "node ash expired at "),
    ] {
        is(case, &certificate(&fact, NOW), result, says);
    }
}

#[test]
fn everything_is_told_once_and_in_order() {
    let facts = Facts {
        now: NOW,
        daemon: DaemonFact::Down { socket: "unix:///s".into() },
        engine: EngineFact::Process,
        iptables: IptablesFact::Unneeded,
        ports: Vec::new(),
        disk: Ok(Timing::from_append(Duration::from_millis(1))),
        space: Err("none".into()),
        files: FileLimit { most: None, is_daemons: false },
        peers: Vec::new(),
        agents: Vec::new(),
        no_identity: None,
        certificates: Vec::new(),
    };
    let checks = |facts: &Facts| findings(facts).iter().map(|it| it.check).collect::<Vec<_>>();
    assert_eq!(
        checks(&facts),
        ["daemon", "engine", "iptables", "fsync", "space", "files", "peers"]
    );
    let barred = Facts { no_identity: Some("permission denied".into()), ..facts };
    let last = findings(&barred).pop().unwrap();
    is("who may not read the certificate", &last, Warn, "permission denied");
}
