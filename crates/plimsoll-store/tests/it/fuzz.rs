//! Backups that were broken at random: each is restored or refused. Their checksum is made to fit, as who gives one away would.

use std::fs;

use plimsoll_fuzz::Fuzz;
use plimsoll_model::testkit::{cell, cpus, node_id, spread};
use plimsoll_model::{Term, Timestamp};
use plimsoll_store::{Machine, backup};

use crate::support::TempDir;

/// Where the header has the checksum and the length of what follows it.
const CHECKSUM: std::ops::Range<usize> = 12..16;
const LENGTH: std::ops::Range<usize> = 16..24;

/// The file with the checksum and the length that fit its content.
fn mended(file: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    if file.len() >= LENGTH.end {
        let body = &file[LENGTH.end..];
        let (checksum, length) = (crc32c::crc32c(body), body.len() as u64);
        file[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        file[LENGTH].copy_from_slice(&length.to_le_bytes());
    }
    file
}

#[test]
fn no_broken_backup_breaks_its_reader_or_a_restore() {
    let dir = TempDir::new();
    let file = dir.join("cell.backup");
    let cell = cell().node("ash", cpus(4)).node("birch", cpus(2));
    let state = cell.deploy("shop", [("web", spread(2))]).obey().state;
    backup::take(&Machine::new(state, 12), Term(3), &file).unwrap();
    let whole = fs::read(&file).unwrap();
    assert_eq!(mended(&whole), whole, "as it is written");
    let mut restored = 0_u32;
    Fuzz::new("backup").one_of(3).input(whole).run(|input| {
        fs::write(&file, mended(input)).unwrap();
        let summary = backup::verify(&file);
        assert_eq!(summary.is_ok(), backup::state(&file).is_ok(), "what is checked can be read");
        if summary.is_ok() {
            let into = dir.join("restored");
            restored +=
                u32::from(backup::restore(&file, &into, &node_id("ash"), Timestamp(9)).is_ok());
            fs::remove_dir_all(into).ok();
        }
    });
    assert!(restored > 0, "none could be restored, which tests little");
}
