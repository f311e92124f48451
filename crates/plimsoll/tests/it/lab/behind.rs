//! What others do on the engine while the daemon looks elsewhere.

use std::path::PathBuf;

use super::compose::web;
use super::harness::{Lab, Runtime, assignments, clear, docker};

#[test]
fn a_container_that_is_removed_or_stopped_by_another_comes_back() {
    let Some(lab) = Lab::docker() else { return };
    lab.settle("shop", &web(&["deploy: {replicas: 2}"]));
    let first = lab.found();
    lab.engine(&["rm", "-f", &first[0].id]).done();
    let repaired = lab.wait_found("another takes its place", |found| {
        found.len() == 2 && found.iter().all(|one| one.is_running && one.id != first[0].id)
    });
    assert!(repaired.contains(&first[1]), "the other is left alone");
    lab.steady("shop");

    lab.engine(&["stop", &first[1].id]).done();
    let restarted = lab.wait_found("it runs again", |found| {
        found.len() == 2 && found.iter().all(|one| one.is_running) && !found.contains(&first[1])
    });
    assert!(restarted.contains(&repaired[0]), "the other is left alone");
    let shop = lab.steady("shop");
    let failures = assignments(&shop).map(|it| it.failures).collect::<Vec<_>>();
    assert_eq!(failures, [1, 1], "each failed once");
}

/// Another cell on the same engine. What it has goes with it.
struct Other(PathBuf, String);

impl Drop for Other {
    fn drop(&mut self) {
        clear(&self.0, &self.1);
    }
}

#[test]
fn orphans_are_removed_and_what_is_another_cells_is_not() {
    let Some(mut lab) = Lab::docker() else { return };
    lab.settle("shop", &web(&[]));
    let own = lab.found();
    lab.kill();
    let Runtime::Docker(socket) = lab.runtime.clone() else { return };
    let run = |cell_id: &str, replica: &str, generation: u64| {
        let name = format!("{}.g{generation}.{cell_id}", replica.replace('/', "-"));
        let labels = [
            format!("plimsoll.cell={cell_id}"),
            format!("plimsoll.replica={replica}"),
            format!("plimsoll.generation={generation}"),
        ];
        let labels = labels.each_ref().map(|label| ["--label", label.as_str()]).concat();
        let run = ["run", "-d", "--network", "none", "--stop-timeout", "1", "--name", &name];
        let said =
            docker(&socket, &[&run, labels.as_slice(), &["plimsoll-test:1"]].concat()).done();
        said.stdout.trim().to_owned()
    };
    let other = Other(socket.clone(), format!("{}x", lab.name));
    let foreign = run(&other.1, "shop/web/1", 1);
    let orphans = [run(&lab.name, "old/web/1", 90), run(&lab.name, "shop/web/1", 91)];
    assert_eq!(lab.found().len(), 3);
    lab.start();
    lab.wait_found("orphans are gone", |found| found == own);
    assert!(lab.inspect(&orphans.each_ref().map(String::as_str)).is_empty());
    let foreign = lab.inspect(&[&foreign]);
    assert_eq!(foreign[0]["State"]["Running"], true, "it is not ours");
    lab.steady("shop");
}
