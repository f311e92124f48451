//! The life of a daemon's process: it starts a node, in the place of another process perhaps, and ends with it, or hands it
//! over to the next. What is wrong with a node and may pass is waited for here.
//!
//! A control plane that panics, or whose log fails, does not take the ports of containers with it: what carries clients goes
//! on by what it last knew, on sockets that stay open, until the control plane is started again in this same process.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use plimsoll_daemon::node::{DataPlane, Error, LINGER, NodeOptions, RunningNode};
use plimsoll_daemon::restarts;
use plimsoll_model::level::remedy;
use plimsoll_router::Sockets;
use plimsoll_router::sockets::SocketName;
use plimsoll_store::checked_file::Unreadable;
use plimsoll_store::disk::room;
use plimsoll_store::embedded::{OpenError, ROOM};
use tokio::time::sleep;

use super::notify::{self, SystemdState};
use super::predecessor::Predecessor;
use super::signals::{DaemonSignal, DaemonSignals};
use super::successor::{CommandLine, Successor};
use super::watchdog::Watchdog;
use super::{Started, say, unstarted};
use crate::error::CliError;

/// How often a full disk is looked at.
const LOOK_FOR_ROOM: Duration = Duration::from_secs(1);

/// How long a control plane that failed waits before it is started again, the first time and at most: what fails at once
/// each time must not keep the machine busy.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// One that ran for this long before it failed has not failed in a row.
const SOUND: Duration = Duration::from_mins(5);

/// A process with a node, or about to have one.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) options: NodeOptions,
    pub(super) is_default: bool,
    pub(super) line: CommandLine,
    pub(super) signals: DaemonSignals,
    /// The one whose place this one took.
    pub(super) predecessor: Option<Predecessor>,
    pub(super) watchdog: Watchdog,
}

/// Who routes until the node does.
#[derive(Debug)]
enum Before {
    Nobody,
    Predecessor,
    /// What is left of this process's own last node.
    Own(DataPlane),
}

/// What becomes of a node that ran.
enum Turn {
    Stopped,
    /// It had no room, and has again.
    HasRoom,
    /// It cannot go on, and this is why. What carries clients can.
    StartOver(String),
    HandOver(Box<Successor>),
}

/// The sockets that a node listened on.
type HeldSockets = Vec<(SocketName, OwnedFd)>;

impl Life {
    pub(super) async fn live(mut self) -> Result<(), CliError> {
        let (mut sockets, mut before) = self.begins().await?;
        loop {
            let Some(mut node) = self.start(sockets, &before).await? else { return Ok(()) };
            let mut pause = FIRST_PAUSE;
            self.relieve(&node, before).await;
            (sockets, before) = loop {
                let since = Instant::now();
                self.watchdog.guard(node.pulse());
                let turn = self.until_turn(&node).await;
                self.watchdog.rest();
                match turn {
                    Turn::Stopped => {
                        say("stopping; replicas keep running, the next `plimsoll up` adopts them");
                        notify::tell(SystemdState::Stopping);
                        node.stop().await;
                        self.say_bye().await;
                        return Ok(());
                    }
                    Turn::HasRoom => {
                        node.stop().await;
                        say("there is room again; starting over");
                        break (Sockets::default(), Before::Nobody);
                    }
                    Turn::StartOver(why) => {
                        // One that ran for a while has not failed in a row.
                        pause = if since.elapsed() > SOUND { FIRST_PAUSE } else { pause };
                        let Some((next, plane)) = self.start_over(node, &why, &mut pause).await
                        else {
                            return Ok(());
                        };
                        self.relieve(&next, Before::Own(plane)).await;
                        node = next;
                    }
                    Turn::HandOver(successor) => match self.hand_over(node, successor).await {
                        None => return Ok(()),
                        Some(left) => break left,
                    },
                }
            };
        }
    }

