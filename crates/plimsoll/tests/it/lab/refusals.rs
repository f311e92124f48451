//! Data directories, requests and ports that cannot be used: each is refused with a reason, and nothing is lost.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::compose::web;
use super::harness::{Lab, Runtime, Said, reason};

const SLEEPER: &[&str] = &["networks: [default]", "command: [sleep, '600']"];

/// Runs a daemon that must end by itself.
fn refused(lab: &Lab, data: &Path) -> Said {
    let mut command = lab.up_at(data, &lab.path("other"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = Said::of(&output);
    assert!(said.code == 1 || said.code == 2, "it must not start: {said:#?}");
    said
}

/// What a daemon says first that stays without doing anything, so that a service manager does not start it over and over.
fn idle(lab: &Lab, data: &Path) -> String {
    let mut command = lab.up_at(data, &lab.path("other"));
    let mut daemon = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let ended = daemon.try_wait().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(ended.is_none(), "it must stay: {ended:?}, {line}");
    line
}

fn segment(lab: &Lab) -> PathBuf {
    let log = lab.data().join("store/log");
    let mut files: Vec<PathBuf> =
        fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "log"));
    files.sort();
    files.remove(0)
}

#[test]
fn a_data_directory_has_one_daemon() {
    let lab = Lab::process();
    lab.settle("shop", &web(SLEEPER));
    let before = lab.runs(1);
    let said = refused(&lab, &lab.data());
    assert!(said.stderr.contains("is in use by another plimsoll"), "{said:#?}");
    lab.steady("shop");
    lab.still_has(&before, "it is the same run");
}

#[test]
fn a_data_directory_that_cannot_be_used_is_refused_and_left_as_it_is() {
    let mut lab = Lab::process();
    let revision = lab.apply("shop", &web(SLEEPER));
    lab.steady_at("shop", revision);
    let before = lab.runs(1);
    lab.kill();

    let identity = lab.data().join("store/identity");
    let log = segment(&lab);
    let (sealed, entries) = (fs::read(&identity).unwrap(), fs::read(&log).unwrap());
    let mut newer = sealed.clone();
    newer[8] += 1;
    fs::write(&identity, &newer).unwrap();
    let said = idle(&lab, &lab.data());
    let formats = format!("format {}, this build supports up to {}", newer[8], sealed[8]);
    assert!(said.contains(&formats), "{said}");
    assert!(said.contains("use a newer plimsoll"), "{said}");
    assert!(said.contains("store/identity"), "{said}");
    assert_eq!(fs::read(&identity).unwrap(), newer, "nothing was written");
    fs::write(&identity, &sealed).unwrap();

    let written = entries.iter().rposition(|byte| *byte != 0).unwrap();
    let mut damaged = entries.clone();
    damaged[written / 2] ^= 0x55;
    fs::write(&log, &damaged).unwrap();
    let said = refused(&lab, &lab.data());
    assert!(said.stderr.contains(&log.display().to_string()), "it names the file: {said:#?}");
    assert!(said.stderr.contains("at byte") || said.stderr.contains("offset"), "{said:#?}");
    assert!(fs::read(&log).unwrap() == damaged, "nothing was written");
    fs::write(&log, &entries).unwrap();

    for (data, word) in [("/proc/nowhere", "/proc/nowhere"), ("/dev/null", "/dev/null")] {
        let said = refused(&lab, Path::new(data));
        assert!(said.stderr.contains(word) && said.stderr.contains("cannot"), "{said:#?}");
    }

    lab.still_has(&before, "all that time it ran");
    lab.start();
    lab.steady_at("shop", revision);
    lab.still_has(&before, "it is the same run");
}

#[test]
fn a_body_that_is_too_long_is_refused_with_the_limit() {
    let lab = Lab::process();
    let long = json!({"services": {}, "expect": null, "padding": "x".repeat(17 << 20)});
    let (code, body) =
        lab.ask("PUT", "/v1/deployments/shop", long.to_string().as_bytes()).expect("an answer");
    let problem: Value = serde_json::from_slice(&body).expect("a problem");
    assert_eq!((code, &problem["code"]), (413, &json!("too_large")), "{problem}");
    let message = problem["message"].as_str().unwrap();
    assert!(message.contains("16 MiB") || message.contains("16777216"), "{message}");
    lab.apply("shop", &web(SLEEPER));
}

