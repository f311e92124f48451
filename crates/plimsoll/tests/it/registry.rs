//! Images of real registries on a cell of three: a server that runs processes, and two nodes with an engine each. One
//! revision is one image wherever it runs, and what a private registry is shown is nowhere to be found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use plimsoll_lab::LabEngine;
use serde_json::Value;

use crate::harness::{Cell, NodeSetup, Site};
use crate::hostile::secrets::{fed, files_with, has};
use crate::lab::harness::{docker, lab, unique};
use crate::run::{Ran, run_in};

/// The node without an engine, which leads; the others have one.
const SERVER: usize = 0;

struct RegistryCell {
    // Before the engines: what runs on them is asked for by it.
    cell: Cell,
    engines: Vec<LabEngine>,
    /// The lab's own engine, from which images are pushed.
    pusher: PathBuf,
    /// The name of an image that is this test's alone, with its registry.
    image: String,
}

/// None where that cannot be. `registry` is the variable that has its address.
fn registry_cell(registry: &str) -> Option<RegistryCell> {
    let (pusher, registry) = (lab("DOCKER")?, lab(registry)?);
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can start an engine");
        return None;
    }
    let engines: Vec<LabEngine> = (0..2).map(|_| LabEngine::new(unique(), None)).collect();
    thread::scope(|scope| {
        for engine in &engines {
            scope.spawn(|| engine.start().and_then(|()| engine.serve_registries()).unwrap());
        }
    });
    let mut cell = Cell::idle(Site::Loopback);
    // What whoever runs the tests has logged in to is not for these daemons.
    let config = cell.dir.path().join("no-docker-config").display().to_string();
    for (at, engine) in engines.iter().enumerate() {
        let environment = vec![("DOCKER_CONFIG".to_owned(), config.clone())];
        let engine = Some(engine.socket());
        cell.setups[at + 1] = NodeSetup { environment, engine, ..NodeSetup::default() };
    }
    cell.form(3);
    let image = format!("{registry}/{}", unique());
    Some(RegistryCell { cell, engines, pusher: pusher.into(), image })
}

