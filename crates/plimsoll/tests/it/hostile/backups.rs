//! Somebody with a backup of the cell, and with a token that is no admin's: neither has the cell's secrets.

use std::fs;

use plimsoll_store::backup;
use plimsoll_store::keys::CellKey;

use super::{code, run_with, say_tcp, say_unix, token};
use crate::harness::{Cell, Site};
use crate::run::run_in;

const SECRET: &str = "correct-horse-battery-staple-4";

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|part| part == what)
}

#[test]
fn a_backup_gives_nothing_away_and_opens_with_the_key_of_its_cell_alone() {
    let cell = Cell::of_three(Site::Loopback);
    let dir = cell.dir.path();
    let socket = cell.socket(0);
    let made =
        run_in(dir, "secret create db -", SECRET, &[("PLIMSOLL_HOST", socket.to_str().unwrap())]);
    assert_eq!(made.code(), 0, "{}", made.text());
    for file in ["first.backup", "second.backup"] {
        let taken = cell.run(0, &format!("backup {file}"));
        assert_eq!(taken.code(), 0, "{}", taken.text());
        assert!(taken.stderr().contains("hint: it opens with backup key"), "{}", taken.text());
    }
    let first = cell.backup_key(0);
    let (_, state) =
        backup::state(&dir.join("first.backup"), std::slice::from_ref(&first)).unwrap();
    let authority = state.access().authority.clone().unwrap();
    let bytes = fs::read(dir.join("first.backup")).unwrap();
    for (what, secret) in [
        ("a secret", SECRET.as_bytes()),
        ("the authority's key", &authority.key),
        ("the backup key", first.expose()),
        ("its text", first.to_string().as_bytes()),
    ] {
        assert!(!has(&bytes, secret), "{what} is in the backup");
    }

    // What was taken before a rotation opens with the former key, what is taken after with the next.
    let rotated = cell.run(1, "cell backup-key rotate");
    assert_eq!(rotated.code(), 0, "{}", rotated.text());
    let next: CellKey = rotated.stdout().parse().unwrap();
    assert_ne!(next, first);
    assert_eq!(cell.run(2, "backup after.backup").code(), 0);
    fs::write(dir.join("first.key"), first.to_string()).unwrap();
    fs::write(dir.join("both.key"), format!("{first} # until today\n{next}\n")).unwrap();
    let restore = |file: &str, key: &str, into: &str| {
        run_in(
            dir,
            &format!("restore {file} --key-file {key} --data-dir {into} --name ash"),
            "",
            &[],
        )
    };
    let refused = restore("after.backup", "first.key", "none");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    let said =
        format!("is encrypted with backup key {}, and the key given is {}", next.id(), first.id());
    assert!(refused.stderr().contains(&said), "{}", refused.text());
    for (nth, (file, key)) in
        [("first.backup", "first.key"), ("after.backup", "both.key"), ("first.backup", "both.key")]
            .into_iter()
            .enumerate()
    {
        let restored = restore(file, key, &format!("restored-{nth}"));
        assert_eq!(restored.code(), 0, "{file} with {key}: {}", restored.text());
    }

    // Two backups of the same cell, with the same key and nearly the same content. With a checksum that fits they are refused as
    // well, which is shown where backups are read.
    let (one, two) = (bytes, fs::read(dir.join("second.backup")).unwrap());
    let body = |bytes: &[u8]| 25 + bytes[24..].iter().position(|byte| *byte == b'\n').unwrap();
    let spliced = [&one[..body(&one)], &two[body(&two)..]].concat();
    let mut flipped = one.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (case, bytes) in
        [("spliced", spliced), ("flipped", flipped), ("cut", one[..one.len() - 1].to_vec())]
    {
        fs::write(dir.join("bad.backup"), bytes).unwrap();
        let refused = restore("bad.backup", "both.key", "bad");
        assert_eq!(refused.code(), 1, "{case}: {}", refused.text());
        assert!(!dir.join("bad").exists(), "{case}: nothing is begun");
    }
    let audit = cell.run(0, "audit").stdout();
    assert!(audit.contains("backup key shown") && audit.contains("backup key rotated"), "{audit}");
    assert!(!audit.contains("plk_"), "{audit}");
}

#[test]
fn the_backup_key_is_for_admins_and_no_node_has_it_by_itself() {
    let cell = Cell::of_three(Site::Loopback);
    for role in ["read", "deploy"] {
        let bearer = format!("Bearer {}", token(&cell, role, role));
        cell.until_equal(&[0, 1, 2]);
        for line in ["GET /v1/backup/key", "POST /v1/backup/key", "POST /v1/backup"] {
            let said = say_tcp(&cell, 1, line, &[("authorization", &bearer)], b"").unwrap();
            assert_eq!((said.0, code(&said).as_str()), (403, "forbidden"), "{role}: {line}");
        }
    }
    let admin = token(&cell, "root", "admin");
    let shown = run_with(&cell, 1, &admin, "cell backup-key -o json");
    assert!(shown.stdout().contains("plk_"), "{}", shown.text());
    // Nobody else's answers have it.
    for path in ["/v1/cell", "/v1/status", "/v1/audit", "/v1/snapshot", "/healthz", "/metrics"] {
        let (_, body) = say_unix(&cell, 0, &format!("GET {path}"), &[], b"").unwrap();
        assert!(!body.contains("plk_"), "{path}");
    }
}
