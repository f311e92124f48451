use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::modes::{Reach, narrow};
use super::*;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_reader_finds_the_old_content_or_the_new_one_whole() {
    let dir = dir();
    let path = dir.path().join("term");
    let contents = [vec![b'a'; 100_000], vec![b'b'; 200_000]];
    write(&path, &contents[0], 0o600).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !is_over.load(Ordering::Relaxed) || reads == 0 {
                let found = fs::read(&path).unwrap();
                assert!(contents.contains(&found), "{} bytes", found.len());
                reads += 1;
            }
        });
        for nth in 0..100 {
            write(&path, &contents[nth % 2], 0o600).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(names(dir.path()), ["term"]);
}

#[test]
fn the_mode_is_the_one_asked_for_whatever_was_there() {
    let dir = dir();
    let path = dir.path().join("key");
    for left in [dir.path().join("key.new"), path.clone()] {
        fs::write(&left, "left by a crash").unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o666)).unwrap();
    }
    write(&path, b"secret", 0o600).unwrap();
    assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o600, b"secret".to_vec()));
    write(&path, b"public", 0o400).unwrap();
    assert_eq!(mode(&path), 0o400);
}

#[test]
fn a_failure_changes_nothing_and_leaves_nothing_behind() {
    let dir = dir();
    let taken = dir.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("inside"), "kept").unwrap();
    let error = write(&taken, b"new", 0o600).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    assert_eq!((names(dir.path()), names(&taken)), (vec!["taken".into()], vec!["inside".into()]));

    let error = write(&dir.path().join("absent/file"), b"new", 0o600).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "the directory is missing");
    assert_eq!(names(dir.path()), ["taken"]);

    let path = dir.path().join("file");
    fs::write(&path, "old").unwrap();
    fs::create_dir(dir.path().join("file.new")).unwrap();
    write(&path, b"new", 0o600).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"old", "no room for the temporary file");
}

#[test]
fn a_finished_file_takes_the_place_of_another() {
    let dir = dir();
    let (part, path) = (dir.path().join("backup.part"), dir.path().join("backup"));
    fs::write(&part, "new").unwrap();
    fs::write(&path, "old").unwrap();
    replace(&part, &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    let error = replace(&part, &path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(
        (names(dir.path()), fs::read(&path).unwrap()),
        (vec!["backup".into()], b"new".into())
    );
}

#[test]
fn what_is_made_has_its_mode_whatever_was_there() {
    let dir = dir();
    let (deep, file) = (dir.path().join("a/b"), dir.path().join("lock"));
    create_dir(&deep, 0o711).unwrap();
    assert_eq!((mode(&deep), mode(&dir.path().join("a"))), (0o711, 0o711));
    create_dir(&deep, 0o700).unwrap();
    assert_eq!(mode(&deep), 0o711, "what is there stays as it is");
    fs::write(&file, "left open by an older release").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    create(&file, 0o600).unwrap().write_all(b"new").unwrap();
    assert_eq!((mode(&file), fs::read(&file).unwrap()), (0o600, b"new".to_vec()));
    create(&dir.path().join("other"), 0o600).unwrap();
    assert_eq!(mode(&dir.path().join("other")), 0o600);
    assert_eq!(create_dir(&file, 0o700).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn what_was_left_open_is_closed_and_nothing_beyond_it() {
    let dir = dir();
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let (store, log, own) =
        (dir.path().join("store"), dir.path().join("store/log"), dir.path().join("own"));
    fs::create_dir_all(&log).unwrap();
    for (path, mode) in
        [(store.join("identity"), 0o644), (log.join("1"), 0o664), (log.join("2"), 0o400)]
    {
        fs::write(&path, "secret").unwrap();
        open(&path, mode);
    }
    fs::write(&own, "somebody else's").unwrap();
    for path in [&store, &log] {
        open(path, 0o755);
    }
    open(&own, 0o644);
    symlink(&own, log.join("link")).unwrap();
    symlink(dir.path(), store.join("up")).unwrap();

    let mended = narrow(&store, modes::DIR, Reach::Tree).unwrap();
    assert_eq!((mended.count, mended.first), (4, Some(store.clone())));
    let after = [&store, &log, &store.join("identity"), &log.join("1"), &log.join("2"), &own];
    assert_eq!(after.map(|path| mode(path)), [0o700, 0o700, 0o600, 0o600, 0o400, 0o644]);
    assert_eq!(
        narrow(&store, modes::DIR, Reach::Tree).unwrap().count,
        0,
        "nothing is left to mend"
    );

    open(&store, 0o755);
    open(&log, 0o755);
    assert_eq!(narrow(&store, modes::PASSAGE, Reach::Itself).unwrap().count, 1);
    assert_eq!((mode(&store), mode(&log)), (0o711, 0o755));
    assert_eq!(narrow(&dir.path().join("absent"), modes::DIR, Reach::Tree).unwrap().count, 0);
    assert_eq!(
        narrow(&store.join("up"), modes::DIR, Reach::Tree).unwrap().count,
        0,
        "a link leads nowhere"
    );
}