/// A small filesystem in place of the data directory.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let small = Self(path);
        small.run("mount", &["-t", "tmpfs", "-o", options, "tmpfs"]);
        small
    }

    fn run(&self, program: &str, args: &[&str]) {
        let status = Command::new(program).args(args).arg(&self.0).status().unwrap();
        assert!(status.success(), "{program} {args:?}: {status}");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_takes_no_more_loses_nothing_and_once_there_is_room_the_daemon_goes_on() {
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can mount a small disk");
        return;
    }
    let mut lab = Lab::idle(Runtime::Process);
    let small = Small::mount(lab.data(), "size=20m");
    lab.start();
    // Nothing runs of it, so that all there is to write is the log.
    let file = |text: &str| {
        let environment = format!("environment: {{TEXT: {text}}}");
        web(&[SLEEPER, &[environment.as_str(), "deploy: {replicas: 0}"]].concat())
    };
    let mut revision = lab.apply("shop", &file("first"));
    let said = loop {
        let text = format!("t{revision}{}", "x".repeat(900 << 10));
        let said = lab.try_apply("shop", &file(&text));
        if said.code != 0 {
            break said;
        }
        revision = said.json()["applied"]["revision"].as_u64().unwrap();
        assert!(revision < 200, "the disk is never full");
    };
    assert_eq!(said.code, 2, "the world is to blame: {said:#?}");
    let store = lab.data().join("store");
    let full = format!("disk full: cannot write to {}", store.display());
    assert!(said.stderr.contains(&full), "{said:#?}");
    assert!(said.stderr.contains("hint: free 16 MB where"), "{said:#?}");
    let again = lab.ask("POST", "/v1/deployments/shop/scale", br#"{"services": {"web": 0}}"#);
    let (status, problem) = again.expect("an answer");
    let problem: Value = serde_json::from_slice(&problem).unwrap();
    assert_eq!((status, &problem["code"]), (507, &json!("disk_full")), "{problem}");
    let told = lab.run("status").done();
    assert!(told.stdout.contains("disk_full: disk full"), "{told:#?}");
    let (status, ready) = lab.ask("GET", "/readyz", b"").expect("an answer");
    let ready: Value = serde_json::from_slice(&ready).unwrap();
    assert_eq!((status, &ready["why"][0]["word"]), (503, &json!("disk_full")), "{ready}");
    lab.wait_for("its log says so", || lab.said().contains("disk_full: "));
    let shop = |lab: &Lab| {
        let status = lab.wait("shop is there", |status| !status.deployments.is_empty());
        status.deployments[0].revision
    };
    small.run("mount", &["-o", "remount,size=100m"]);
    lab.wait_for("there is room, and it goes on by itself", || {
        lab.try_apply("shop", &file("more")).code == 0
    });
    revision += 1;
    assert_eq!(shop(&lab), revision, "what was acknowledged stands, and nothing else");
    assert!(lab.apply("shop", &file("last")) > revision);
    lab.kill();
    lab.start();
    assert_eq!(shop(&lab), revision + 1);
    lab.kill();
}

#[test]
fn a_port_of_the_host_that_is_taken_is_the_reason_given_until_it_is_free() {
    let Some(lab) = Lab::docker() else { return };
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ports = format!("ports: [{{target: 80, published: '{port}', mode: host}}]");
    let file = web(&[&ports, "networks: [default]"]);
    lab.apply(&lab.name, &file);
    let shop =
        lab.until(&lab.name, "it is given up", |it| reason(it, "restart_exhausted").is_some());
    let text = reason(&shop, "restart_exhausted").unwrap();
    assert!(text.contains(&port.to_string()), "it names the port: {text}");
    drop(taken);
    lab.settle(&lab.name, &file);
}

#[test]
fn a_published_port_that_is_taken_is_the_reason_given_until_it_is_free() {
    let Some(lab) = Lab::docker() else { return };
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (shop, late) = (lab.name.clone(), format!("{}-late", lab.name));
    let file = web(&[&format!("ports: ['{port}:80']"), "networks: [default]"]);
    let said = lab.run_reading(&format!("apply -f - -p {shop} --timeout 60s"), &file);
    assert_eq!(said.code, 1, "{said:#?}");
    assert!(said.stderr.contains("port_unavailable"), "{said:#?}");
    assert!(said.stderr.contains(&format!("port {port}: Address already in use")), "{said:#?}");
    assert!(lab.run("status").done().stdout.contains("port_unavailable"));
    drop(taken);
    lab.steady(&shop);

    // Another service of the cell is refused, and told who has it.
    let said = lab.try_apply(&late, &file);
    assert_eq!(said.code, 1, "{said:#?}");
    let text = format!("publishes {port}/tcp, which {shop}/web has already");
    assert!(said.stderr.contains(&text), "{said:#?}");
    lab.run(&format!("delete {shop}")).done();
    lab.settle(&late, &file);
}
