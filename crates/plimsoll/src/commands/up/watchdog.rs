//! Tells the service manager that the daemon lives, for as long as it does: a daemon that hangs is then killed and started
//! again. Where the manager asked for nothing, nothing is told.

use std::time::Duration;

use plimsoll_daemon::heartbeat::Pulse;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::notify::{self, SystemdState};

/// How long the manager waits for the next word, in microseconds. For which process it is meant is not looked at: a process
/// that took over has the environment of the one before.
const INTERVAL: &str = "WATCHDOG_USEC";

/// How many words fit into that time, so that one may be late.
const WORDS: u32 = 3;

/// Goes on telling until it is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// The node that must live; none while one starts or is handed over, which has limits of its own.
    node: watch::Sender<Option<Pulse>>,
    task: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub(super) fn start() -> Self {
        let (node, watched) = watch::channel(None);
        let asked = std::env::var(INTERVAL).ok();
        let task = interval(asked.as_deref()).map(|every| tokio::spawn(tell(every, watched)));
        Self { node, task }
    }

    /// From now on this node must live.
    pub(super) fn guard(&self, node: Pulse) {
        self.node.send_replace(Some(node));
    }

    /// From now on there is no node.
    pub(super) fn rest(&self) {
        self.node.send_replace(None);
    }

    /// Another process tells from now on. A word of this one would hide that the other hangs.
    pub(super) fn leave(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.leave();
    }
}

async fn tell(every: Duration, node: watch::Receiver<Option<Pulse>>) {
    loop {
        if node.borrow().as_ref().is_none_or(Pulse::is_fresh) {
            notify::tell(SystemdState::Alive);
        }
        sleep(every).await;
    }
}

fn interval(asked: Option<&str>) -> Option<Duration> {
    let micros = asked?.parse().ok().filter(|micros: &u64| *micros > 0)?;
    Some(Duration::from_micros(micros) / WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_three_times_as_often_as_it_asks() {
        for (case, asked, expected) in [
            ("nobody asked", None, None),
            ("a minute", Some("60000000"), Some(Duration::from_secs(20))),
            ("nothing", Some("0"), None),
            ("nonsense", Some("soon"), None),
        ] {
            assert_eq!(interval(asked), expected, "{case}");
        }
    }
}
