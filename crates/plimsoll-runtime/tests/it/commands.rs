use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use expect_test::expect;
use plimsoll_model::spec::{Mount, MountSource, Protocol, Ulimit};
use plimsoll_model::{Bytes, ContainerSpec, Resources};
use plimsoll_runtime::{
    Binding, ContainerStatus, Error, ExecOutcome, ExecOutput, ExecRequest, Exit, Meter, Reason,
    Runtime, chain,
};

use crate::harness::{Host, gone, is_alive, kill, order, sh, tag};

const DONE: ExecOutcome = ExecOutcome::Done { status: 0 };

fn text(executed: &ExecOutput) -> String {
    String::from_utf8_lossy(&executed.stdout).trim().to_owned()
}

#[tokio::test]
async fn a_service_gets_its_environment_and_nothing_of_ours() {
    let host = Host::new().await;
    let environment = [("PLAIN", "a b"), ("DOLLAR", "$HOME and ${X} and $$"), ("EMPTY", "")];
    let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let script = "printf '%s|%s|%s|%s|' \"$PLAIN\" \"$DOLLAR\" \"$EMPTY\" \"$PORT\"; \
        echo \"${CARGO_MANIFEST_DIR-unset}|$PLIMSOLL_REPLICA|$PLIMSOLL_PORT_80\"; pwd";
    let spec = ContainerSpec { environment: BTreeMap::from(environment), ..sh(script) };
    let mut order = order(1, spec);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    order.bindings = vec![Binding { target: 80, protocol: Protocol::Tcp, address, port: 31_080 }];
    host.runtime.start(&order).await.unwrap();
    host.exit(&order.tag).await;
    let work = host.file(1, "work").canonicalize().unwrap();
    let expected = [
        "a b|$HOME and ${X} and $$||31080|unset|shop-web-1|31080".to_owned(),
        work.display().to_string(),
    ];
    assert_eq!(host.printed(&order.tag).await, expected);
}

#[tokio::test]
async fn a_service_has_a_session_limits_and_volumes_of_its_own() {
    let host = Host::new().await;
    let volume = MountSource::Volume { name: "data".into(), subpath: None, nocopy: false };
    let target = "/var/data".to_owned();
    let script = "cut -d' ' -f1,5,6 /proc/$$/stat; ulimit -n; echo kept > var/data/file; \
        cat \"$PLIMSOLL_FILES/var/data/file\"";
    let spec = ContainerSpec {
        mounts: vec![Mount { source: volume, target, read_only: false, consistency: None }],
        ulimits: BTreeMap::from([("nofile".to_owned(), Ulimit { soft: 77, hard: 99 })]),
        ..sh(script)
    };
    let tag = host.start(1, spec).await;
    assert_eq!(host.exit(&tag).await.status, Some(0));
    let printed = host.printed(&tag).await;
    let ids: Vec<&str> = printed[0].split(' ').collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "pid, group and session: {ids:?}");
    assert_eq!(printed[1..], ["77", "kept"]);
    host.runtime.remove(&tag).await.unwrap();
    assert!(host.dir.path().join("test/volumes/shop/data/file").is_file(), "data stays");
    let deployment = tag.deployment();
    assert_eq!(host.runtime.remove_volumes(deployment).await.unwrap(), ["data"]);
    assert!(!host.dir.path().join("test/volumes/shop").exists(), "until a person says so");
}

#[tokio::test]
async fn a_service_runs_as_its_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::new().await;
    let spec = ContainerSpec {
        user: Some("65534:65533".into()),
        group_add: vec!["12345".into()],
        ..sh("id -u; id -g; id -G; touch mine && echo writable; echo ready; exec sleep 600")
    };
    let tag = host.start(1, spec).await;
    host.says(&tag, "ready").await;
    let printed = host.printed(&tag).await;
    assert_eq!(printed, ["65534", "65533", "65533 12345", "writable", "ready"]);
    let executed = host.exec(&tag, &ExecRequest::shell("id -u")).await;
    assert_eq!(text(&executed), "65534", "and so does a command beside it");
    host.runtime.stop(&tag).await.unwrap();
}

