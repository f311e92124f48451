//! Processes of this host as `/proc` shows them.

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process, for good: its id may be given to another one day, but not with the same start in the same boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub(crate) pid: i32,
    /// In ticks since boot.
    pub(crate) start: u64,
    pub(crate) boot: String,
}

impl ProcessIdentity {
    /// The identity of a process that runs now.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let stat = Stat::read(pid.as_raw_pid())?;
        Some(Self { pid: stat.pid, start: stat.start, boot: boot()?.to_owned() })
    }

    /// The identity of the process that has this number now.
    pub fn of_number(pid: i64) -> Option<Self> {
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
        Self::of(Pid::from_raw(pid)?)
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        (self.pid > 0).then(|| Pid::from_raw(self.pid))?
    }

    /// Whether it still runs. One that ended and was not yet collected does not.
    pub fn is_alive(&self) -> bool {
        let stat = Stat::read(self.pid);
        stat.is_some_and(|stat| stat.start == self.start && !stat.has_ended())
            && boot().is_some_and(|boot| boot == self.boot)
    }

    /// A handle on it; none when it is gone. The handle is taken first and compared after, so that it is never one on
    /// a stranger who got the id in between.
    pub(crate) fn open(&self) -> Option<std::os::fd::OwnedFd> {
        let handle = pidfd_open(self.pid()?, PidfdFlags::NONBLOCK).ok()?;
        self.is_alive().then_some(handle)
    }

    /// Sends a signal to it and nobody else. What is gone needs none.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(handle) = self.open() {
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

/// This boot's own name. It is read once: no process outlives its boot.
pub(crate) fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if BOOT.get().is_none() {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let _ = BOOT.set(text.trim().to_owned());
    }
    BOOT.get().map(String::as_str)
}

/// What is used of `/proc/<pid>/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    /// Its own ticks in user and system mode.
    pub(crate) own: u64,
    /// Those of its children that ended and were collected.
    pub(crate) children: u64,
    pub(crate) start: u64,
    pub(crate) resident_pages: u64,
}

impl Stat {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name stands in parentheses and may hold anything, so fields are counted from the last one.
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid: head.split_whitespace().next()?.parse().ok()?,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            own: number(11)? + number(12)?,
            children: number(13)? + number(14)?,
            start: number(19)?,
            resident_pages: number(21)?,
        })
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// All processes at one time, or nearly so.
pub(crate) struct ProcessTable(BTreeMap<i32, Stat>);

impl ProcessTable {
    pub(crate) fn read() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Self(pids.filter_map(Stat::read).map(|stat| (stat.pid, stat)).collect())
    }

    /// Everything below a process, not itself.
    pub(crate) fn descendants(&self, ancestor: i32) -> Vec<&Stat> {
        let mut children: BTreeMap<i32, Vec<&Stat>> = BTreeMap::new();
        for stat in self.0.values() {
            children.entry(stat.parent).or_default().push(stat);
        }
        let mut found = Vec::new();
        let mut next = vec![ancestor];
        while let Some(parent) = next.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                next.push(child.pid);
                found.push(child);
            }
        }
        found
    }

    pub(crate) fn get(&self, pid: i32) -> Option<&Stat> {
        self.0.get(&pid)
    }

    pub(crate) fn session(&self, leader: i32) -> impl Iterator<Item = &Stat> {
        self.0.values().filter(move |stat| stat.session == leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "42 (a) b (c) S 7 42 41 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5555 9 77 1";
        let stat = Stat::parse(text).unwrap();
        let expected = Stat {
            pid: 42,
            state: 'S',
            parent: 7,
            session: 41,
            own: 30,
            children: 70,
            start: 5_555,
            resident_pages: 77,
        };
        assert_eq!(stat, expected);
        assert_eq!(Stat::parse("42 (cut"), None);
    }

    #[test]
    fn a_process_is_known_by_its_start_as_well() {
        let me = ProcessIdentity::of(rustix::process::getpid()).unwrap();
        assert!(me.is_alive() && me.open().is_some());
        for (case, other) in [
            ("another start", ProcessIdentity { start: me.start + 1, ..me.clone() }),
            ("another boot", ProcessIdentity { boot: "earlier".into(), ..me.clone() }),
            ("nobody", ProcessIdentity { pid: 0, ..me.clone() }),
        ] {
            assert!(!other.is_alive() && other.open().is_none(), "{case}");
        }
    }
}
