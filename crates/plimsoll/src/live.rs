//! The way to a running daemon: which one, how its errors read, and word of what changes there.

use std::path::Path;
use std::time::Duration;

use plimsoll_daemon::client::{Client, Endpoint, Error, Stream};
use plimsoll_daemon::view::{Changed, Status};
use tokio::time::sleep;

use crate::places::Who;
use crate::trouble::Trouble;

/// Changes come in bursts; waiting this long shows a burst as one.
const BURST: Duration = Duration::from_millis(50);

/// How old a page may grow though nothing is heard: what is only measured is not announced.
const STALE: Duration = Duration::from_secs(2);

/// How long to wait before a lost daemon is looked for again.
const RETRY: Duration = Duration::from_millis(500);

/// Which daemon is meant, as it is typed.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Host {
    // Not as a doc comment: its names would need marks that the help would show.
    #[arg(long, value_name = "HOST", help_heading = "Connection")]
    #[arg(help = "The daemon's socket, or http://address:port [env: PLIMSOLL_HOST]")]
    host: Option<String>,
    #[arg(long, value_name = "TOKEN", help_heading = "Connection")]
    #[arg(help = "What a daemon on TCP asks for [env: PLIMSOLL_TOKEN]")]
    token: Option<String>,
}

impl Host {
    /// What was typed before the command holds where nothing was typed after it.
    pub(crate) fn or(&self, before: &Self) -> Self {
        Self {
            host: self.host.clone().or_else(|| before.host.clone()),
            token: self.token.clone().or_else(|| before.token.clone()),
        }
    }

    pub(crate) fn client(&self) -> Result<Client, Trouble> {
        let from_env = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let host = self.host.clone().or_else(|| from_env("PLIMSOLL_HOST"));
        let endpoint = match host {
            None => Endpoint::Unix(Who::of_process().nearest_socket(|path| path.exists())),
            Some(text) if !text.contains('/') && Path::new(&text).exists() => {
                Endpoint::Unix(text.into())
            }
            Some(text) => text.parse().map_err(|error| {
                let hint = "`--host` and PLIMSOLL_HOST take a socket or http://address:port";
                Trouble::refused(format!("{error}")).hint(hint)
            })?,
        };
        let token = self.token.clone().or_else(|| from_env("PLIMSOLL_TOKEN"));
        Ok(Client::new(match token {
            Some(token) => endpoint.with_token(token),
            None => endpoint,
        }))
    }
}

/// Does what needs a daemon.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Trouble::failed(format!("cannot begin to talk to the daemon: {error}")))?;
    runtime.block_on(work)
}

/// A daemon that is not there, or says no, in our words and with the next step.
impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let trouble = match &error {
            Error::Unreachable { endpoint, source } => {
                Self::failed(format!("no daemon answers at {endpoint}: {}", why(source)))
            }
            Error::Local(source) => Self::failed(format!("{error}: {source}")),
            Error::Problem(_) if error.is_refusal() => Self::refused(error.to_string()),
            // These differ in what to do next, so they are called by their names.
            Error::Problem(problem)
                if ["no_leader", "quorum_lost", "superseded"].contains(&&*problem.code) =>
            {
                Self::failed(format!("{}: {error}", problem.code))
            }
            Error::Problem(_) | Error::Protocol { .. } => Self::failed(error.to_string()),
        };
        match (error.code(), error.hint()) {
            (Some("unauthorized"), _) => trouble.hint(
                "give it with `--token` or PLIMSOLL_TOKEN; `plimsoll up` says in which file it is",
            ),
            (_, Some(hint)) => trouble.hint(hint),
            (_, None) => trouble,
        }
    }
}

fn why(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        std::io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
        std::io::ErrorKind::TimedOut => "it takes too long".to_owned(),
        _ => error.to_string(),
    }
}

/// Word that something may have changed.
#[derive(Debug)]
pub(crate) struct News {
    client: Client,
    stream: Option<Stream<Changed>>,
    seen: Option<u64>,
}

impl News {
    /// From this status on.
    pub(crate) fn after(client: &Client, status: &Status) -> Self {
        Self { client: client.clone(), stream: None, seen: Some(status.cell.applied) }
    }

    /// Returns when it is time to look again: something changed, or a while has passed. A lost stream is taken up where
    /// it broke off. Nothing is lost when the wait is given up half-way.
    pub(crate) async fn wait(&mut self) {
        if self.stream.is_none() {
            match self.client.watch(self.seen).await {
                Ok(stream) => self.stream = Some(stream),
                Err(_) => return sleep(RETRY).await,
            }
        }
        let Some(stream) = &mut self.stream else { return };
        tokio::select! {
            changed = stream.next() => {
                if let Some(Ok(changed)) = changed {
                    self.seen = Some(changed.index);
                    sleep(BURST).await;
                } else {
                    self.stream = None;
                    sleep(RETRY).await;
                }
            }
            () = sleep(STALE) => {}
        }
    }
}

/// The status, narrowed to one deployment where one is named.
pub(crate) async fn status(client: &Client, only: Option<&str>) -> Result<Status, Trouble> {
    let mut status = client.status().await?;
    if let Some(name) = only {
        if !status.deployments.iter().any(|deployment| deployment.name == name) {
            return Err(crate::subject::no_deployment(&status, name));
        }
        status.deployments.retain(|deployment| deployment.name == name);
    }
    Ok(status)
}
