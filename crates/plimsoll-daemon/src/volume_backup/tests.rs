use std::fs;
use std::os::unix::fs::symlink;

use plimsoll_fuzz::Fuzz;

use super::*;

fn volume() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("base/1")).unwrap();
    fs::write(at("base/1/data"), vec![7; 70_000]).unwrap();
    fs::write(at("base/empty"), b"").unwrap();
    fs::hard_link(at("base/empty"), at("base/other-name")).unwrap();
    symlink("/etc/passwd", at("outside")).unwrap();
    dir
}

fn label() -> VolumeLabel {
    VolumeLabel {
        volume: "shop_db".to_owned(),
        deployment: "shop".to_owned(),
        node: NodeId::new("ash").unwrap(),
        taken_at: Timestamp(1_000),
        is_live: false,
    }
}

fn content(dir: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    volume_archive::write(dir, &mut bytes).unwrap();
    bytes
}

fn backup() -> Vec<u8> {
    let content = content(volume().path());
    let writer = BackupWriter::copy(Vec::new(), label(), content.as_slice()).unwrap();
    writer.finish().unwrap().0
}

/// What both readers say: they must agree.
fn refused(bytes: &[u8]) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let (read, checked) = (read(dir.path(), bytes), check(bytes));
    assert_eq!(read.is_ok(), checked.is_ok(), "{read:?} {checked:?}");
    read.err().map(|error| error.to_string())
}

#[test]
fn a_backup_says_of_what_it_is_and_comes_out_as_it_went_in() {
    let from = volume();
    let bytes = backup();
    assert!(bytes.starts_with(b"plimsoll volume backup 1\n"));
    let to = tempfile::tempdir().unwrap();
    let found = read(to.path(), bytes.as_slice()).unwrap();
    assert_eq!(found.label, label());
    assert_eq!(found.totals, VolumeTotals { files: 6, bytes: 70_000 });
    assert_eq!(check(bytes.as_slice()).unwrap(), found);
    let names = |dir: &Path| volume_archive::measure(dir).unwrap();
    assert_eq!(names(to.path()), names(from.path()));
    assert_eq!(fs::read(to.path().join("base/1/data")).unwrap(), vec![7; 70_000]);
    assert_eq!(fs::read_link(to.path().join("outside")).unwrap(), Path::new("/etc/passwd"));
}

#[test]
fn a_backup_that_is_cut_changed_or_something_else_is_refused_whole() {
    let bytes = backup();
    let is_cut = "the backup is cut off: its end is missing";
    for (case, cut, said) in [
        ("nothing", 0, "this is no backup of a volume"),
        ("a little", 10, "this is no backup of a volume"),
        ("the label", 60, is_cut),
        ("half of it", bytes.len() / 2, is_cut),
        ("all but the end", bytes.len() - 150, is_cut),
        ("all but a byte", bytes.len() - 1, is_cut),
    ] {
        assert_eq!(refused(&bytes[..cut]).as_deref(), Some(said), "{case}");
    }
    for at in (0..bytes.len()).step_by(997).chain(bytes.len() - 200..bytes.len()) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        // The last byte of all ends a line, and says nothing.
        assert!(refused(&changed).is_some() || at == bytes.len() - 1, "byte {at}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(refused(&longer).as_deref(), Some("something follows the end of the backup"));
    // What nodes send each other is no backup: nobody has said that it is good.
    let content = content(volume().path());
    assert_eq!(refused(&content).as_deref(), Some("this is no backup of a volume"));
    let cell = b"plimsoll backup 3\n and the state of a cell";
    assert_eq!(refused(cell).as_deref(), Some("this is no backup of a volume"));
}

#[test]
fn half_of_what_a_node_sends_makes_no_backup() {
    let content = content(volume().path());
    for cut in [0, 30, content.len() / 2, content.len() - 1] {
        let copied = BackupWriter::copy(Vec::new(), label(), &content[..cut]);
        assert!(copied.is_err(), "cut at {cut}");
    }
    let more = [content.as_slice(), b"more"].concat();
    assert!(BackupWriter::copy(Vec::new(), label(), more.as_slice()).is_err());
}

#[test]
fn no_broken_volume_archive_breaks_its_reader_or_gets_out_of_its_directory() {
    let outer = tempfile::tempdir().unwrap();
    let fuzz = Fuzz::new("volume backups").input(backup()).input(content(volume().path()));
    fuzz.run(|bytes| {
        let dir = outer.path().join("volume");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let read_back = read(&dir, bytes).is_ok();
        assert_eq!(check(bytes).is_ok(), read_back);
        // Also without the checksum around it: nobody but the writer of a stream knows its end.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let _ = volume_archive::read(&dir, bytes);
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1, "something got out");
    });
}
