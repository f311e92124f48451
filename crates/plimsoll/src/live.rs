//! The way to a running daemon: which one, how its errors read, and word of what changes there.

use std::path::Path;
use std::time::Duration;

use plimsoll_api::client::{Client, Endpoint, Error, Stream};
use plimsoll_api::view::{Changed, ProblemCode, Status};
use tokio::time::sleep;

use crate::default_paths::Who;
use crate::error::CliError;

/// Changes come in bursts; waiting this long shows a burst as one.
const BURST: Duration = Duration::from_millis(50);

/// How old a page may grow though nothing is heard: what is only measured is not announced.
const STALE: Duration = Duration::from_secs(2);

/// How long to wait before a lost daemon is looked for again.
const RETRY: Duration = Duration::from_millis(500);

/// Which daemon is meant, as it is typed.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct HostArgs {
    // Not as a doc comment: its names would need marks that the help would show.
    #[arg(long, value_name = "HOST", help_heading = "Connection")]
    #[arg(help = "The daemon's socket, or http://address:port [env: PLIMSOLL_HOST]")]
    host: Option<String>,
    #[arg(long, value_name = "TOKEN", help_heading = "Connection")]
    #[arg(help = "API token, for a daemon on TCP or one that holds no log [env: PLIMSOLL_TOKEN]")]
    token: Option<String>,
}

impl HostArgs {
    /// What was typed before the command holds where nothing was typed after it.
    pub(crate) fn or(&self, before: &Self) -> Self {
        Self {
            host: self.host.clone().or_else(|| before.host.clone()),
            token: self.token.clone().or_else(|| before.token.clone()),
        }
    }

    pub(crate) fn client(&self) -> Result<Client, CliError> {
        let from_env = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let host = self.host.clone().or_else(|| from_env("PLIMSOLL_HOST"));
        let endpoint = match host {
            None => Endpoint::Unix(Who::of_process().nearest_socket(|path| path.exists())),
            Some(text) if !text.contains('/') && Path::new(&text).exists() => {
                Endpoint::Unix(text.into())
            }
            Some(text) => text.parse().map_err(|error| {
                let hint = "`--host` and PLIMSOLL_HOST take a socket or http://address:port";
                CliError::refused(format!("{error}")).hint(hint)
            })?,
        };
        let token = self.token.clone().or_else(|| from_env("PLIMSOLL_TOKEN"));
        let client = Client::new(endpoint);
        Ok(match token {
            Some(token) => client.with_token(token),
            None => client,
        })
    }
}

/// Does what needs a daemon.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        CliError::failed(format!("cannot begin to talk to the daemon: {error}"))
    })?;
    runtime.block_on(work)
}

/// A daemon that is not there, or says no, in our words and with the next step.
impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let trouble = match &error {
            Error::Unreachable { endpoint, source } => {
                Self::failed(format!("no daemon answers at {endpoint}: {}", why(source)))
            }
            Error::Local(source) => Self::failed(format!("{error}: {source}")),
            Error::Problem(_) if error.is_refusal() => Self::refused(error.to_string()),
            // These differ in what to do next, so they are called by their names.
            Error::Problem(problem)
                if matches!(
                    problem.code,
                    ProblemCode::NoLeader | ProblemCode::QuorumLost | ProblemCode::Superseded
                ) =>
            {
                Self::failed(format!("{}: {error}", problem.code))
            }
            Error::Problem(_) | Error::TimedOut { .. } | Error::Protocol { .. } => {
                Self::failed(error.to_string())
            }
        };
        match (error.code(), error.hint()) {
            (Some(ProblemCode::Unauthorized), _) => trouble.hint(
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
        std::io::ErrorKind::ConnectionRefused => {
            "connection refused: no daemon listens there".to_owned()
        }
        std::io::ErrorKind::TimedOut => "it takes too long".to_owned(),
        _ => error.to_string(),
    }
}

/// Word that something may have changed.
#[derive(Debug)]
pub(crate) struct News {
    client: Client,
    /// None: of everything.
    deployment: Option<String>,
    stream: Option<Stream<Changed>>,
    seen: Option<u64>,
}

impl News {
    /// Of everything, from this status on.
    pub(crate) fn after(client: &Client, status: &Status) -> Self {
        let seen = Some(status.cell.applied);
        Self { client: client.clone(), deployment: None, stream: None, seen }
    }

    /// Of one deployment and the nodes that hold it, from this status on.
    pub(crate) fn of(client: &Client, deployment: &str, status: &Status) -> Self {
        let deployment = Some(deployment.to_owned());
        Self { deployment, ..Self::after(client, status) }
    }

    /// Returns when it is time to look again: something changed, or a while has passed. A lost stream is taken up where
    /// it broke off. Nothing is lost when the wait is given up half-way.
    pub(crate) async fn wait(&mut self) {
        if self.stream.is_none() {
            let opened = match &self.deployment {
                None => self.client.watch(self.seen).await,
                Some(name) => self.client.watch_deployment(name, self.seen).await,
            };
            match opened {
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
pub(crate) async fn status(client: &Client, only: Option<&str>) -> Result<Status, CliError> {
    let mut status = client.status().await?;
    if let Some(name) = only {
        if !status.deployments.iter().any(|deployment| deployment.name == name) {
            return Err(crate::subject::no_deployment(&status, name));
        }
        status.deployments.retain(|deployment| deployment.name == name);
    }
    Ok(status)
}