impl RegistryCell {
    /// Has the tag stand for an image with this version in its environment.
    fn push(&self, tag: &str, version: &str) {
        let config = self.cell.dir.path().join("pusher");
        fs::create_dir_all(&config).unwrap();
        let pair =
            format!("{}:{}", lab("REGISTRY_USER").unwrap(), lab("REGISTRY_PASSWORD").unwrap());
        let host = self.image.split('/').next().unwrap();
        let auth = base64(&pair);
        let text = format!(r#"{{"auths": {{"{host}": {{"auth": "{auth}"}}}}}}"#);
        fs::write(config.join("config.json"), text).unwrap();

        let image = format!("{}:{tag}", self.image);
        let made = docker(&self.pusher, &["create", "plimsoll-test:1"]).done();
        let id = made.stdout.trim().to_owned();
        let change = format!("ENV VERSION={version}");
        docker(&self.pusher, &["commit", "--change", &change, &id, &image]).done();
        docker(&self.pusher, &["rm", &id]).done();
        let mut push = Command::new("docker");
        push.arg("--config")
            .arg(&config)
            .arg("-H")
            .arg(format!("unix://{}", self.pusher.display()));
        let pushed = push.args(["push", "-q", &image]).stdin(Stdio::null()).output().unwrap();
        assert!(pushed.status.success(), "{pushed:?}");
        docker(&self.pusher, &["rmi", &image]).done();
        // It has the password, which is looked for later.
        fs::remove_dir_all(&config).unwrap();
    }

    fn write(&self, tag: &str, replicas: u32) {
        let text = format!(
            "name: shop\nservices:\n  web:\n    image: {}:{tag}\n    deploy: {{replicas: {replicas}}}\n",
            self.image
        );
        fs::write(self.cell.dir.path().join("compose.yaml"), text).unwrap();
    }

    #[track_caller]
    fn run(&self, args: &str) -> Ran {
        let ran = self.cell.run(SERVER, args);
        assert_eq!(ran.code(), 0, "{}", ran.text());
        ran
    }

    /// The version that each container has which runs, by engine.
    fn versions(&self) -> Vec<Vec<String>> {
        let of = |engine: &LabEngine| {
            let ids = docker(&engine.socket(), &["ps", "-q"]).stdout;
            let format = r"{{range .Config.Env}}{{println .}}{{end}}";
            let version = |id: &str| {
                let said = docker(&engine.socket(), &["inspect", "-f", format, id]).stdout;
                let version = said.lines().find_map(|line| line.strip_prefix("VERSION="));
                version.unwrap_or("none").to_owned()
            };
            ids.split_whitespace().map(version).collect()
        };
        self.engines.iter().map(of).collect()
    }

    #[track_caller]
    fn until_versions(&self, expected: &[&[&str]]) {
        self.cell.until(&format!("containers run {expected:?}"), |_| self.versions() == expected);
        self.cell.until("the deployment is steady", |cell| {
            cell.json(SERVER, "status -o json")["deployments"][0]["progress"]["is"] == "steady"
        });
    }

    fn shop(&self) -> Value {
        self.cell.get(SERVER, "/v1/deployments/shop").unwrap_or_default()
    }

    /// Why a replica of it cannot be pulled.
    fn refusal(&self) -> Option<String> {
        let now = &self.shop()["services"][0]["replicas"][0]["now"];
        let reason = &now["reason"];
        let is_it = reason["word"] == "image_pull_failed";
        is_it.then(|| reason["text"].as_str().unwrap_or_default().to_owned())
    }
}

fn base64(text: &str) -> String {
    use std::io::Write;
    let mut child = Command::new("base64")
        .arg("-w0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn a_revision_is_one_image_on_every_node_wherever_its_tag_goes() {
    let Some(it) = registry_cell("REGISTRY") else { return };
    it.push("1", "one");
    it.write("1", 1);
    let applied = it.run("apply -f compose.yaml");
    assert!(!applied.stderr().contains("image_not_pinned"), "{}", applied.text());
    let first = it.shop()["services"][0].clone();
    let digest = first["digest"].as_str().expect("it is pinned").to_owned();
    assert_eq!(first["image"], format!("{}:1", it.image), "it is shown as it was written");

    // The second node pulls after the tag has gone elsewhere.
    it.push("1", "two");
    it.run("scale shop web=2");
    it.until_versions(&[&["one"], &["one"]]);

    let dry = it.run("apply -f compose.yaml --dry-run");
    it.write("1", 2);
    assert!(dry.stdout().contains(&format!("digest: {digest} → sha256:")), "{}", dry.text());
    assert_eq!(it.shop()["services"][0]["digest"], digest, "nothing was written");
    it.run("apply -f compose.yaml");
    it.until_versions(&[&["two"], &["two"]]);
    let revision = it.shop()["revision"].clone();
    it.run("apply -f compose.yaml");
    assert_eq!(it.shop()["revision"], revision, "the same image again is no change");

    it.run("rollback shop");
    it.until_versions(&[&["one"], &["one"]]);
    assert_eq!(it.shop()["services"][0]["digest"], digest, "the tag has not come back with it");
}

/// What was found of the password: nothing, wherever one looks.
fn must_be_nowhere(it: &RegistryCell, password: &str) {
    let cell = &it.cell;
    assert_eq!(files_with(cell.dir.path(), password), [] as [PathBuf; 0]);
    assert_eq!(files_with(cell.dir.path(), &base64(password)), [] as [PathBuf; 0]);
    for engine in &it.engines {
        let dir = engine.socket();
        let dir: &Path = dir.parent().unwrap();
        let found = files_with(dir, password);
        // The lab's own registries are told it in a form that nobody can read back.
        assert_eq!(found, [] as [PathBuf; 0]);
    }
    for at in cell.nodes() {
        for path in [
            "/v1/registries",
            "/v1/deployments/shop",
            "/v1/deployments/shop/history",
            "/v1/deployments/shop/revisions/1",
            "/v1/replicas",
            "/v1/audit",
            "/v1/status",
            "/v1/snapshot",
            "/metrics",
        ] {
            let answer = cell.get(at, path).unwrap_or_default().to_string();
            assert!(!has(answer.as_bytes(), password), "{path}: {answer}");
        }
    }
}

#[test]
fn a_private_registry_opens_to_the_cell_that_logged_in_and_gives_no_password_away() {
    let Some(it) = registry_cell("PRIVATE_REGISTRY") else { return };
    let (user, password) = (lab("REGISTRY_USER").unwrap(), lab("REGISTRY_PASSWORD").unwrap());
    let host = it.image.split('/').next().unwrap().to_owned();
    it.push("1", "one");
    it.push("2", "two");
    it.write("1", 2);

    let applied = it.run("apply -f compose.yaml -d");
    let advice = format!("plimsoll registry login {host} -u USER --password-stdin");
    assert!(applied.stderr().contains("(image_not_pinned)"), "{}", applied.text());
    assert!(applied.stderr().contains(&advice), "{}", applied.text());
    it.cell.until("the pull is denied", |_| it.refusal().is_some());
    let refusal = it.refusal().unwrap();
    assert!(refusal.contains(&advice), "{refusal}");
    let explained = it.run("explain shop-web-1").stdout();
    assert!(explained.contains("is used by its tag: the registry denied access"), "{explained}");

    let login = format!("registry login {host} -u {user} --password-stdin");
    let wrong = fed(&it.cell, &login, "a-wrong-password\n");
    assert_eq!(wrong.code(), 0, "{}", wrong.text());
    it.cell.until("it is denied to the user", |_| {
        it.refusal().is_some_and(|text| text.contains(&format!("denied user {user} access")))
    });
    let right = fed(&it.cell, &login, &format!("{password}\n"));
    assert_eq!(right.stdout(), format!("logged in to {host} as {user}\n"));
    // Not after the time that a failed pull waits for its next try: that is minutes by now.
    it.until_versions(&[&["one"], &["one"]]);
    let pinned = it.run("apply -f compose.yaml");
    assert!(!pinned.stderr().contains("image_not_pinned"), "{}", pinned.text());
    assert!(it.shop()["services"][0]["digest"].is_string());
    it.until_versions(&[&["one"], &["one"]]);

    let listed = it.run("registry list").stdout();
    assert!(listed.contains(&host) && listed.contains(&user), "{listed}");
    let audit = it.run("audit --type registry_login").stdout();
    let said = format!("logged in to registry {host} as {user}");
    assert!(audit.contains(&said) && audit.contains("unix:"), "{audit}");
    must_be_nowhere(&it, &password);
    must_be_nowhere(&it, "a-wrong-password");

    // Whoever may deploy uses them, and can neither see, change nor end them.
    let ci = it.run("token create ci --role deploy").stdout().trim().to_owned();
    let as_ci = |args: &str| run_in(it.cell.dir.path(), args, "x", &[("PLIMSOLL_TOKEN", &ci)]);
    for args in ["registry list", login.as_str(), &format!("registry logout {host}")] {
        let refused = as_ci(args);
        assert_eq!(refused.code(), 1, "{args}: {}", refused.text());
        assert!(refused.stderr().contains("needs admin"), "{args}: {}", refused.text());
    }
    it.write("2", 2);
    let applied = as_ci("apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    it.until_versions(&[&["two"], &["two"]]);

    it.run(&format!("registry logout {host}"));
    let listed = it.run("registry list").stdout();
    assert!(listed.contains("has no credentials"), "{listed}");
    it.push("3", "three");
    it.write("3", 2);
    let applied = it.run("apply -f compose.yaml -d");
    assert!(applied.stderr().contains(&advice), "{}", applied.text());
    let gone = it.cell.run(SERVER, &format!("registry logout {host}"));
    assert_eq!(gone.code(), 1, "{}", gone.text());
    assert_eq!(it.versions(), [["two"], ["two"]], "what runs runs on");
}
