//! The process whose place this one takes: it is told that this one can, hands over its sockets, and goes on routing until
//! this one does. Those before it that still have clients come with it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use plimsoll_daemon::handover::{Channel, HandoverMessage};
use plimsoll_model::Level;
use plimsoll_model::level::VERSION;
use plimsoll_router::Sockets;

use crate::error::CliError;

#[derive(Debug)]
pub(super) struct Predecessor {
    channel: Channel,
    /// Those that handed over before.
    elders: Vec<Channel>,
}

impl Predecessor {
    /// On the other end of the standard input. From here on nothing is read there.
    pub(super) fn of_stdin() -> Result<Self, CliError> {
        let channel = || {
            let end = io::stdin().as_fd().try_clone_to_owned()?;
            rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
            Channel::on(end)
        };
        let channel = channel().map_err(|error| lost(&error.to_string()))?;
        Ok(Self { channel, elders: Vec::new() })
    }

    /// Says that this process can start, and waits until it may.
    pub(super) async fn yields(&mut self) -> Result<Sockets, CliError> {
        let hello = HandoverMessage::Hello { reads: Level::BUILD, version: VERSION.to_owned() };
        self.channel.say(&hello).await.map_err(|error| lost(&error.to_string()))?;
        let mut sockets = Vec::new();
        loop {
            match self.channel.hear().await {
                Ok(Some((HandoverMessage::Socket(name), Some(socket)))) => {
                    sockets.push((name, socket))
                }
                Ok(Some((HandoverMessage::Elder, Some(elder)))) => {
                    let elder = Channel::on(elder).map_err(|error| lost(&error.to_string()))?;
                    self.elders.push(elder);
                }
                Ok(Some((HandoverMessage::Go, _))) => return Ok(Sockets::inherited(sockets)),
                Ok(Some((word, _))) => return Err(lost(&format!("it said {word:?}"))),
                Ok(None) => return Err(lost("it has ended, or changed its mind")),
                Err(error) => return Err(lost(&error.to_string())),
            }
        }
    }

    /// This process routes, and the other one need not any more.
    pub(super) async fn is_relieved(&self) {
        say(&self.channel, &HandoverMessage::Ready).await;
    }

    /// This process was told to stop, and all before it are with it.
    pub(super) async fn is_to_stop(&self) {
        for process in self.all() {
            say(process, &HandoverMessage::Bye).await;
        }
    }

    /// It and those before it, as far as they are there.
    pub(super) fn all(&self) -> impl Iterator<Item = &Channel> {
        let all = std::iter::once(&self.channel).chain(&self.elders);
        all.filter(|process| !process.is_closed())
    }
}

async fn say(process: &Channel, word: &HandoverMessage) {
    if let Err(error) = process.say(word).await {
        tracing::debug!(%error, ?word, "a process before this one has gone already");
    }
}

fn lost(why: &str) -> CliError {
    let what = "cannot take over from the daemon that started this one";
    CliError::failed(format!("{what}: {why}"))
        .hint("this is for plimsoll itself; to hand over, send SIGHUP to the daemon that runs")
}
