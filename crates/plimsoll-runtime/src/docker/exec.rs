//! Runs a command in a container and waits for its end, as health checks and people do.

use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::ExecInspectResponse;
use futures_util::StreamExt;
use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep, timeout_at};

use super::engine_error::EngineError;
use crate::process::table::{ProcessIdentity, ProcessTable};
use crate::runtime::{ExecOutcome, ExecOutput, ExecRequest};

/// How often a command that says nothing is asked whether it still runs: what it left in the background may hold its
/// output open.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long the engine may take to know the status of a command whose output has ended.
const STATUS_WAIT: Duration = Duration::from_secs(5);

pub(super) async fn run(
    docker: &Docker,
    id: &str,
    exec: &ExecRequest,
) -> Result<ExecOutput, EngineError> {
    let deadline = exec.timeout.map(|timeout| Instant::now() + timeout);
    let options = CreateExecOptions {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(exec.command.clone()),
        ..CreateExecOptions::default()
    };
    let made = docker.create_exec(id, options).await?.id;
    let mut kept = CapturedOutput::new(exec.max_output);
    let outcome = match deadline {
        None => Some(follow(docker, &made, &mut kept).await?),
        Some(deadline) => {
            timeout_at(deadline, follow(docker, &made, &mut kept)).await.ok().transpose()?
        }
    };
    if outcome.is_none() {
        kill(docker, &made, id).await;
    }
    let outcome = outcome.map_or(ExecOutcome::TimedOut, |status| ExecOutcome::Done { status });
    let CapturedOutput { stdout, stderr, is_cut, .. } = kept;
    Ok(ExecOutput { outcome, stdout, stderr, is_cut })
}

/// Reads what it prints until it ends, and returns its status.
async fn follow(
    docker: &Docker,
    made: &str,
    kept: &mut CapturedOutput,
) -> Result<i32, EngineError> {
    let started = match docker.start_exec(made, None).await.map_err(EngineError::from) {
        // Newer engines say so at once; older ones start it and let the status tell.
        Err(EngineError::Said { message, .. }) if cannot_run(&message).is_some() => {
            let status = cannot_run(&message).unwrap_or(126);
            kept.stderr.extend_from_slice(message.as_bytes());
            return Ok(status);
        }
        result => result?,
    };
    if let StartExecResults::Attached { mut output, .. } = started {
        loop {
            tokio::select! {
                next = output.next() => match next {
                    Some(Ok(part)) => kept.take(part),
                    Some(Err(error)) => return Err(error.into()),
                    None => break,
                },
                () = sleep(LOOK_AGAIN) => {
                    if let Some(status) = ended(&docker.inspect_exec(made).await?) {
                        return Ok(status);
                    }
                }
            }
        }
    }
    status(docker, made).await
}

/// The status of a command whose output has ended.
pub(super) async fn status(docker: &Docker, made: &str) -> Result<i32, EngineError> {
    let begin = Instant::now();
    loop {
        if let Some(status) = ended(&docker.inspect_exec(made).await?) {
            return Ok(status);
        }
        if begin.elapsed() > STATUS_WAIT {
            return Err(EngineError::Odd(
                "a command that printed its last has no status".to_owned(),
            ));
        }
        sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn ended(exec: &ExecInspectResponse) -> Option<i32> {
    match exec.running {
        Some(true) => None,
        _ => exec.exit_code.and_then(|code| i32::try_from(code).ok()),
    }
}

/// The status a shell would give where the engine could not run the command at all.
pub(super) fn cannot_run(message: &str) -> Option<i32> {
    if message.contains("executable file not found") || message.contains("no such file") {
        return Some(127);
    }
    message.contains("exec failed").then_some(126)
}

/// How often an engine is asked for the process of a command that has begun, and how long apart.
const PROCESS_LOOKS: u32 = 40;
const PROCESS_WAIT: Duration = Duration::from_millis(50);

/// Kills the command and what it started. The engine has no word for it, so this node does it itself; where it may not,
/// as on an engine of another user, the command is left behind.
pub(super) async fn kill(docker: &Docker, made: &str, container: &str) {
    let Some(pid) = process(docker, made).await else { return };
    let table = ProcessTable::read();
    let family = table.descendants(pid).into_iter().map(|stat| stat.pid);
    for pid in std::iter::once(pid).chain(family) {
        let process = Pid::from_raw(pid).and_then(ProcessIdentity::of);
        if let Some(process) = process.filter(|_| is_of(pid, container)) {
            process.signal(Signal::KILL);
        }
    }
}

/// Sends a signal to the command alone, as a shell does to what it runs in the foreground.
pub(super) async fn send_signal(docker: &Docker, made: &str, container: &str, signal: Signal) {
    let Some(pid) = process(docker, made).await.filter(|pid| is_of(*pid, container)) else {
        return;
    };
    if let Some(process) = Pid::from_raw(pid).and_then(ProcessIdentity::of) {
        process.signal(signal);
    }
}

/// The number of its process on this host, while it runs. An engine notes it a moment after the command has begun, and may
/// pass on before what that prints.
async fn process(docker: &Docker, made: &str) -> Option<i32> {
    for _ in 0..PROCESS_LOOKS {
        let exec = docker.inspect_exec(made).await.ok()?;
        let pid = exec.pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
        if exec.running == Some(true) && pid.is_some() {
            return pid;
        }
        if exec.exit_code.is_some() {
            return None;
        }
        sleep(PROCESS_WAIT).await;
    }
    None
}

/// Whether the process belongs to the container: its cgroup is named after it.
fn is_of(pid: i32, container: &str) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.contains(container)
}

/// The beginning of both outputs; the rest is read and dropped.
struct CapturedOutput {
    max: usize,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    is_cut: bool,
}

impl CapturedOutput {
    fn new(max: usize) -> Self {
        Self { max, stdout: Vec::new(), stderr: Vec::new(), is_cut: false }
    }

    fn take(&mut self, part: LogOutput) {
        let (kept, bytes) = match part {
            LogOutput::StdErr { message } => (&mut self.stderr, message),
            LogOutput::StdOut { message }
            | LogOutput::StdIn { message }
            | LogOutput::Console { message } => (&mut self.stdout, message),
        };
        let room = self.max.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        self.is_cut |= room < bytes.len();
    }
}
