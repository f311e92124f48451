//! Snapshots that were broken at random, under their seal and outside of it: each is read whole or refused.

use std::io::Write as _;

use plimsoll_fuzz::Fuzz;
use plimsoll_model::CellId;
use plimsoll_model::testkit::{cell, cpus, spread};

use super::super::types::{Mark, MembershipRecord};
use super::*;
use crate::disk::sim::SimDisk;
use crate::disk::{read_whole, replace};
use crate::engine::{Peer, ServerId};
use crate::keys;

/// What a snapshot holds: who the servers are, and then the state.
fn plain() -> Vec<u8> {
    let mark = Mark { term: 3, index: 40 };
    let roster = MembershipRecord::alone(ServerId(1), Peer::default());
    let header = Header { last: Some(mark), roster_at: Some(mark), roster };
    let cell = cell().node("ash", cpus(4)).deploy("shop", [("web", spread(2))]);
    let mut bytes = postcard::to_stdvec(&header).unwrap();
    stream_state(&cell.state, &mut bytes).unwrap();
    bytes
}

struct Bench {
    disk: Arc<dyn Disk>,
    snapshots: Snapshots,
}

impl Bench {
    fn new() -> Self {
        let (disk, dir) = (Arc::new(SimDisk::new()) as Arc<dyn Disk>, Path::new("data"));
        disk.create_dir(dir).unwrap();
        let keys = keys::generate(disk.as_ref(), dir, None).unwrap();
        let snapshots = Snapshots::new(&disk, dir, &keys);
        Self { disk, snapshots }
    }

    /// As a server with the same keys would write this content. The name is synced: a disk remembers what a crash might bring
    /// back, and that would be every case.
    fn seal(&self, plain: &[u8]) {
        let path = &self.snapshots.path;
        let file = self.disk.create(path).unwrap();
        let keys = &self.snapshots.keys;
        let mut body = SealWriter::new(keys, CONTEXT, BodyWriter::to(file)).unwrap();
        body.write_all(plain).unwrap();
        body.finish().unwrap().0.finish(&SNAPSHOT).unwrap();
        self.disk.sync_dir(path.parent().unwrap()).unwrap();
    }

    fn read(&self) -> Option<(Header, State)> {
        self.snapshots.key_in_use().ok();
        let loaded = self.snapshots.load().ok().flatten()?;
        if let Ok(meta) = loaded.0.meta() {
            assert_eq!(meta.last_log_id.map(|id| id.index), loaded.0.last.map(|mark| mark.index));
        }
        Some(loaded)
    }
}

#[test]
fn no_broken_content_of_a_snapshot_breaks_its_reader() {
    let bench = Bench::new();
    bench.seal(&plain());
    assert!(bench.read().is_some(), "one that is whole is read");
    Fuzz::new("snapshot").one_of(3).input(plain()).run(|input| {
        bench.seal(input);
        bench.read();
    });
}

/// What lies on a disk: the seal tells whatever was changed, also where the checksum was made to fit.
#[test]
fn no_broken_snapshot_file_is_read_as_another() {
    let bench = Bench::new();
    bench.seal(&plain());
    let (_, state) = bench.read().unwrap();
    let file = read_whole(bench.disk.as_ref(), &bench.snapshots.path).unwrap().unwrap();
    assert_eq!(*state.cell_id(), CellId::new("test").unwrap());
    Fuzz::new("snapshot file").one_of(3).input(file).run(|input| {
        let body = input.get(usize::try_from(FileFormat::body_at()).unwrap()..).unwrap_or_default();
        for written in [input.to_vec(), SNAPSHOT.encode(body)] {
            replace(bench.disk.as_ref(), &bench.snapshots.path, &written).unwrap();
            if let Some((_, found)) = bench.read() {
                assert!(found == state, "it was read as something else");
            }
        }
    });
}
