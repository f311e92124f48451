//! Volumes of a cell of three: where they are, what becomes of them when they move, and what stays when that fails.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Cell, Site};

mod backups;

const NAMES: [&str; 3] = ["ash", "birch", "cedar"];

/// Writes a row ten times a second.
const SHOP: &str = r#"
name: shop
services:
  db:
    image: any
    command: [sh, -c, 'while :; do echo row >> data/rows; sleep 0.1; done']
    volumes: ['data:/data']
volumes: {data: {}}
"#;

/// A cell with the service, where its volume is, and another node.
fn cell() -> (Cell, usize, usize) {
    let cell = Cell::of_three(Site::Loopback);
    fs::write(cell.dir.path().join("compose.yaml"), SHOP).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    let src = home(&cell);
    (cell, src, (src + 1) % NAMES.len())
}

/// The directory of the volume on a node.
fn dir(cell: &Cell, at: usize) -> PathBuf {
    let id = cell.json(0, "cell status -o json")["name"].as_str().unwrap().to_owned();
    cell.path(at).join("process").join(id).join("volumes/shop/data")
}

fn rows(dir: &Path) -> usize {
    fs::read_to_string(dir.join("rows")).map_or(0, |text| text.lines().count())
}

/// Which node has the data.
fn home(cell: &Cell) -> usize {
    let volumes = cell.json(0, "volume list -o json");
    let copies = volumes[0]["copies"].as_array().unwrap().clone();
    let holder = copies.iter().find(|copy| copy["state"] == "data").unwrap();
    NAMES.iter().position(|name| holder["node"] == *name).unwrap()
}

fn until_running_on(cell: &Cell, at: usize) {
    cell.until("the service runs there", |cell| cell.running_on(0) == [NAMES[at]]);
}

#[test]
fn a_volume_moves_with_all_its_rows_and_the_old_copy_goes_when_told() {
    let (cell, src, dst) = cell();
    let (old, new) = (dir(&cell, src), dir(&cell, dst));
    cell.until("it has written something", |_| rows(&old) > 3);
    let used = cell.run(0, "volume rm shop_data");
    assert_eq!(used.code(), 1, "{}", used.text());
    assert!(used.stderr().contains("is used by shop-db-1"), "{}", used.text());

    let moved = cell.run(2, &format!("volume move shop_data {}", NAMES[dst]));
    assert_eq!(moved.code(), 0, "{}", moved.text());
    let left = rows(&old);
    assert!(left > 3);
    until_running_on(&cell, dst);
    cell.until("it goes on writing", |_| rows(&new) > left);
    assert_eq!(rows(&old), left, "nothing writes the old copy");

    let shown = cell.run(1, "volume inspect shop_data");
    assert!(shown.stdout().contains("keeps an old copy"), "{}", shown.text());
    let removed = cell.run(1, &format!("volume rm shop_data --node {}", NAMES[src]));
    assert_eq!(removed.code(), 0, "{}", removed.text());
    assert!(!old.exists() && rows(&new) > left);
    assert_eq!(home(&cell), dst);
}

#[test]
fn a_volume_that_is_there_already_keeps_what_is_in_it_and_the_service_stays() {
    let (cell, src, dst) = cell();
    let foreign = dir(&cell, dst);
    fs::create_dir_all(&foreign).unwrap();
    fs::write(foreign.join("letter"), "dear Ann").unwrap();
    let refused = cell.run(0, &format!("volume move shop_data {}", NAMES[dst]));
    assert_eq!(refused.code(), 2, "{}", refused.text());
    assert!(refused.stderr().contains("is here already"), "{}", refused.text());
    until_running_on(&cell, src);
    assert_eq!(home(&cell), src);
    cell.until("nothing is left to remove", |cell| {
        let volumes = cell.json(0, "volume list -o json");
        volumes[0]["copies"].as_array().unwrap().len() == 1
    });
    assert_eq!(fs::read_to_string(foreign.join("letter")).unwrap(), "dear Ann");
}

#[test]
fn a_node_with_data_is_drained() {
    let (cell, src, _) = cell();
    let old = dir(&cell, src);
    cell.until("it has written something", |_| rows(&old) > 3);
    let drained = cell.run(0, &format!("node drain {} --move-volumes", NAMES[src]));
    assert_eq!(drained.code(), 0, "{}", drained.text());
    assert!(drained.stdout().contains("shop_data moves to"), "{}", drained.text());
    let now = home(&cell);
    assert_ne!(now, src);
    until_running_on(&cell, now);
    cell.until("it goes on writing", |cell| rows(&dir(cell, now)) > rows(&old));
}
