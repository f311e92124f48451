//! Data that outlives containers, and variables that reach them unread.

use super::compose::{sh, web};
use super::harness::{Lab, Runtime, docker, unique};

/// A volume that someone else made, and that someone else removes.
struct External(String, std::path::PathBuf);

impl External {
    fn new(lab: &Lab) -> Self {
        let Runtime::Docker(socket) = &lab.runtime else { panic!("there is no engine") };
        let name = unique();
        docker(socket, &["volume", "create", &name]).done();
        Self(name, socket.clone())
    }
}

impl Drop for External {
    fn drop(&mut self) {
        docker(&self.1, &["volume", "rm", "-f", &self.0]);
    }
}

fn volumes(lab: &Lab) -> Vec<String> {
    let filter = format!("label=plimsoll.cell={}", lab.name);
    let said = lab.engine(&["volume", "ls", "-q", "--filter", &filter]).done();
    said.stdout.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn data_outlives_a_deployment_unless_someone_asks_for_its_end() {
    let Some(lab) = Lab::docker() else { return };
    // Volumes are named after their deployment, and so are those of other cells on the engine.
    let shop = lab.name.clone();
    let external = External::new(&lab);
    let script = "cat /data/kept /outside/kept; echo $$GREETING from $$$$ > /data/kept; \
                  cp /data/kept /outside/; trap 'exit 0' TERM; sleep 600 & wait";
    let lines = [
        sh(script),
        "environment: {GREETING: hello, RAW: '$$HOME and $${HOME}'}".to_owned(),
        "volumes: ['data:/data', 'outside:/outside']".to_owned(),
    ];
    let file = web(&lines.each_ref().map(String::as_str))
        + &format!("volumes: {{data: {{}}, outside: {{external: true, name: {}}}}}\n", external.0);
    lab.settle(&shop, &file);
    let only = lab.only(&format!("{shop}/web"));
    let container = lab.inspect(&[&only.id]).remove(0);
    let environment = container["Config"]["Env"].to_string();
    assert!(environment.contains("RAW=$HOME and ${HOME}"), "{environment}");
    let command = container["Config"]["Cmd"].to_string();
    assert!(command.contains("echo $GREETING from $$ > "), "{command}");
    let logs = lab.run(&format!("logs {shop}-web-1")).done().stdout;
    assert!(!logs.contains("hello"), "nothing was there before: {logs}");

    let deleted = lab.run(&format!("delete {shop} -o json")).done().json();
    assert_eq!(deleted["volumes_kept"], serde_json::json!(["data"]));
    lab.gone(&shop);
    assert_eq!(volumes(&lab).len(), 1);

    lab.settle(&shop, &file);
    let found = lab.found();
    let logs = lab.engine(&["logs", &found[0].id]).stdout;
    assert_eq!(logs, "hello from 1\nhello from 1\n", "both were found again");
    let said = lab.run(&format!("delete {shop} --volumes"));
    assert_eq!(said.code, 1, "data is not removed on a guess: {said:#?}");
    lab.run(&format!("delete {shop} --volumes -y")).done();
    lab.gone(&shop);
    lab.wait_for("the volume is gone", || volumes(&lab).is_empty());
    lab.engine(&["volume", "inspect", &external.0]).done();
}

#[test]
fn volumes_go_as_promised_though_the_daemon_was_killed_in_between() {
    let Some(mut lab) = Lab::docker() else { return };
    let shop = lab.name.clone();
    let lines = [
        sh("trap 'until test -e /marks/go; do sleep 0.1; done; exit 0' TERM; sleep 600 & wait"),
        format!("volumes: ['data:/data', '{}:/marks']", lab.path("marks").display()),
        "stop_grace_period: 60s".to_owned(),
    ];
    let file = web(&lines.each_ref().map(String::as_str)) + "volumes: {data: {}}\n";
    lab.settle(&shop, &file);
    lab.run(&format!("delete {shop} --volumes -y -d")).done();
    lab.kill();
    assert_eq!(volumes(&lab).len(), 1);
    std::fs::write(lab.path("marks/go"), "").unwrap();
    lab.start();
    lab.gone(&shop);
    lab.wait_for("the volume is gone", || volumes(&lab).is_empty());
}

#[test]
fn two_cells_on_one_engine_share_no_data_and_no_network_by_the_name_of_a_deployment() {
    let (Some(one), Some(other)) = (Lab::docker(), Lab::docker()) else { return };
    let shop = one.name.clone();
    let script = "echo $$WHO >> /data/who; cat /data/who; trap 'exit 0' TERM; sleep 600 & wait";
    let file = |who: &str| {
        let lines = [
            sh(script),
            format!("environment: {{WHO: {who}}}"),
            "volumes: ['data:/data']".to_owned(),
            "networks: [default]".to_owned(),
        ];
        web(&lines.each_ref().map(String::as_str)) + "volumes: {data: {}}\n"
    };
    one.settle(&shop, &file("one"));
    other.settle(&shop, &file("other"));
    assert_eq!(volumes(&one), [format!("{shop}_data")], "who comes first has the short name");
    assert_eq!(volumes(&other), [format!("{shop}_data.{}", other.name)]);
    let who = |lab: &Lab| lab.run(&format!("logs {shop}-web-1")).done().stdout;
    assert_eq!((who(&one).as_str(), who(&other).as_str()), ("one\n", "other\n"));
    let networks = |lab: &Lab| -> Vec<String> {
        let filter = format!("label=plimsoll.cell={}", lab.name);
        let format = ["network", "ls", "--format", "{{.Name}}", "--filter", &filter];
        lab.engine(&format).done().stdout.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(networks(&one), [format!("{shop}_default")]);
    assert_eq!(networks(&other), [format!("{shop}_default.{}", other.name)]);

    one.run(&format!("delete {shop} --volumes -y")).done();
    one.gone(&shop);
    one.wait_for("its volume is gone", || volumes(&one).is_empty());
    // The short name is free again, and the data stays where it is.
    other.run(&format!("restart {shop}")).done();
    other.steady(&shop);
    assert_eq!(who(&other), "other\nother\n");
    assert_eq!(volumes(&other).len(), 1);
    other.run(&format!("delete {shop} --volumes -y")).done();
    other.gone(&shop);
    other.wait_for("its volume is gone", || volumes(&other).is_empty());
}
