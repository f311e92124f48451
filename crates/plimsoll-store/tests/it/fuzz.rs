//! Backups that were broken at random: each is refused. Their checksum is made to fit, as who gives one away would.

use std::fs;

use plimsoll_fuzz::Fuzz;
use plimsoll_model::access::KeyBytes;
use plimsoll_model::testkit::{cell, cpus, node_id, spread};
use plimsoll_model::{Change, Term, Timestamp, Writer};
use plimsoll_seal::CellKey;
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
fn a_broken_backup_is_refused_and_breaks_neither_its_reader_nor_a_restore() {
    let dir = TempDir::new();
    let file = dir.join("cell.backup");
    let mut cell = cell().node("ash", cpus(4)).node("birch", cpus(2));
    cell.change(Writer::Operator, Change::CreateBackupKey { secret: KeyBytes([1; 32]) });
    let state = cell.deploy("shop", [("web", spread(2))]).obey().state;
    backup::take(&Machine::new(state, 12), Term(3), &file).unwrap();
    let keys = [CellKey::from_bytes(&[1; 32]).unwrap()];
    let whole = fs::read(&file).unwrap();
    assert_eq!(mended(&whole), whole, "as it is written");
    let into = dir.join("restored");
    let restore = || {
        let held = backup::state(&file, &keys)?;
        backup::restore(held, &into, &node_id("ash"), Timestamp(9))
    };
    Fuzz::new("backup").one_of(3).input(whole.clone()).run(|input| {
        let input = mended(input);
        fs::write(&file, &input).unwrap();
        let _ = backup::verify(&file);
        // Only what stands before the body, and is no part of the backup, may differ.
        let is_same = input.get(LENGTH.end..) == whole.get(LENGTH.end..);
        assert!(is_same || restore().is_err(), "what was changed was believed");
        assert!(!into.exists(), "nothing is restored by half");
    });
    fs::write(&file, &whole).unwrap();
    restore().unwrap();
}
