//! Commands for a daemon, where there is none: what they refuse by themselves, and how they say that nobody answers.

use expect_test::expect;

use crate::run::{directory, plimsoll};

#[test]
fn no_daemon_is_a_failure_with_a_next_step() {
    let here = directory("live_nobody", [("compose.yaml", "services: {web: {image: web}}\n")]);
    expect![[r#"
        exit 2
        --- stderr
        error: no daemon answers at unix://./nobody.sock (--host): there is no such socket
        hint: is the daemon running? start it with `plimsoll up`
    "#]]
    .assert_eq(&here.run("status --host ./nobody.sock").text());
    let same = here.run("status --host ./nobody.sock").text();
    for args in [
        "--host ./nobody.sock status",
        "status -w --host ./nobody.sock",
        "apply --host ./nobody.sock",
        "apply --dry-run --host ./nobody.sock",
        "get nodes --host ./nobody.sock",
        "logs shop --host ./nobody.sock",
        "exec --host ./nobody.sock shop-web-1 -- true",
        "restart shop --host ./nobody.sock",
        "scale shop web=3 --host ./nobody.sock",
        "delete shop --host ./nobody.sock",
        "rollback shop --host ./nobody.sock",
        "history shop --host ./nobody.sock",
        "node list --host ./nobody.sock",
        "audit --host ./nobody.sock",
        "explain shop-web-1 --host ./nobody.sock",
        "what-if drain ash --host ./nobody.sock",
        "--host ./nobody.sock what-if rebalance",
    ] {
        assert_eq!(here.run(args).text(), same, "{args}");
    }
    let named = here.run_with("status", &[("PLIMSOLL_HOST", "./nobody.sock")]);
    let same = same.replace("(--host)", "(PLIMSOLL_HOST)");
    assert_eq!(named.text(), same, "the environment names it as well");
}

#[test]
fn a_compose_file_is_read_before_anyone_is_asked() {
    let file = "services:\n  web:\n    image: web\n    deploy: {replicas: -2}\n";
    let here = directory("live_wrong_file", [("compose.yaml", file)]);
    let applied = here.run("apply --host ./nobody.sock");
    assert_eq!(applied.stderr(), here.run("validate").stderr());
    assert_eq!(applied.code(), 1);
    let empty = directory("live_no_file", []);
    assert_eq!(empty.run("apply").text(), empty.run("validate").text());
}

#[test]
fn a_backup_needs_a_daemon_or_a_directory() {
    let here = directory("live_backup", [("old.backup", "")]);
    expect![[r#"
        exit 2
        --- stderr
        error: no daemon answers at unix://./nobody.sock (--host): there is no such socket
        hint: is the daemon running? start it with `plimsoll up`
        hint: of a daemon that is stopped: `plimsoll backup FILE --data-dir DIR`
    "#]]
    .assert_eq(&here.run("backup new --host ./nobody.sock").text());
    expect![[r#"
        exit 1
        --- stderr
        error: old.backup exists already
        hint: name another file, or move that one away
    "#]]
    .assert_eq(&here.run("backup old.backup").text());
    expect![[r#"
        exit 1
        --- stderr
        error: nowhere is no data directory of plimsoll
        hint: name the one `plimsoll up` was started with
    "#]]
    .assert_eq(&here.run("backup new --data-dir nowhere").text());
    let left: Vec<_> = std::fs::read_dir(here.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing half-written stays: {left:?}");
}

#[test]
fn a_restore_needs_a_good_file_and_an_empty_directory() {
    let here = directory("live_restore", [("bad.backup", "no backup"), ("used/file", "")]);
    expect![[r#"
        exit 1
        --- stderr
        error: used is not empty; restore into a new data directory
        hint: name a directory that is empty or not there yet
    "#]]
    .assert_eq(&here.run("restore bad.backup --data-dir used").text());
    expect![[r#"
        exit 1
        --- stderr
        error: there is no file none.backup
        hint: did you mean bad.backup?
    "#]]
    .assert_eq(&here.run("restore none.backup --data-dir new").text());
    expect![[r#"
        exit 1
        --- stderr
        error: bad.backup is not a backup of plimsoll
        hint: name a file that `plimsoll backup` wrote
    "#]]
    .assert_eq(&here.run("restore bad.backup --data-dir new").text());
    expect![[r#"
        exit 1
        --- stderr
        error: the following required arguments were not provided:
          --data-dir <DIR>

        Usage: plimsoll restore --data-dir <DIR> <FILE>

        For more information, try '--help'.
    "#]]
    .assert_eq(&here.run("restore bad.backup").text());
}

#[test]
fn arguments_are_refused_with_what_to_write() {
    let said = |args: &str| plimsoll(args).text();
    expect![[r#"
        exit 1
        --- stderr
        error: invalid value 'web' for '<SERVICE=N>...': write the service and how many, as web=3

        For more information, try '--help'.
    "#]]
    .assert_eq(&said("scale shop web"));
    expect![[r#"
        exit 1
        --- stderr
        error: the following required arguments were not provided:
          <SERVICE=N>...

        Usage: plimsoll scale <DEPLOYMENT> <SERVICE=N>...

        For more information, try '--help'.
    "#]]
    .assert_eq(&said("scale shop"));
    expect![[r#"
        exit 1
        --- stderr
        error: invalid value 'yesterday' for '--since <WHEN>': `yesterday` is no moment; write how long ago (10m) or when (2026-11-16T00:30:00Z)

        For more information, try '--help'.
    "#]].assert_eq(&said("logs shop --since yesterday"));
    expect![[r#"
        exit 1
        --- stderr
        error: invalid value 'soon' for '--timeout <LENGTH>': `soon` is no length of time; write it as 30s, 10m or 1h30m

        For more information, try '--help'.
    "#]].assert_eq(&said("apply --timeout soon"));
    expect![[r#"
        exit 1
        --- stderr
        error: the following required arguments were not provided:
          <COMMAND>...

        Usage: plimsoll exec <REPLICA|SERVICE> <COMMAND>...

        For more information, try '--help'.
    "#]]
    .assert_eq(&said("exec shop-web-1"));
    expect![[r#"
        exit 1
        --- stderr
        error: "somewhere" is not an endpoint; write unix:///path/to/socket or https://host:port
        hint: `--host` and PLIMSOLL_HOST take a socket or https://address:port
    "#]]
    .assert_eq(&said("status --host somewhere"));
    expect![[r#"
        exit 1
        --- stderr
        error: https://ash:7654 (--host) can only be trusted by its cell's authority, and none is given
        hint: `plimsoll login STRING` with what `plimsoll token create` prints; or --authority with the fingerprint or file of `plimsoll cell authority`
    "#]]
    .assert_eq(&said("status --host https://ash"));
    expect![[r#"
        exit 1
        --- stderr
        error: invalid value 'disk' for '--label <KEY=VALUE>': write it as key=value

        For more information, try '--help'.
    "#]]
    .assert_eq(&said("up --label disk"));
    expect![[r#"
        exit 1
        --- stderr
        error: invalid value 'No/Name' for '--name <NODE>': node name "No/Name" has '/'; use letters, digits, '-', '_' and '.', starting with a letter or digit

        For more information, try '--help'.
    "#]].assert_eq(&said("up --name No/Name"));
    expect![[r#"
        exit 1
        --- stderr
        error: invalid value 'here' for '--listen <ADDRESS:PORT>': invalid socket address syntax

        For more information, try '--help'.
    "#]]
    .assert_eq(&said("up --listen here"));
}
