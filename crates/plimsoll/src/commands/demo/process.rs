//! Processes of this host as the kernel shows them: the demo does not take the daemon's word for who runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};

/// How long killed processes may take to be gone. Only one stuck in the kernel takes longer.
const KILL_WAIT: Duration = Duration::from_secs(5);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A process, for good: ids are given again, but not with the same start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// In ticks since boot.
    start: u64,
}

impl Process {
    /// None where no such process runs. One that ended and was not yet collected does not run.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything, so fields are counted from the last one.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
        let start = fields.nth(18)?.parse().ok()?;
        (!has_ended).then_some(Self { pid, start })
    }

    pub(super) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// As `kill -9` does. The handle is taken first and compared after, so that it is never one on a stranger.
    pub(super) fn kill(self) {
        let handle = Pid::from_raw(self.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        if let Some(Ok(handle)) = handle.filter(|_| self.is_alive()) {
            // One that is gone meanwhile needs no signal.
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// Every process that works below the directory or was told of it: services, what they started, and supervisors.
pub(super) fn below(dir: &Path) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let is_here = |pid: &i32| {
        let place = fs::read_link(format!("/proc/{pid}/cwd"));
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let names = |word: &[u8]| Path::new(&*String::from_utf8_lossy(word)).starts_with(dir);
        place.is_ok_and(|place| place.starts_with(dir)) || words.split(|byte| *byte == 0).any(names)
    };
    pids.filter(|pid| *pid != me).filter(is_here).filter_map(Process::of).collect()
}

/// Kills all of them. Returns those that would not go.
pub(super) async fn end_below(dir: &Path) -> Vec<Process> {
    let begun = Instant::now();
    loop {
        let left = below(dir);
        if left.is_empty() || begun.elapsed() > KILL_WAIT {
            return left;
        }
        left.into_iter().for_each(Process::kill);
        sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_as_well() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = Process::of(pid).unwrap();
        assert!(me.is_alive());
        assert!(!Process { start: me.start + 1, ..me }.is_alive());
        assert_eq!(Process::of(0), None);
    }
}
