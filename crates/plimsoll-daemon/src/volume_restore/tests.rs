use std::fs;

use super::*;

#[test]
fn two_directories_change_places_in_one_step() {
    let home = tempfile::tempdir().unwrap();
    let (volume, data_dir) = (home.path().join("volume"), home.path().join("daemon"));
    fs::create_dir(&volume).unwrap();
    fs::create_dir(&data_dir).unwrap();
    fs::write(volume.join("life"), "old").unwrap();
    let staged = Staged::make(Some(&data_dir), Generation(7), &volume).unwrap();
    fs::write(staged.path.join("life"), "new").unwrap();
    exchange(&volume, &staged.path).unwrap();
    let life = |dir: &Path| fs::read_to_string(dir.join("life")).unwrap();
    assert_eq!((life(&volume), life(&staged.path)), ("new".to_owned(), "old".to_owned()));
    let beside = staged.path.clone();
    staged.clear();
    assert!(!beside.exists() && life(&volume) == "new");
    assert_eq!(fs::read_dir(notes_dir(&data_dir)).unwrap().count(), 0);
}

#[test]
fn what_a_killed_daemon_left_beside_volumes_is_cleared_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let (volume, data_dir) = (home.path().join("volume"), home.path().join("daemon"));
    fs::create_dir(&volume).unwrap();
    fs::create_dir(&data_dir).unwrap();
    let staged = Staged::make(Some(&data_dir), Generation(7), &volume).unwrap();
    fs::write(staged.path.join("half"), "").unwrap();
    let beside = staged.path.clone();
    // Killed: nothing is dropped.
    std::mem::forget(staged);
    let forged = notes_dir(&data_dir).join("8");
    fs::write(&forged, volume.as_os_str().as_encoded_bytes()).unwrap();
    clear_left(&data_dir);
    assert!(!beside.exists());
    assert!(volume.exists(), "a note that names anything else is not believed");
}