#[tokio::test]
async fn what_cannot_run_is_refused_with_its_reason() {
    let host = Host::new().await;
    let user = "nobody-of-that-name".to_owned();
    for (case, spec, reason) in [
        ("no command", ContainerSpec::default(), Reason::NoCommand),
        (
            "an unknown user",
            ContainerSpec { user: Some(user.clone()), ..sh("exit 0") },
            Reason::UnknownUser { user },
        ),
    ] {
        assert_eq!(host.runtime.refuses(&spec), std::slice::from_ref(&reason), "{case}");
        match host.runtime.start(&order(1, spec)).await.unwrap_err() {
            Error::Refused { reasons, .. } => assert_eq!(reasons, [reason], "{case}"),
            other => panic!("{case}: {other}"),
        }
        assert_eq!(host.runtime.list().await.unwrap(), [], "{case}: nothing is left of it");
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_run_says_why() {
    let host = Host::new().await;
    let command = Some(vec!["no-such-program".to_owned()]);
    let missing = ContainerSpec { command, ..ContainerSpec::default() };
    let error = host.runtime.start(&order(1, missing)).await.unwrap_err();
    let expected = "cannot start shop-web-1 g1: cannot run \"no-such-program\": \
        No such file or directory (os error 2)";
    assert_eq!(chain(&error), expected);
    assert_eq!(host.status(&tag(1)).await, Some(ContainerStatus::Created));
    let nowhere = ContainerSpec { working_dir: Some("/no/such/place".into()), ..sh("exit 0") };
    let error = host.runtime.start(&order(1, nowhere)).await.unwrap_err();
    assert!(chain(&error).contains("cannot enter /no/such/place: "), "{}", chain(&error));
    let tag = host.run("exec sleep 600").await;
    host.runtime.stop(&tag).await.unwrap();
}

#[tokio::test]
async fn commands_run_beside_a_service() {
    let host = Host::new().await;
    let environment = BTreeMap::from([("NAME".to_owned(), "value".to_owned())]);
    let tag = host.start(1, ContainerSpec { environment, ..sh("exec sleep 600") }).await;
    let executed = host.exec(&tag, &ExecRequest::shell("echo $NAME; echo bad >&2; exit 3")).await;
    assert_eq!(executed.outcome, ExecOutcome::Done { status: 3 });
    assert_eq!((text(&executed).as_str(), executed.stderr.as_slice()), ("value", &b"bad\n"[..]));

    let missing = host.exec(&tag, &ExecRequest::new(["no-such-program"])).await;
    assert_eq!(missing.outcome, ExecOutcome::Done { status: 127 });
    assert!(missing.stderr.starts_with(b"cannot run \"no-such-program\""));

    let long = ExecRequest { max_output: 1_000, ..ExecRequest::shell("head -c 300000 /dev/zero") };
    let long = host.exec(&tag, &long).await;
    assert_eq!((long.outcome, long.stdout.len(), long.is_cut), (DONE, 1_000, true));
    host.runtime.stop(&tag).await.unwrap();
    let error = host.runtime.exec(&tag, &ExecRequest::shell("exit 0")).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot run a command in shop-web-1 g1: not running");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_all_it_started() {
    let host = Host::new().await;
    let tag = host.run("exec sleep 600").await;
    let exec = ExecRequest::shell("sleep 600 & echo $!; wait").timeout(Duration::from_millis(300));
    let begin = Instant::now();
    let executed = host.exec(&tag, &exec).await;
    assert_eq!(executed.outcome, ExecOutcome::TimedOut);
    assert!(begin.elapsed() < Duration::from_secs(10));
    let child = text(&executed);
    gone(&child).await;

    // Left in the background on purpose, it does not hold the command up.
    let executed = host.exec(&tag, &ExecRequest::shell("sleep 600 & echo $!")).await;
    assert_eq!(executed.outcome, DONE);
    assert!(is_alive(&text(&executed)));
    kill(&text(&executed));
    host.runtime.stop(&tag).await.unwrap();
}

#[tokio::test]
async fn usage_counts_the_whole_family() {
    let host = Host::new().await;
    let script = "sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; echo worked; \
        exec sleep 600";
    let tag = host.run(script).await;
    let mut meter = Meter::default();
    let first = host.runtime.usage().await.unwrap()[&tag];
    assert_eq!(meter.read(Instant::now(), first.cpu), None, "the first reading is no sample");
    host.says(&tag, "worked").await;
    let second = host.runtime.usage().await.unwrap()[&tag];
    assert!(second.cpu >= first.cpu && second.cpu.0 > 0, "{first:?} {second:?}");
    assert!(second.memory > Bytes(0));
    assert!(meter.read(Instant::now(), second.cpu).is_some());
    host.runtime.stop(&tag).await.unwrap();
    assert!(host.runtime.usage().await.unwrap().is_empty(), "what does not run uses nothing");
}

/// Where this host lets us have cgroups, a service that wants too much memory is killed and said to be.
#[tokio::test]
async fn limits_are_held_where_there_are_cgroups() {
    let root = std::path::PathBuf::from("/sys/fs/cgroup");
    let host = Host::with(|settings| {
        settings.cgroup_root = Some(root.clone());
    })
    .await;
    let described = host.runtime.describe().await.unwrap();
    if described.limits.last().is_some_and(|limit| limit.contains("not enforced")) {
        return;
    }
    let memory = Bytes(16 << 20);
    let limits = Resources { memory, ..Resources::NONE };
    // The generation names the cgroup, and this host's cgroups are everybody's: one that nothing else has.
    let generation = u64::from(std::process::id()) << 20;
    let script = "exec head -c 100000000 /dev/zero | sort > /dev/null";
    let tag = host.start(generation, ContainerSpec { limits, ..sh(script) }).await;
    let exit = host.exit(&tag).await;
    host.runtime.remove(&tag).await.unwrap();
    let ours = |controller: &str| {
        [format!("{controller}/plimsoll/test"), format!("{controller}/plimsoll")]
    };
    for dir in ["memory", "cpu", "cpuacct", "pids", "."].into_iter().flat_map(ours) {
        let _ = std::fs::remove_dir(root.join(dir));
    }
    assert!(exit.oom, "{exit:?}");
    assert_ne!(exit, Exit { status: Some(0), oom: true });
}

#[tokio::test]
async fn the_runtime_says_what_it_does_not_isolate() {
    let host = Host::new().await;
    let mut described = host.runtime.describe().await.unwrap();
    described.version = "VERSION".to_owned();
    expect![[r"
        process VERSION
          services are processes of this host; image, pull_policy and platform are not used
          files are the host's own: a mount is a link in the service's working directory, at its target without the leading slash ($PLIMSOLL_FILES/data for /data); read_only and tmpfs sizes are not held
          the network is the host's own: services bind the host's ports, and networks, dns and hostname are not used
          privileges are not reduced: cap_drop, security_opt, privileged and userns_mode are not used
          a service ends with its first process: whatever that leaves behind is killed
          memory, CPU and process limits are not enforced: no writable cgroup"]].assert_eq(&described.to_string());
}