    /// Starts the control plane again beside what carries clients, as often as it takes; none if it was told to stop first.
    /// To end instead, for the service manager, would close every port of this node for as long as its log is broken.
    async fn start_over(
        &mut self,
        node: RunningNode,
        why: &str,
        pause: &mut Duration,
    ) -> Option<(RunningNode, DataPlane)> {
        say(&format!(
            "{why}. This is a bug or a bad disk: please report what the log says. Replicas and their ports go on; the \
             control plane starts over."
        ));
        notify::tell(SystemdState::Reloading);
        let (plane, held) = node.hand_over().await;
        loop {
            tokio::select! {
                () = sleep(*pause) => {}
                () = self.signals.stop() => break,
            }
            *pause = (*pause * 2).min(LONGEST_PAUSE);
            restarts::count();
            // On a task of its own: a panic of the start is one more failure.
            let sockets = Sockets::inherited(duplicates(&held));
            let starting = tokio::spawn(RunningNode::start_on(self.options.clone(), sockets));
            let started = tokio::select! {
                started = starting => started,
                () = self.signals.stop() => break,
            };
            match started {
                Ok(Ok(node)) => {
                    self.say_started(&node);
                    return Some((node, plane));
                }
                Ok(Err(error)) => say(&format!("the control plane does not start: {error}")),
                Err(error) => say(&format!("the control plane does not start: {error}")),
            }
            say(&format!("it is tried again in {} s; ports stay open", pause.as_secs()));
        }
        notify::tell(SystemdState::Stopping);
        self.say_bye().await;
        None
    }

    /// Takes the place of another process where it was started for that.
    async fn begins(&mut self) -> Result<(Sockets, Before), CliError> {
        let Some(predecessor) = &mut self.predecessor else {
            return Ok((Sockets::default(), Before::Nobody));
        };
        RunningNode::check(&self.options).map_err(|error| unstarted(&error))?;
        Ok((predecessor.yields().await?, Before::Predecessor))
    }

    /// None if it was told to stop first.
    async fn start(
        &mut self,
        sockets: Sockets,
        before: &Before,
    ) -> Result<Option<RunningNode>, CliError> {
        let starting = RunningNode::start_on(self.options.clone(), sockets);
        let started = tokio::select! {
            started = starting => started,
            () = self.signals.stop() => return Ok(None),
        };
        match started {
            Ok(node) => {
                self.say_started(&node);
                Ok(Some(node))
            }
            // Started again it would end the same way, and whoever watches this process would try for ever.
            Err(error) if is_outdated(&error) && !matches!(before, Before::Predecessor) => {
                say(&format!(
                    "outdated: {error}. Replicas keep running; stop this and upgrade it."
                ));
                notify::tell(SystemdState::Ready);
                self.signals.stop().await;
                Ok(None)
            }
            Err(error) => Err(unstarted(&error)),
        }
    }

    fn say_started(&self, node: &RunningNode) {
        let started = Started {
            node: node.cell().node.as_str(),
            options: &self.options,
            runtime: node.runtime(),
            is_default: self.is_default,
        };
        say(&started.text());
    }

    /// Once the node routes, whoever did before need not any more.
    async fn relieve(&mut self, node: &RunningNode, before: Before) {
        node.opened().await;
        match before {
            Before::Nobody => notify::tell(SystemdState::Ready),
            Before::Own(plane) => {
                notify::tell(SystemdState::Ready);
                tokio::spawn(plane.leave());
            }
            Before::Predecessor => {
                // Before it may end, or the manager would take its end for ours.
                notify::tell(SystemdState::ReadyInstead);
                if let Some(predecessor) = &self.predecessor {
                    predecessor.is_relieved().await;
                }
            }
        }
    }

