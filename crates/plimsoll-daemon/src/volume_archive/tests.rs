use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// A volume with some of everything.
fn volume() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("base/1")).unwrap();
    fs::write(at("base/1/data"), vec![7; 300_000]).unwrap();
    fs::write(at("base/empty"), b"").unwrap();
    fs::hard_link(at("base/1/data"), at("base/other-name")).unwrap();
    symlink("/etc/passwd", at("outside")).unwrap();
    symlink("base/1", at("inside")).unwrap();
    fs::set_permissions(at("base/empty"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(at("base"), fs::Permissions::from_mode(0o1750)).unwrap();
    let name = c"fifo";
    let root = open_root(dir.path()).unwrap();
    rustix::fs::mknodat(&root, name, FileType::Fifo, Mode::from(0o640), 0).unwrap();
    let old = Timespec { tv_sec: 1_000_000, tv_nsec: 5 };
    let old = Timestamps { last_access: old, last_modification: old };
    rustix::fs::utimensat(&root, c"base", &old, AtFlags::empty()).unwrap();
    dir
}

fn archive(dir: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(dir, &mut bytes).unwrap();
    bytes
}

fn unpacked(bytes: &[u8]) -> Result<tempfile::TempDir, String> {
    let dir = tempfile::tempdir().unwrap();
    read(dir.path(), bytes).map_err(|error| error.to_string())?;
    Ok(dir)
}

#[test]
fn a_volume_comes_out_as_it_went_in() {
    let from = volume();
    let bytes = archive(from.path());
    let to = unpacked(&bytes).unwrap();
    assert_eq!(measure(from.path()).unwrap(), VolumeTotals { files: 8, bytes: 300_000 });
    assert_eq!(measure(to.path()).unwrap(), measure(from.path()).unwrap());
    for path in ["", "base", "base/1", "base/1/data", "base/empty", "outside", "inside", "fifo"] {
        let look = |dir: &Path| {
            let it = fs::symlink_metadata(dir.join(path)).unwrap();
            (it.mode(), it.uid(), it.gid(), it.mtime(), it.mtime_nsec())
        };
        assert_eq!(look(to.path()), look(from.path()), "{path:?}");
    }
    let at = |path: &str| to.path().join(path);
    assert_eq!(fs::read(at("base/1/data")).unwrap(), vec![7; 300_000]);
    assert_eq!(fs::read_link(at("outside")).unwrap(), Path::new("/etc/passwd"));
    let inode = |path: &str| fs::metadata(at(path)).unwrap().ino();
    assert_eq!(inode("base/1/data"), inode("base/other-name"), "one file with two names");
    assert_eq!(archive(to.path()), bytes, "and again the same");
}

#[test]
fn a_stream_that_was_cut_or_changed_is_refused() {
    let bytes = archive(volume().path());
    for cut in (0..bytes.len()).step_by(7_001).chain([bytes.len() - 1]) {
        assert!(unpacked(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let middle = bytes.windows(100).position(|piece| piece == [7; 100]).unwrap();
    let mut changed = bytes;
    changed[middle] = 8;
    let said = unpacked(&changed).unwrap_err();
    assert_eq!(said, "the checksum is wrong: it was changed on its way");
    assert!(unpacked(b"something else altogether").is_err());
}

fn forged(entries: Vec<(&str, EntryKind)>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (path, kind) in entries {
        let uid = rustix::process::getuid().as_raw();
        let gid = rustix::process::getgid().as_raw();
        let entry = Entry {
            path: path.as_bytes().to_vec(),
            kind,
            mode: 0o644,
            owner: (uid, gid),
            modified: (0, 0),
            attributes: Vec::new(),
        };
        bytes.extend(framed(&Record::Entry(entry)));
    }
    bytes
}

#[test]
fn nothing_is_written_outside_of_the_volume() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().as_os_str().as_bytes().to_vec();
    for (case, entries) in [
        ("up", vec![("../x", EntryKind::File { size: 0 })]),
        ("up later", vec![("a", EntryKind::Directory), ("a/../../x", EntryKind::Fifo)]),
        ("absolute", vec![("/tmp/plimsoll-x", EntryKind::File { size: 0 })]),
        ("nothing", vec![("a//b", EntryKind::File { size: 0 })]),
        (
            "through a symlink",
            vec![("a", EntryKind::Symlink { target }), ("a/x", EntryKind::File { size: 0 })],
        ),
        ("a link out", vec![("a", EntryKind::Link { to: b"../x".to_vec() })]),
        ("twice", vec![("a", EntryKind::File { size: 0 }), ("a", EntryKind::File { size: 0 })]),
    ] {
        assert!(unpacked(&forged(entries)).unwrap_err().starts_with("cannot write"), "{case}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn what_is_there_already_is_not_written_over() {
    let bytes = archive(volume().path());
    let full = volume();
    let said = read(full.path(), bytes.as_slice()).unwrap_err().to_string();
    assert_eq!(said, "the volume is not empty");
}
