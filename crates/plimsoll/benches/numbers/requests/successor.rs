//! A daemon that hands over to a successor when it is told to start over. The successor is no child of ours: who serves a
//! data directory is read off the processes of this machine.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use rustix::process::{Pid, Signal, kill_process};

use crate::cell::daemons::{Cell, until};

/// Whether the daemon of this node has made arrangements for the signal, which otherwise ends it.
pub(super) fn can_reload(cell: &Cell, at: usize) -> bool {
    let [pid] = serving(cell, at)[..] else { return false };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (Signal::HUP.as_raw() - 1)) != 0)
}

/// Tells the daemon to start over, and waits until it is gone and its successor serves.
pub(super) async fn reload(cell: &Cell, at: usize) {
    let before = serving(cell, at);
    let [old] = before[..] else { panic!("one daemon at a time: {before:?}") };
    kill_process(Pid::from_raw(old).expect("a process"), Signal::HUP).expect("the daemon lives");
    let client = cell.client(at);
    until("another daemon serves, and it alone", async || {
        let now = serving(cell, at);
        let is_another = matches!(now[..], [only] if only != old);
        is_another && client.ready(false).await.is_ok_and(|ready| ready.is_ready)
    })
    .await;
}

/// Daemons of this node's data directory.
fn serving(cell: &Cell, at: usize) -> Vec<i32> {
    let dir = cell.path(at);
    let is_its = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(b"up") && words.any(|word| word == dir.as_os_str().as_bytes())
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_its).collect()
}
