//! An engine that is not there yet, or goes away. It has an engine of its own, which it may kill.

use plimsoll_lab::LabEngine;

use super::compose::web;
use super::harness::{Lab, Runtime, lab, unique};

/// What the node says of its runtime instead of its version.
fn trouble(lab: &Lab) -> Option<String> {
    lab.status()?.nodes.first()?.runtime.as_ref()?.trouble.clone()
}

#[test]
fn an_engine_that_is_down_is_said_waited_for_and_used_again() {
    if lab("DOCKER").is_none() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can start an engine");
        return;
    }
    let private = LabEngine::new(unique(), None);
    let lab = Lab::at(Runtime::Docker(private.socket()));
    lab.wait_for("it says that the engine is down", || trouble(&lab).is_some());
    let text = trouble(&lab).unwrap();
    assert!(text.contains("docker.sock"), "{text}");
    assert!(lab.run("status").done().stdout.contains("docker.sock"), "status says so");
    let (code, _) = lab.ask("GET", "/readyz", b"").expect("it answers");
    assert_eq!(code, 503, "it is not ready");
    let revision = lab.apply("shop", &web(&["deploy: {replicas: 2}"]));

    private.start().unwrap();
    lab.steady_at("shop", revision);
    assert_eq!(trouble(&lab), None);
    assert_eq!(lab.found().len(), 2);

    private.kill().unwrap();
    lab.wait_for("it says that the engine is gone", || trouble(&lab).is_some());
    let scaled = lab.run("scale shop web=3 -d -o json").done().json();
    let revision = scaled["applied"]["revision"].as_u64().unwrap();
    private.start().unwrap();
    let shop = lab.steady_at("shop", revision);
    assert_eq!(trouble(&lab), None);
    let found = lab.found();
    assert_eq!(found.iter().filter(|one| one.is_running).count(), 3, "{found:#?}");
    let mut replicas: Vec<&str> = found.iter().map(|one| one.replica.as_str()).collect();
    replicas.dedup();
    assert_eq!(replicas.len(), 3, "each is there once: {found:#?}\n{shop:#?}");
    assert_eq!(found.len(), 3);
}
