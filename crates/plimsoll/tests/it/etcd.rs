//! Cells whose log is on a real etcd: daemons without a log of their own, one that leads and others that are warm. Left out
//! where there is none; `lab/etcd with` and `./test` see to it.

use std::time::Duration;

use plimsoll_etcd::testkit::EtcdLab;

use crate::harness::{Cell, Site};

mod certificates;
mod faults;
mod handover;
mod lost;
mod migration;
mod refusals;
mod rotation;
mod sealed;
mod status;

/// How long a leader that crashed still counts.
const TTL: Duration = Duration::from_secs(2);

/// The key that the cells of these tests seal their values with.
const SEAL_KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/etcd/seal.key");

/// What every node of the cell is told.
fn flags(lab: &EtcdLab) -> Vec<String> {
    let ttl = TTL.as_secs().to_string();
    let endpoints = lab.endpoints.join(",");
    let flags = [
        "--engine",
        "etcd",
        "--cell",
        "home",
        "--etcd-ttl",
        &ttl,
        "--etcd-endpoints",
        &endpoints,
        "--etcd-seal-key-file",
        SEAL_KEY,
    ];
    flags.map(str::to_owned).into()
}

/// So many nodes, all servers, that are heard.
fn cell_of(count: usize, lab: &EtcdLab) -> Cell {
    cell_with(count, lab, |_| {})
}

/// The same, of nodes with habits of their own.
fn cell_with(count: usize, lab: &EtcdLab, accustom: impl FnOnce(&mut Cell)) -> Cell {
    let mut cell = Cell::idle(Site::Loopback);
    accustom(&mut cell);
    for at in 0..count {
        if cell.setups[at].args.is_empty() {
            cell.setups[at].args = flags(lab);
        }
        cell.launch(at, None);
    }
    cell.until_up(0..count);
    cell.until_heard(0, count);
    cell
}
