//! The process that is to take this one's place: started from the same path with the same arguments, so that a binary that
//! was upgraded meanwhile takes over. Until it has said that it can start, nothing is given up.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use plimsoll_daemon::handover::{Channel, HandoverMessage};
use plimsoll_model::Level;
use plimsoll_router::sockets::SocketName;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::predecessor::Predecessor;

/// The argument by which a process knows that it takes over. It is for plimsoll itself, so no help has it.
pub(super) const TAKES_OVER: &str = "--takes-over";

/// The number of a process with which the kernel ends all others that it can see.
const FIRST: u32 = 1;

/// How long it may take to say that it can start: it reads its arguments and two files.
const CHECK: Duration = Duration::from_secs(10);

/// How long it may take to route once it may start. It opens its log, hears of its leader and looks at its runtime, each of
/// which is bounded by itself.
const TAKE_OVER: Duration = Duration::from_mins(1);

/// How this process was started, as found at its start: later the file may be another, or none.
#[derive(Debug, Clone)]
pub(super) struct CommandLine {
    program: PathBuf,
    args: Vec<OsString>,
}

impl CommandLine {
    pub(super) fn of_process() -> std::io::Result<Self> {
        let mut args = std::env::args_os();
        let called = args.next().map(PathBuf::from).unwrap_or_default();
        // By the path it was called by, so that a link that leads elsewhere by then is followed.
        let program = if called.components().count() > 1 {
            std::path::absolute(called)?
        } else {
            std::env::current_exe()?
        };
        let args = args.filter(|arg| *arg != TAKES_OVER).collect();
        Ok(Self { program, args })
    }
}

/// A process that has said that it can take over. It ends with this value until it has.
#[derive(Debug)]
pub(super) struct Successor {
    child: Child,
    channel: Channel,
    is_in_charge: bool,
}

impl Successor {
    /// Starts it and hears what it can; if that is not enough, says why.
    pub(super) async fn start(line: &CommandLine, speaks: Level) -> Result<Self, String> {
        if std::process::id() == FIRST {
            return Err("this is the first process of its container, with which all others end; start another \
                        container instead"
                .to_owned());
        }
        let (channel, stdin) = Channel::pair().map_err(|error| error.to_string())?;
        let mut command = Command::new(&line.program);
        command.args(&line.args).arg(TAKES_OVER).stdin(Stdio::from(stdin));
        let child = command
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", line.program.display()))?;
        // Or our own copy of its end would keep the channel open.
        drop(command);
        let mut successor = Self { child, channel, is_in_charge: false };
        match successor.hear(CHECK).await? {
            HandoverMessage::Hello { reads, .. } if reads >= speaks => Ok(successor),
            HandoverMessage::Hello { reads, version } => Err(format!(
                "plimsoll {version} reads {reads}, and this cell has written {speaks}; install one that reads it"
            )),
            word => Err(format!("it said {word:?}")),
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Has it take over, and returns once it routes; or says why it does not, and ends it.
    pub(super) async fn take_over(
        &mut self,
        sockets: &[(SocketName, OwnedFd)],
        predecessor: Option<&Predecessor>,
    ) -> Result<(), String> {
        let given = async {
            for (name, socket) in sockets {
                self.channel.give(name, socket.as_fd()).await?;
            }
            for elder in predecessor.into_iter().flat_map(Predecessor::all) {
                self.channel.give_elder(elder).await?;
            }
            self.channel.say(&HandoverMessage::Go).await
        };
        let outcome = match given.await {
            // If it has ended, that says more.
            Err(_) | Ok(()) => self.hear(TAKE_OVER).await,
        };
        let failed = match outcome {
            Ok(HandoverMessage::Ready) => {
                self.is_in_charge = true;
                return Ok(());
            }
            Ok(word) => format!("it said {word:?}"),
            Err(why) => why,
        };
        // It may hold the data directory until it is gone for good.
        let _ = self.child.kill().await;
        Err(failed)
    }

    async fn hear(&mut self, within: Duration) -> Result<HandoverMessage, String> {
        let heard = timeout(within, self.channel.hear()).await;
        match heard {
            Ok(Ok(Some((word, _)))) => Ok(word),
            Ok(Ok(None)) => Err(match timeout(within, self.child.wait()).await {
                Ok(Ok(status)) => format!("it ended with {}", shown(status)),
                _ => "it closed the channel".to_owned(),
            }),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("it said nothing for {} s", within.as_secs())),
        }
    }

    /// Returns once it was told to stop, and this process with it. That it is gone says nothing about those who are here.
    pub(super) async fn says_bye(&self) {
        while let Ok(Some((word, _))) = self.channel.hear().await {
            if word == HandoverMessage::Bye {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.is_in_charge {
            let _ = self.child.start_kill();
        }
    }
}

fn shown(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("code {code}"),
        None => status.to_string(),
    }
}
