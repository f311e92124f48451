//! Runs a command beside a service: as the service runs, but as a child of the daemon, with its output kept.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::enter::{EnterFailure, EnterRequest, verdict};
use super::launch::{Launch, ProcessSetup};
use crate::runtime::{ExecOutcome, ExecOutput, ExecRequest};

/// How long to wait for the end of the output once the command has ended: what it left running may hold it open.
pub(super) const OUTPUT_WAIT: Duration = Duration::from_millis(200);

pub(super) async fn run(launch: Launch, exec: &ExecRequest) -> io::Result<ExecOutput> {
    let (ours, theirs) = Socket::pair()?;
    ours.set_nonblocking(true)?;
    let ours = UnixStream::from_std(ours)?;
    let (program, words) = launch.supervisor.split_first().ok_or(io::ErrorKind::InvalidData)?;
    let mut child = Command::new(program)
        .args(words)
        .arg("enter")
        .arg0("plimsoll")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = CapturedStream::read(child.stdout.take(), exec.max_output);
    let stderr = CapturedStream::read(child.stderr.take(), exec.max_output);
    let mut group = Group(child);

    let entry =
        ProcessSetup { command: exec.command.clone(), dies_with_parent: false, ..launch.entry };
    let brief = EnterRequest { entry, parent: std::process::id(), input: None };
    let ended = async {
        let answer = send(ours, &brief).await?;
        let status = group.0.wait().await?;
        Ok::<_, io::Error>(answer.map(|()| shell_status(status)))
    };
    let ended = match exec.timeout {
        None => Some(ended.await?),
        Some(limit) => timeout(limit, ended).await.ok().transpose()?,
    };
    if ended.is_none() {
        group.kill();
        group.0.wait().await?;
    }

    let (stdout, stdout_cut) = stdout.take().await;
    let (mut stderr, stderr_cut) = stderr.take().await;
    let outcome = match ended {
        None => ExecOutcome::TimedOut,
        Some(Ok(status)) => ExecOutcome::Done { status },
        Some(Err(EnterFailure { text, status })) => {
            stderr.extend_from_slice(text.as_bytes());
            ExecOutcome::Done { status }
        }
    };
    Ok(ExecOutput { outcome, stdout, stderr, is_cut: stdout_cut || stderr_cut })
}

/// A command and what it started. Dropped before its end, as when nobody waits any more, it is killed.
pub(super) struct Group(pub(super) Child);

impl Group {
    pub(super) fn kill(&mut self) {
        // The id is none once the child was collected; until then it is nobody else's.
        let id = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            let _ = kill_process_group(id, Signal::KILL);
            // It may not have made its group yet.
            let _ = self.0.start_kill();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) async fn send(
    mut socket: UnixStream,
    brief: &EnterRequest,
) -> io::Result<Result<(), EnterFailure>> {
    socket.write_all(&serde_json::to_vec(brief)?).await?;
    socket.shutdown().await?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await?;
    Ok(verdict(&answer))
}

pub(super) fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The beginning of an output; what lies beyond the bound is read and dropped, so that nothing waits for room.
struct CapturedStream {
    bytes: Arc<Mutex<(Vec<u8>, bool)>>,
    task: JoinHandle<()>,
}

impl CapturedStream {
    fn read(source: Option<impl AsyncRead + Unpin + Send + 'static>, max: usize) -> Self {
        let bytes = Arc::new(Mutex::new((Vec::new(), false)));
        let shared = Arc::clone(&bytes);
        let task = tokio::spawn(async move {
            let Some(mut source) = source else { return };
            let mut chunk = vec![0; 16 << 10];
            while let Ok(read @ 1..) = source.read(&mut chunk).await {
                let mut kept = shared.lock().expect("the other holder does not panic");
                let room = max.saturating_sub(kept.0.len()).min(read);
                kept.0.extend_from_slice(&chunk[..room]);
                kept.1 |= room < read;
            }
        });
        Self { bytes, task }
    }

    async fn take(mut self) -> (Vec<u8>, bool) {
        if timeout(OUTPUT_WAIT, &mut self.task).await.is_err() {
            self.task.abort();
        }
        std::mem::take(&mut *self.bytes.lock().expect("the other holder does not panic"))
    }
}