    async fn until_turn(&mut self, node: &RunningNode) -> Turn {
        loop {
            let asked = tokio::select! {
                turn = until_worth_another_start(node, &self.options) => return turn,
                part = node.is_incomplete() => return Turn::StartOver(incomplete(part)),
                asked = self.signals.next() => asked,
            };
            if asked == DaemonSignal::Stop {
                return Turn::Stopped;
            }
            let speaks = node.cell().engine.machine().level();
            let started = tokio::select! {
                started = Successor::start(&self.line, speaks) => started,
                () = self.signals.stop() => return Turn::Stopped,
            };
            match started {
                Ok(successor) => return Turn::HandOver(Box::new(successor)),
                Err(why) => {
                    say(&format!("not handed over: {why}. This daemon goes on as before."));
                    notify::tell(SystemdState::Ready);
                }
            }
        }
    }

    /// Gives the node to the other process. What it needs to go on itself, if that one fails; none if it is done.
    async fn hand_over(
        &mut self,
        node: RunningNode,
        mut successor: Box<Successor>,
    ) -> Option<(Sockets, Before)> {
        say(&format!("handing over to process {}", successor.pid().unwrap_or_default()));
        notify::tell(SystemdState::Reloading);
        let (plane, sockets) = node.hand_over().await;
        let taken = tokio::select! {
            taken = successor.take_over(&sockets, self.predecessor.as_ref()) => taken,
            () = self.signals.stop() => {
                self.say_bye().await;
                return None;
            }
        };
        if let Err(why) = taken {
            say(&format!("the next process did not take over: {why}. This one takes it back."));
            return Some((Sockets::inherited(sockets), Before::Own(plane)));
        }
        drop(sockets);
        self.watchdog.leave();
        let pid = successor.pid().unwrap_or_default();
        say(&format!(
            "handed over to process {pid}; this one ends with its last client, in {} min at the latest",
            LINGER.as_secs() / 60
        ));
        tokio::select! {
            () = plane.leave() => {}
            () = successor.says_bye() => self.say_bye().await,
            () = self.signals.stop() => self.say_bye().await,
        }
        None
    }

    /// Clients that the process before this one still has go with it.
    async fn say_bye(&self) {
        if let Some(predecessor) = &self.predecessor {
            predecessor.is_to_stop().await;
        }
    }
}

/// Returns when the node cannot write and another start may help: at once, or where the disk was full, once there is room
/// again.
async fn until_worth_another_start(node: &RunningNode, options: &NodeOptions) -> Turn {
    let broken = node.broken().await;
    if let plimsoll_store::Error::Outgrown { .. } = &broken {
        // Another start of the same build would end the same way. It goes on telling what it knows.
        say(&format!("outdated: {broken}: {}. Replicas keep running.", remedy(None)));
        return std::future::pending().await;
    }
    let plimsoll_store::Error::DiskFull { dir } = &broken else {
        return Turn::StartOver(broken.to_string());
    };
    say(&format!(
        "disk_full: {broken}; free {} MB where {} is, and it goes on by itself. Replicas keep running, and what is known is \
         still told.",
        ROOM >> 20,
        dir.display()
    ));
    loop {
        sleep(LOOK_FOR_ROOM).await;
        if room(&options.data_dir).is_ok_and(|room| room >= ROOM) {
            return Turn::HasRoom;
        }
    }
}

/// A part of the daemon ended, which is a bug. Half a node would be silent, and nobody would know why.
fn incomplete(part: &str) -> String {
    format!("the {part} of this daemon ended unexpectedly")
}

/// The same sockets once more: a start that fails closes those it was given.
fn duplicates(held: &HeldSockets) -> HeldSockets {
    let copies = held.iter().filter_map(|(name, socket)| {
        let copy = socket.try_clone();
        copy.map(|copy| (name.clone(), copy)).ok()
    });
    copies.collect()
}

/// Whether the data directory was written by a newer plimsoll.
fn is_outdated(error: &Error) -> bool {
    use Unreadable::{Level, Newer};
    let Error::Store(error) = error else { return false };
    matches!(error, OpenError::Outgrown { .. } | OpenError::File(Level { .. } | Newer { .. }))
}
