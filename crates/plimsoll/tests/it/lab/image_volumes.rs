//! Volumes that an image declares and the file does not mention.

use super::compose::{compose, sh};
use super::harness::Lab;

/// Says what it finds, and adds a line to it.
const SCRIPT: &str = "cat /kept/*; echo ran >> /kept/log; trap 'exit 0' TERM; sleep 600 & wait";

fn file(lines: &[&str]) -> String {
    let command = sh(SCRIPT);
    let mut all = vec!["image: plimsoll-test:data", command.as_str()];
    all.extend(lines);
    compose(&[("db", &all)])
}

fn volumes(lab: &Lab) -> Vec<String> {
    let filter = format!("label=plimsoll.cell={}", lab.name);
    let said = lab.engine(&["volume", "ls", "-q", "--filter", &filter]).done();
    said.stdout.split_whitespace().map(str::to_owned).collect()
}

/// What each container found, in order.
fn found(lab: &Lab) -> Vec<String> {
    let mut found: Vec<String> = lab
        .running(&format!("{}/db", lab.name))
        .iter()
        .map(|container| lab.engine(&["logs", &container.id]).done().stdout.replace('\n', " "))
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn what_is_written_where_an_image_declares_a_volume_outlives_the_container_and_the_deployment() {
    let Some(mut lab) = Lab::docker() else { return };
    let shop = lab.name.clone();
    let service = lab.settle(&shop, &file(&[])).services.remove(0);
    assert_eq!(service.image_volumes, ["/kept"]);
    assert_eq!(found(&lab), ["seed "], "what the image has there is there");
    let of_cell = volumes(&lab);
    assert_eq!(of_cell.len(), 1);
    assert!(of_cell[0].starts_with(&format!("{shop}_db.1.")), "{of_cell:?}");

    lab.settle(&shop, &file(&["labels: {tier: gold}"]));
    assert_eq!(found(&lab), ["ran seed "], "another label, another container, the same data");
    lab.kill();
    lab.start();
    let said = lab.run_reading(&format!("apply -f - -p {shop}"), &file(&["labels: {tier: tin}"]));
    let said = said.done().stderr;
    assert!(said.contains("its image declares volumes at /kept"), "{said}");
    assert_eq!(found(&lab), ["ran ran seed "]);
    let explained = lab.run(&format!("explain {shop}-db-1")).done().stdout;
    assert!(explained.contains("declares volumes at /kept"), "{explained}");

    let deleted = lab.run(&format!("delete {shop} -o json")).done().json();
    assert_eq!(deleted["volumes_kept"], serde_json::json!(["db:/kept"]));
    lab.gone(&shop);
    let file = file(&[]);
    let planned = lab.run_reading(&format!("apply --dry-run -f - -p {shop}"), &file).done().stderr;
    assert!(planned.contains("image_volumes"), "it is known before it runs: {planned}");
    lab.settle(&shop, &file);
    assert_eq!(found(&lab), ["ran ran ran seed "]);
    assert_eq!(volumes(&lab), of_cell);

    lab.run(&format!("delete {shop} --volumes -y")).done();
    lab.gone(&shop);
    lab.wait_for("the volume is gone", || volumes(&lab).is_empty());
}

#[test]
fn each_replica_has_its_own_and_finds_it_again() {
    let Some(lab) = Lab::docker() else { return };
    let shop = lab.name.clone();
    let scaled = |count: u32| file(&[&format!("deploy: {{replicas: {count}}}")]);
    lab.settle(&shop, &scaled(1));
    lab.run(&format!("restart {shop}")).done();
    lab.steady(&shop);
    assert_eq!(found(&lab), ["ran seed "]);
    lab.settle(&shop, &scaled(2));
    assert_eq!(found(&lab), ["ran seed ", "seed "], "the second begins with nothing of the first");
    assert_eq!(volumes(&lab).len(), 2);
    lab.run(&format!("delete {shop}")).done();
    lab.settle(&shop, &scaled(2));
    assert_eq!(found(&lab), ["ran ran seed ", "ran seed "], "while the former may still stop");
    assert_eq!(volumes(&lab).len(), 2);
    lab.run(&format!("delete {shop} --volumes -y")).done();
    lab.gone(&shop);
    lab.wait_for("the volumes are gone", || volumes(&lab).is_empty());
}
