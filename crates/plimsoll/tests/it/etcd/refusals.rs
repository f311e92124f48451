//! Starts on an etcd that must not happen: each says what is wrong with what and what to do, and leaves nothing behind.

use std::fs;
use std::path::Path;

use plimsoll_etcd::testkit::EtcdLab;

use super::{SEAL_KEY, cell_of, flags};
use crate::harness::loopback;
use crate::run::binary;

/// Which of the test's nodes these would be: one that nothing else is.
const AT: usize = 5;

struct Refused {
    code: i32,
    said: String,
}

/// Starts a node that must not come up.
fn refused(dir: &Path, args: &[&str], environment: &[(&str, &str)]) -> Refused {
    let mut command = binary();
    command.args(["up", "--runtime", "process", "--name", "oak", "--address", &loopback(AT)]);
    command.arg("--data-dir").arg(dir).args(args).envs(environment.iter().copied());
    let ran = command.output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    Refused { code: ran.status.code().unwrap_or_else(|| panic!("{said}")), said }
}

fn keys(lab: &EtcdLab) -> String {
    lab.ctl(&["get", "", "--prefix", "--keys-only"])
}

#[test]
fn an_etcd_that_cannot_be_used_is_named_with_the_reason_and_nothing_is_begun() {
    let Some(lab) = EtcdLab::start(1, &["--quota-backend-bytes", "16777216"]) else { return };
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("oak");
    let at = lab.endpoints[0].as_str();
    let nobody = at.replace(":2379", ":9");
    let on = |endpoint: &str, more: &[&str]| -> Vec<String> {
        let base = ["--engine", "etcd", "--etcd-endpoints", endpoint];
        base.iter().chain(more).map(|word| (*word).to_owned()).collect()
    };
    let home_at = |more: &[&str]| on(at, &[&["--cell", "home"], more].concat());
    let theirs = format!("{}/theirs", home.path().display());
    for (args, code, words) in [
        (
            on(&nobody, &["--cell", "home"]),
            2,
            vec!["etcd is unreachable at", &nobody, "check that it runs"],
        ),
        (on("10.0.0.1:2379", &["--cell", "home"]), 2, vec!["10.0.0.1:2379", "begins with http://"]),
        (on(at, &[]), 1, vec!["name the cell with --cell"]),
        (home_at(&["--etcd-ttl", "1"]), 1, vec!["--etcd-ttl", "2..=60"]),
        (home_at(&["--etcd-ttl", "61"]), 1, vec!["--etcd-ttl", "2..=60"]),
        (
            home_at(&["--etcd-prefix", "cells"]),
            1,
            vec!["\"cells/\" is not a prefix", "begin and end with a slash"],
        ),
        (home_at(&["--etcd-ca", &theirs]), 2, vec![&theirs, "No such file"]),
        (home_at(&["--etcd-user", "ash"]), 1, vec!["--etcd-user takes a password"]),
        (on(at, &["--cell", "home", "--engine", "embedded"]), 1, vec!["--engine"]),
        (vec!["--engine".into(), "etcd".into()], 1, vec!["takes --etcd-endpoints"]),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let Refused { code: found, said } = refused(&dir, &args, &[]);
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
        assert_eq!(found, code, "{args:?}: {said}");
        assert!(!dir.join("node.json").exists() && !dir.join("store").exists(), "{args:?}");
    }
    assert_eq!(keys(&lab), "", "nothing was written");

    let filler = "x".repeat(1 << 20);
    let fill = home.path().join("filler");
    fs::write(&fill, filler).unwrap();
    let put =
        format!("while etcdctl --endpoints {at} put /filler <{} ; do :; done", fill.display());
    std::process::Command::new("sh").args(["-c", &put]).output().unwrap();
    let args = home_at(&[]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Refused { code, said } = refused(&dir, &args, &[]);
    assert!(said.contains("out of space") && said.contains("disarm its NOSPACE alarm"), "{said}");
    assert_eq!((code, dir.join("node.json").exists()), (2, false));
    assert_eq!(keys(&lab).trim(), "/filler");
}

#[test]
fn a_user_that_etcd_does_not_know_is_not_let_in_and_the_right_one_is_remembered() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    lab.ctl(&["user", "add", "root:secret"]);
    lab.ctl(&["user", "grant-role", "root", "root"]);
    lab.ctl(&["user", "add", "oak:sesame"]);
    lab.ctl(&["role", "add", "cell"]);
    lab.ctl(&["role", "grant-permission", "cell", "--prefix=true", "readwrite", "/plimsoll/home/"]);
    lab.ctl(&["role", "add", "reader"]);
    lab.ctl(&["role", "grant-permission", "reader", "--prefix=true", "read", "/plimsoll/home/"]);
    lab.ctl(&["user", "add", "elm:sesame"]);
    lab.ctl(&["user", "grant-role", "elm", "reader"]);
    lab.ctl(&["user", "grant-role", "oak", "cell"]);
    lab.ctl(&["auth", "enable"]);
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("oak");
    let said = |user: &str, password: &str| {
        let mut args = flags(&lab);
        args.extend(["--etcd-user".to_owned(), user.to_owned()]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        refused(&dir, &args, &[("PLIMSOLL_ETCD_PASSWORD", password)]).said
    };
    let wrong = said("oak", "open");
    assert!(wrong.contains("etcd rejected user oak or its password"), "{wrong}");
    assert!(!wrong.contains("open with"), "{wrong}");
    let denied = said("elm", "sesame");
    assert!(denied.contains("grant the user's role readwrite on the prefix"), "{denied}");
    let flags_alone = flags(&lab);
    let flags_alone: Vec<&str> = flags_alone.iter().map(String::as_str).collect();
    let nobody = refused(&dir, &flags_alone, &[]).said;
    assert!(nobody.contains("etcd requires a user name and a password"), "{nobody}");
    assert!(!dir.join("node.json").exists());

    let file = home.path().join("password");
    fs::write(&file, "sesame\n").unwrap();
    let mut cell = crate::harness::Cell::idle(crate::harness::Site::Loopback);
    cell.setups[0].args = flags(&lab);
    let user = ["--etcd-user", "oak", "--etcd-password-file", file.to_str().unwrap()];
    cell.setups[0].args.extend(user.map(str::to_owned));
    cell.up(0, None);
    cell.stop(0);
    cell.setups[0].args.clear();
    cell.up(0, None);
    cell.until("it leads again, and was told nothing", |cell| cell.leader_of(&[0]) == Some(0));
    let kept = fs::read_to_string(cell.path(0).join("node.json")).unwrap();
    assert!(kept.contains("\"oak\"") && !kept.contains("sesame"), "{kept}");
}

#[test]
fn a_prefix_and_a_data_directory_have_one_owner_each() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut cell = cell_of(1, &lab);
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("oak");
    let endpoint = lab.endpoints[0].as_str();
    let on = ["--engine", "etcd", "--etcd-endpoints", endpoint];
    let says = |dir: &Path, more: &[&str]| refused(dir, &[&on[..], more].concat(), &[]).said;
    let before = keys(&lab);
    let said = says(&dir, &["--cell", "work", "--etcd-prefix", "/plimsoll/home"]);
    assert!(said.contains("belong to cell home, not to work; choose another prefix"), "{said}");
    let said = says(&dir, &["--cell", "home", "--name", "ash"]);
    assert!(said.contains("cannot be used multiple times"), "{said}");
    assert_eq!(keys(&lab), before);
    assert!(!dir.join("node.json").exists());

    // The same name, elsewhere.
    let mut command = binary();
    command.args(["up", "--runtime", "process", "--name", "ash", "--address", &loopback(AT)]);
    command.arg("--data-dir").arg(&dir).args(on).args(["--cell", "home"]);
    command.args(["--etcd-seal-key-file", SEAL_KEY]);
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("a server called ash runs at"), "{said}");

    // One data directory, two daemons; then another engine, and another cell.
    let path = cell.path(0);
    let up = |more: &[&str]| {
        let mut command = binary();
        command.args(["up", "--runtime", "process", "--address", &loopback(0), "--data-dir"]);
        let ran = command.arg(&path).args(more).output().unwrap();
        String::from_utf8(ran.stderr).unwrap()
    };
    assert!(up(&[]).contains("is in use by another plimsoll"));
    cell.kill(0);
    let said = up(&["--engine", "embedded"]);
    assert!(said.contains("plimsoll migrate --from etcd --to embedded"), "{said}");
    let said = up(&["--cell", "work"]);
    assert!(said.contains("belongs to cell home, not to work"), "{said}");
    lab.ctl(&["del", "", "--prefix"]);
    let said = up(&[]);
    assert!(said.contains("there is nothing below /plimsoll/home/ in etcd"), "{said}");
    assert_eq!(keys(&lab), "");

    let own = home.path().join("own");
    let mut command = binary();
    command.args(["up", "--runtime", "process", "--name", "oak", "--address", &loopback(AT)]);
    command.arg("--data-dir").arg(&own).arg("--socket").arg(home.path().join("s"));
    let daemon = plimsoll_lab::Process::new(command.spawn().unwrap());
    cell.until("it has a log", |_| own.join("store").join("identity").exists());
    daemon.kill();
    let said = says(&own, &["--cell", "home"]);
    assert!(said.contains("plimsoll migrate --from embedded --to etcd"), "{said}");
}
