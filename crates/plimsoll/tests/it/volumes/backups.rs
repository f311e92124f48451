//! Backups of volumes, and what becomes of a volume that is restored when that is cut short.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::{NAMES, cell, dir, home, rows, until_running_on};
use crate::harness::Cell;
use crate::run::{Ran, binary};

/// What is in the volume beside the rows, and says which life of it this is.
fn mark(dir: &Path) -> String {
    fs::read_to_string(dir.join("mark")).unwrap_or_default()
}

fn set_mark(dir: &Path, text: &str) {
    fs::write(dir.join("mark"), text).unwrap();
}

/// Beside the volume is nothing that a restore has left.
fn is_clean(dir: &Path) -> bool {
    let beside = fs::read_dir(dir.parent().unwrap()).unwrap();
    let names = beside.map(|it| it.unwrap().file_name().to_string_lossy().into_owned());
    !names.into_iter().any(|name| name.starts_with('.'))
}

/// A command that runs on, with its input and output at hand.
fn begin(cell: &Cell, at: usize, args: &str) -> Child {
    let mut command = binary();
    command.args(args.split_whitespace()).current_dir(cell.dir.path());
    command.env("PLIMSOLL_HOST", cell.socket(at));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[track_caller]
fn done(ran: Ran) -> Ran {
    assert_eq!(ran.code(), 0, "{}", ran.text());
    ran
}

fn replica(cell: &Cell) -> String {
    let volumes = cell.json(0, "volume list -o json");
    volumes[0]["used_by"][0]["replica"].as_str().unwrap_or_default().to_owned()
}

/// A cell whose service has written some rows, with a backup of its volume, after which another mark was set.
fn backed_up() -> (Cell, usize, PathBuf) {
    let (cell, src, _) = cell();
    let data = dir(&cell, src);
    cell.until("it has written something", |_| rows(&data) > 3);
    set_mark(&data, "kept");
    done(cell.run(2, "volume backup shop_data -o data.volume"));
    until_running_on(&cell, src);
    set_mark(&data, "lost");
    (cell, src, data)
}

#[test]
fn a_backup_brings_a_volume_back_as_it_was() {
    let (cell, src, data) = backed_up();
    let file = cell.dir.path().join("data.volume");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!cell.dir.path().join("data.volume.part").exists());
    let again = cell.run(2, "volume backup shop_data -o data.volume");
    assert_eq!(again.code(), 1, "{}", again.text());
    assert!(again.stderr().contains("exists already"), "{}", again.text());

    let before = rows(&data);
    cell.until("it goes on writing", |_| rows(&data) > before + 3);
    let restored = done(cell.run(1, "volume restore shop_data -i data.volume"));
    let said = restored.stderr();
    assert!(said.contains("backup of shop_data of shop, taken"), "{said}");
    assert!(said.contains("stopping db for the restore"), "{said}");
    assert!(said.contains(&format!("shop_data on {} restored", NAMES[src])), "{said}");
    assert_eq!(mark(&data), "kept");
    until_running_on(&cell, src);
    let left = rows(&data);
    cell.until("it goes on writing", |_| rows(&data) > left);
    assert!(is_clean(&data));
    let audit = cell.run(0, "audit").stdout();
    for word in ["volume_backup_started", "volume_backed_up", "volume_restored"] {
        assert!(audit.contains(word), "{audit}");
    }
}

#[test]
fn a_backup_goes_through_pipes_and_a_live_one_stops_nothing() {
    let (cell, src, data) = backed_up();
    let before = replica(&cell);
    let live = done(cell.run(0, "volume backup shop_data --live -o live.volume"));
    assert!(live.stderr().contains("warning: what uses shop_data runs on"), "{}", live.text());
    assert_eq!(replica(&cell), before, "it ran on");

    let mut out = begin(&cell, 1, "volume backup shop_data -o -");
    let mut bytes = Vec::new();
    out.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert!(out.wait().unwrap().success());
    set_mark(&data, "later");
    let mut back = begin(&cell, 2, "volume restore shop_data -i -");
    back.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(back.wait().unwrap().success());
    assert_eq!(mark(&data), "lost", "as it was when the second backup was taken");
    until_running_on(&cell, src);
}

#[test]
fn what_is_no_whole_backup_is_refused_before_anything_stops_and_on_the_node_too() {
    let (cell, src, data) = backed_up();
    let good = fs::read(cell.dir.path().join("data.volume")).unwrap();
    let before = replica(&cell);
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    done(cell.run(0, "backup cell.backup"));
    let of_a_cell = fs::read(cell.dir.path().join("cell.backup")).unwrap();
    for (case, bytes) in [
        ("cut", &good[..good.len() - 10]),
        ("changed", &flipped),
        ("empty", &[]),
        ("another kind", &of_a_cell),
    ] {
        fs::write(cell.dir.path().join("bad.volume"), bytes).unwrap();
        let refused = cell.run(0, "volume restore shop_data -i bad.volume");
        assert_eq!(refused.code(), 1, "{case}: {}", refused.text());
        assert!(refused.stderr().contains("nothing was stopped"), "{case}: {}", refused.text());
    }
    assert_eq!(replica(&cell), before, "nothing was stopped");

    // What comes through a pipe, the node judges.
    for (case, bytes) in [("cut", &good[..good.len() - 10]), ("changed", &flipped)] {
        let mut back = begin(&cell, 1, "volume restore shop_data -i -");
        back.stdin.take().unwrap().write_all(bytes).unwrap();
        let ended = back.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{case}: {said}");
        let words = ["cut off", "checksum is wrong", "garbled", "cannot write"];
        assert!(words.iter().any(|word| said.contains(word)), "{case}: {said}");
        assert_eq!(mark(&data), "lost", "{case}");
        until_running_on(&cell, src);
        cell.until("nothing is left beside it", |_| is_clean(&data));
    }
}

