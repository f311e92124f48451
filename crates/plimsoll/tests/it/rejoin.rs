//! A data directory that holds one cell, and a start that asks for another: what is asked for and what is there disagree.

use std::fs;
use std::process::{Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_lab::NAMES;

use crate::harness::{Cell, Site, loopback};
use crate::run::binary;

/// A start that has not ended by then has begun to serve.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

impl Cell {
    /// A start that ends by itself, in the data directory of this node.
    pub(crate) fn start(&self, at: usize, more: &[&str]) -> Output {
        let mut command = binary();
        command.args(["up", "--runtime", "process", "--address", &loopback(at), "--data-dir"]);
        command.arg(self.path(at)).args(more).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut started = command.spawn().unwrap();
        let begun = Instant::now();
        while started.try_wait().unwrap().is_none() {
            if begun.elapsed() > ENDS_WITHIN {
                started.kill().unwrap();
            }
            sleep(Duration::from_millis(50));
        }
        started.wait_with_output().unwrap()
    }

    /// What a start says that is refused.
    #[track_caller]
    pub(crate) fn refused(&self, at: usize, more: &[&str]) -> String {
        let ended = self.start(at, more);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains(self.path(at).to_str().unwrap()), "it names the directory: {said}");
        said
    }

    fn cell_id(&self, at: usize) -> String {
        self.json(at, "cell status -o json")["name"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn until_it_has(&self, at: usize, count: usize) {
        self.until("so many nodes are of the cell", |cell| {
            let nodes = cell.json(at, "node list -o json");
            let nodes = nodes.as_array().cloned().unwrap_or_default();
            nodes.len() == count && nodes.iter().all(|node| node["status"] == "ready")
        });
    }
}

#[test]
fn a_node_of_one_cell_is_not_started_for_another() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    // A cell by mistake: somebody forgot --join.
    cell.up(1, None);
    let (ours, mistaken) = (cell.cell_id(0), cell.cell_id(1));
    cell.stop(1);
    let token = cell.token(0);
    let said = cell.refused(1, &["--join", &token]);
    let expected =
        format!("holds node birch of cell {mistaken}, and the token in --join is for another");
    assert!(said.contains(&expected), "{said}");
    assert!(said.contains("leave out --join") && said.contains("delete this one"), "{said}");

    // As it says: the directory is deleted, and the token is still good.
    fs::remove_dir_all(cell.path(1)).unwrap();
    let ended = cell.start(1, &["--name", "birch", "--join", &token, "--cell", "other"]);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("the token is for cell {ours}, and --cell names other")),
        "{said}"
    );
    cell.setups[1].args = ["--cell", &ours].map(str::to_owned).into();
    cell.up(1, Some(&token));
    cell.until_it_has(0, 2);
    cell.stop(1);
    let said = cell.refused(1, &["--cell", "other"]);
    assert!(said.contains(&format!("belongs to cell {ours}, not to other")), "{said}");
    let said = cell.refused(1, &["--cell", "other", "--join", &token]);
    assert!(said.contains(&format!("belongs to cell {ours}, not to other")), "{said}");

    // The same unit file, and another token of the same cell: it is a member already. So is the founder.
    for token in [token, cell.token(0)] {
        cell.up(1, Some(&token));
        cell.until_it_has(0, 2);
        cell.stop(1);
    }
    // Also while nobody of the cell can be asked.
    let token = cell.token(0);
    cell.stop(0);
    cell.up(1, Some(&token));
    cell.up(0, Some(&token));
    cell.until_it_has(0, 2);
}

#[test]
fn a_node_that_its_cell_gave_up_is_told_so_when_it_brings_a_new_token() {
    let mut cell = Cell::of_three(Site::Loopback);
    let ours = cell.cell_id(0);
    cell.stop(2);
    cell.until("it is missed", |cell| {
        let removed = cell.run(0, "node remove cedar --force");
        removed.code() == 0 || cell.run(0, "node remove cedar").code() == 0
    });
    let token = cell.token(0);
    let said = cell.refused(2, &["--join", &token]);
    let expected = format!("holds node {}, which cell {ours} does not have any more", NAMES[2]);
    assert!(said.contains(&expected), "{said}");
    assert!(
        said.contains("use this token with another --data-dir, or with this one emptied"),
        "{said}"
    );
    fs::remove_dir_all(cell.path(2)).unwrap();
    cell.up(2, Some(&token));
    cell.until_it_has(0, 3);
}
