//! The step between a supervisor and a service: a process that makes itself into the service. It is started anew from
//! our own program instead of forked, since only the process itself can safely take a session, limits and a user.
//!
//! Over its standard input, a socket, it is given an [`ProcessSetup`]; over the same it answers with what went wrong. Success
//! is silence: the socket closes itself when the service's program takes over.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::{Deserialize, Serialize};

use super::cgroup;
use super::launch::ProcessSetup;
use super::users::ProcessUser;

/// Why the service's program did not take over, and what a shell would have returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EnterFailure {
    pub(super) text: String,
    pub(super) status: i32,
}

impl From<String> for EnterFailure {
    fn from(text: String) -> Self {
        Self { text, status: 126 }
    }
}

/// What is sent in: an entry, and who the parent is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EnterRequest {
    pub(super) entry: ProcessSetup,
    pub(super) parent: u32,
    /// Where its input comes from; none for an empty one.
    #[serde(default)]
    pub(super) input: Option<InputFile>,
}

/// Something to read from, by a name that only the parent's own user can follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InputFile {
    pub(super) path: String,
    /// It is a terminal, and its output as well.
    pub(super) is_terminal: bool,
}

/// Becomes the service. Returns only when that failed.
pub(super) fn main() -> Result<(), String> {
    let stdin = std::io::stdin();
    let socket = stdin.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let mut socket = UnixStream::from(socket);
    let mut text = Vec::new();
    socket.read_to_end(&mut text).map_err(|error| error.to_string())?;
    let brief: EnterRequest = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let failure = become_service(brief);
    let answer = serde_json::to_vec(&failure).map_err(|error| error.to_string())?;
    socket.write_all(&answer).map_err(|error| error.to_string())
}

/// The order matters: a session and cgroups before anything is limited, limits while there is still the right to
/// raise them, then the user, the directory as that user, and the wish to die with the parent, since a change of user clears
/// that.
fn become_service(brief: EnterRequest) -> EnterFailure {
    let EnterRequest { entry, parent, input } = brief;
    let Err(failure) = settle(&entry, parent, input.as_ref()) else {
        let Some((program, arguments)) = entry.command.split_first() else {
            return EnterFailure { text: "there is no command".to_owned(), status: 127 };
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(&entry.environment);
        let error = command.exec();
        let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
        return EnterFailure { text: format!("cannot run {program:?}: {error}"), status };
    };
    failure
}

fn settle(
    entry: &ProcessSetup,
    parent: u32,
    input: Option<&InputFile>,
) -> Result<(), EnterFailure> {
    setsid().map_err(|error| format!("cannot begin a session: {error}"))?;
    read_from(input, entry.credentials.as_ref())?;
    // Whatever the daemon's own is, services find the usual one.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    cgroup::join(&entry.cgroups);
    if let Some(adjustment) = entry.oom_score_adj {
        // A negative one takes rights that we may not have; the service runs all the same.
        let _ = fs::write("/proc/self/oom_score_adj", adjustment.to_string());
    }
    for limit in &entry.limits {
        limit.apply()?;
    }
    if let Some(who) = &entry.credentials {
        become_user(who).map_err(|error| format!("cannot become user {}: {error}", who.uid))?;
    }
    // As that user: it may be a link that the service made, to where only root may go.
    let directory = &entry.directory;
    std::env::set_current_dir(directory)
        .map_err(|error| format!("cannot enter {}: {error}", directory.display()))?;
    if entry.dies_with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| format!("cannot tie it to its supervisor: {error}"))?;
        // The supervisor may have died before it was asked for.
        if getppid().map(|pid| pid.as_raw_pid().unsigned_abs()) != Some(parent) {
            return Err("its supervisor is gone".to_owned().into());
        }
    }
    Ok(())
}

/// Takes its input, and on a terminal its output, from there. A session that has no terminal gets the first it opens.
fn read_from(input: Option<&InputFile>, user: Option<&ProcessUser>) -> Result<(), String> {
    let path = input.map_or("/dev/null", |input| &input.path);
    let is_terminal = input.is_some_and(|input| input.is_terminal);
    let opened = File::options().read(true).write(is_terminal).open(path);
    let file = opened.map_err(|error| format!("cannot open {path}: {error}"))?;
    let taken = |error| format!("cannot take its input from {path}: {error}");
    rustix::stdio::dup2_stdin(&file).map_err(taken)?;
    if is_terminal {
        if let Some(ProcessUser { uid, gid, .. }) = user {
            // Programs open their terminal by its name.
            let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
            let _ = rustix::fs::fchown(&file, Some(uid), Some(gid));
        }
        rustix::stdio::dup2_stdout(&file).map_err(taken)?;
        rustix::stdio::dup2_stderr(&file).map_err(taken)?;
    }
    Ok(())
}

/// Users are a thread's own to the kernel. This process has one thread.
fn become_user(who: &ProcessUser) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
    let groups: Vec<Gid> = who.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

/// Sends an entry in and waits for silence or a failure.
pub(super) fn brief(mut socket: UnixStream, brief: &EnterRequest) -> Result<(), EnterFailure> {
    let mut send = || -> std::io::Result<Vec<u8>> {
        socket.write_all(&serde_json::to_vec(brief)?)?;
        socket.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = send().map_err(|error| format!("cannot speak to the new process: {error}"))?;
    verdict(&answer)
}

pub(super) fn verdict(answer: &[u8]) -> Result<(), EnterFailure> {
    if answer.is_empty() {
        return Ok(());
    }
    Err(serde_json::from_slice(answer).unwrap_or_else(|error| {
        EnterFailure::from(format!("the new process gave no clear answer: {error}"))
    }))
}