/// A restore of which half has arrived at the node that has the volume.
fn half_restored(cell: &Cell, at: usize, data: &Path) -> Child {
    let good = fs::read(cell.dir.path().join("data.volume")).unwrap();
    let mut back = begin(cell, at, "volume restore shop_data -i -");
    back.stdin.as_mut().unwrap().write_all(&good[..good.len() / 2]).unwrap();
    back.stdin.as_mut().unwrap().flush().unwrap();
    cell.until("it is written beside the volume", |_| !is_clean(data));
    back
}

#[test]
fn a_restore_whose_client_is_killed_leaves_the_volume_as_it_was_and_the_service_comes_back() {
    let (cell, src, data) = backed_up();
    let before = rows(&data);
    let mut client = half_restored(&cell, src, &data);
    client.kill().unwrap();
    client.wait().unwrap();
    until_running_on(&cell, src);
    cell.until("it goes on writing", |_| rows(&data) > before);
    assert_eq!(mark(&data), "lost");
    cell.until("nothing is left beside it", |_| is_clean(&data));
    let audit = cell.run(0, "audit").stdout();
    assert!(audit.contains("volume_restore_failed"), "{audit}");
}

#[test]
fn a_node_that_is_killed_while_its_volume_is_restored_has_the_old_one_and_clears_up() {
    let (mut cell, src, data) = backed_up();
    let before = rows(&data);
    let other = (src + 1) % NAMES.len();
    let mut client = half_restored(&cell, other, &data);
    cell.kill(src);
    drop(client.stdin.take());
    let ended = client.wait_with_output().unwrap();
    assert!(!ended.status.success());
    assert_eq!(mark(&data), "lost");
    cell.up(src, None);
    until_running_on(&cell, src);
    cell.until("it goes on writing", |_| rows(&data) > before);
    assert_eq!((mark(&data).as_str(), is_clean(&data)), ("lost", true));
    assert_eq!(home(&cell), src);
    done(cell.run(other, "volume restore shop_data -i data.volume"));
    assert_eq!(mark(&data), "kept", "and then it is restored");
}

#[test]
fn a_backup_whose_node_is_killed_is_no_backup() {
    let (mut cell, src, data) = backed_up();
    let big = File::create(data.join("big")).unwrap();
    big.set_len(256 << 20).unwrap();
    let other = (src + 1) % NAMES.len();
    let mut client = begin(&cell, other, "volume backup shop_data -o -");
    let mut out = client.stdout.take().unwrap();
    let mut bytes = vec![0; 1 << 20];
    out.read_exact(&mut bytes).unwrap();
    cell.kill(src);
    out.read_to_end(&mut bytes).unwrap();
    assert!(!client.wait().unwrap().success());
    fs::write(cell.dir.path().join("half.volume"), bytes).unwrap();
    let refused = cell.run(other, "volume restore shop_data -i half.volume");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    let failed = cell.run(other, "volume backup shop_data -o half-file.volume");
    assert_ne!(failed.code(), 0, "its node is away: {}", failed.text());
    let left = fs::read_dir(cell.dir.path()).unwrap().flatten();
    let left: Vec<_> =
        left.filter(|it| it.path().to_string_lossy().contains("half-file")).collect();
    assert!(left.is_empty(), "{left:?}");
    cell.up(src, None);
    until_running_on(&cell, src);
    assert_eq!(mark(&data), "lost");
}

#[test]
fn a_volume_that_is_nowhere_is_restored_where_it_is_told_and_found_there() {
    let (cell, src, _) = backed_up();
    let dst = (src + 1) % NAMES.len();
    let args =
        format!("volume restore lab_data --deployment lab -i data.volume --node {}", NAMES[dst]);
    let restored = done(cell.run(0, &args));
    let said = restored.stderr();
    assert!(
        said.contains(&format!("lab_data is nowhere yet: it goes to {}", NAMES[dst])),
        "{said}"
    );
    let there = dir(&cell, dst).parent().unwrap().parent().unwrap().join("lab/data");
    assert_eq!(mark(&there), "kept");
    let file = super::SHOP.replace("name: shop", "name: lab");
    fs::write(cell.dir.path().join("lab.yaml"), file).unwrap();
    done(cell.run(0, "apply -f lab.yaml"));
    let before = rows(&there);
    cell.until("it runs there and goes on", |_| rows(&there) > before);
    let listed = cell.json(0, "volume list -o json");
    let of_lab = listed.as_array().unwrap().iter().find(|it| it["name"] == "lab_data").unwrap();
    assert_eq!(of_lab["copies"].as_array().unwrap().len(), 1, "{of_lab}");
    assert_eq!(of_lab["copies"][0]["node"], NAMES[dst]);

    for (case, name, of) in
        [("another's name", "other_data", "lab"), ("a way out", "lab_../../x", "lab")]
    {
        let args = format!("volume restore {name} --deployment {of} -i data.volume");
        let refused = cell.run(0, &args);
        assert_eq!(refused.code(), 1, "{case}: {}", refused.text());
    }
}
