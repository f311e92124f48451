//! Has a daemon hand over to another process, and finds that.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than a hand-over may take.
const PATIENCE: Duration = Duration::from_secs(90);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a daemon says once the other routes.
const HANDED_OVER: &str = "handed over to process ";

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Whether it runs: one that has ended and that nobody has collected does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Tells the process to hand over, and returns the number of the one that has. `said` is what both have said.
#[track_caller]
pub(crate) fn hand_over(pid: i32, data: &Path, said: impl Fn() -> String) -> i32 {
    let before = said().len();
    signal(pid, Signal::HUP);
    let begun = Instant::now();
    loop {
        let news = said().split_off(before);
        let heir =
            news.split(HANDED_OVER).nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
        if let Some(found) = heir.and_then(|heir| find(heir, data)) {
            assert_ne!(found, pid);
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not hand over: {}", said());
        sleep(LOOK_AGAIN);
    }
}

/// The process of this number, by whichever it has where we are: a host of a lab has numbers of its own.
pub(crate) fn find(number: i32, data: &Path) -> Option<i32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let (line, status) = (read("cmdline"), read("status"));
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let inner = numbers.and_then(|all| all.split_whitespace().last()?.parse().ok());
        line.contains(data.to_str().unwrap()) && inner == Some(number)
    })
}
