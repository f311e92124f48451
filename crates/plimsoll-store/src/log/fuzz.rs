//! Segments that were broken at random: a log is opened or refused, never misread, and what it shows can be read.

use std::path::Path;

use plimsoll_fuzz::Fuzz;

use super::tests::{DIR, append, contents, open, segment};
use crate::disk::sim::SimDisk;
use crate::disk::{Disk, read_whole, replace};

#[test]
fn no_broken_segment_breaks_the_log() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, 0).unwrap();
    append(&log, 4, 0).unwrap();
    let whole = contents(&log);
    drop(log);
    let written = read_whole(&disk, &segment(0)).unwrap().unwrap();
    Fuzz::new("segment").input(written).run(|input| {
        let disk = SimDisk::new();
        disk.create_dir(Path::new(DIR)).unwrap();
        replace(&disk, &segment(0), input).unwrap();
        let Ok((log, _)) = open(&disk, 0) else { return };
        for (found, expected) in contents(&log).iter().zip(&whole) {
            assert_eq!(found, expected, "an entry is whole, or it is not there");
        }
        // It goes on from what is left, and is the same when it is opened again.
        append(&log, 2, 1).unwrap();
        let after = contents(&log);
        drop(log);
        let (log, cut) = open(&disk, 0).unwrap();
        assert_eq!((contents(&log), cut), (after, None));
    });
}
