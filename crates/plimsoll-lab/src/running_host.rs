//! A host that is switched on: a thread that lives in the host's namespaces and starts processes there, and their init.
//!
//! Processes have a process namespace of their own, whose init ends with the thread, and the kernel ends all others with
//! it. So nothing outlives the test, also where the test is killed.

use std::fs::File;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use crate::process::Process;

/// Collects whatever the processes of the host abandon.
const INIT: &str = "while :; do sleep 3600 & wait; done";

/// Where another init collects them: a process whose namespaces can be entered, and which has no child that would outlive it.
const BYSTANDER: &str = "exec sleep infinity";

/// Whose processes a host sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Processes {
    /// Its own, which end with its init.
    Own,
    /// All of this machine.
    Shared,
}

#[derive(Debug)]
pub(crate) struct RunningHost {
    requests: Option<mpsc::Sender<SpawnRequest>>,
    thread: Option<JoinHandle<()>>,
    init: Process,
    started: Vec<Process>,
}

struct SpawnRequest {
    command: Command,
    answer: mpsc::Sender<io::Result<Child>>,
}

impl RunningHost {
    /// In the network namespace of this file.
    pub(crate) fn start(network: &File, processes: Processes) -> io::Result<Self> {
        let network = network.try_clone()?;
        let (requests, requested) = mpsc::channel::<SpawnRequest>();
        let (ready, is_ready) = mpsc::channel();
        let live = move || {
            let booted = boot(&network, processes);
            let is_up = booted.is_ok();
            if ready.send(booted).is_err() || !is_up {
                return;
            }
            for SpawnRequest { mut command, answer } in requested {
                let _ = answer.send(command.spawn());
            }
        };
        let thread = thread::Builder::new().name("host".to_owned()).spawn(live)?;
        let init = is_ready.recv().map_err(|_| io::Error::other("the host's thread is gone"))??;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
            init: Process::new(init),
            started: Vec::new(),
        })
    }

    /// The number of its init, by whose namespaces others can enter.
    pub(crate) fn init(&self) -> i32 {
        self.init.pid()
    }

    pub(crate) fn spawn(&mut self, command: Command) -> io::Result<Process> {
        let gone = || io::Error::other("the host's thread is gone");
        let (answer, answered) = mpsc::channel();
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(SpawnRequest { command, answer }).map_err(|_| gone())?;
        let process = Process::new(answered.recv().map_err(|_| gone())??);
        self.started.retain(|process| matches!(process.ended(), Ok(None)));
        self.started.push(process.clone());
        Ok(process)
    }
}

impl Drop for RunningHost {
    fn drop(&mut self) {
        // An init is gone only when all others are, and those that we started are for us to collect.
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for process in &self.started {
            process.kill();
        }
        self.init.kill();
    }
}

/// Enters the network, makes the other namespaces and starts their init.
fn boot(network: &File, processes: Processes) -> io::Result<Child> {
    setns(network, CloneFlags::CLONE_NEWNET)?;
    let has_own = processes == Processes::Own;
    unshare(CloneFlags::CLONE_NEWNS)?;
    if has_own {
        unshare(CloneFlags::CLONE_NEWPID)?;
    }
    // Mounts of the host are its own from here on.
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let mut init = Command::new("setpriv");
    let script = if has_own { INIT } else { BYSTANDER };
    init.args(["--pdeathsig", "KILL", "--", "sh", "-c", script]);
    let init = init.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if has_own {
        run(Command::new("mount").args(["-t", "proc", "proc", "/proc"]))?;
    }
    Ok(init)
}

/// Runs a command to its end, which must be a good one.
pub(crate) fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{} ended with {}: {said}", program(command), output.status)))
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
