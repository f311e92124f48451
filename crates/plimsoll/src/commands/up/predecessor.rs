//! The process whose place this one takes: it is told that this one can, hands over its sockets, and goes on routing until
//! this one does.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use plimsoll_daemon::handover::{Channel, Word};
use plimsoll_model::Level;
use plimsoll_model::level::VERSION;
use plimsoll_router::Sockets;

use crate::trouble::Trouble;

#[derive(Debug)]
pub(super) struct Predecessor(Channel);

impl Predecessor {
    /// On the other end of the standard input. From here on nothing is read there.
    pub(super) fn of_stdin() -> Result<Self, Trouble> {
        let channel = || {
            let end = io::stdin().as_fd().try_clone_to_owned()?;
            rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
            Channel::on(end)
        };
        channel().map(Self).map_err(|error| lost(&error.to_string()))
    }

    /// Says that this process can start, and waits until it may.
    pub(super) async fn yields(&self) -> Result<Sockets, Trouble> {
        let hello = Word::Hello { reads: Level::BUILD, version: VERSION.to_owned() };
        self.0.say(&hello).await.map_err(|error| lost(&error.to_string()))?;
        let mut sockets = Vec::new();
        loop {
            match self.0.hear().await {
                Ok(Some((Word::Socket(name), Some(socket)))) => sockets.push((name, socket)),
                Ok(Some((Word::Go, _))) => return Ok(Sockets::inherited(sockets)),
                Ok(Some((word, _))) => return Err(lost(&format!("it said {word:?}"))),
                Ok(None) => return Err(lost("it has ended, or changed its mind")),
                Err(error) => return Err(lost(&error.to_string())),
            }
        }
    }

    /// This process routes, and the other one need not any more.
    pub(super) async fn is_relieved(&self) {
        self.say(&Word::Ready).await;
    }

    /// This process was told to stop, and the other one is with it.
    pub(super) async fn is_to_stop(&self) {
        self.say(&Word::Bye).await;
    }

    async fn say(&self, word: &Word) {
        if let Err(error) = self.0.say(word).await {
            tracing::debug!(%error, ?word, "the process before this one has gone already");
        }
    }
}

fn lost(why: &str) -> Trouble {
    let what = "cannot take over from the daemon that started this one";
    Trouble::failed(format!("{what}: {why}"))
        .hint("this is for plimsoll itself; to hand over, send SIGHUP to the daemon that runs")
}
