//! The way to a running daemon: which one, how its errors read, and word of what changes there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::client::{Client, Endpoint, Error, Stream};
use plimsoll_api::view::{Changed, ProblemCode, Status};
use plimsoll_peer::pki::{
    Fingerprint, Login, OperatorCertificate, fingerprints_in, operator_client_config_with,
};
use rustls::ClientConfig;
use tokio::time::sleep;

use crate::contexts::{Context, ContextStore, DEFAULT};
use crate::default_paths::Who;
use crate::error::CliError;
use crate::rotation_follower::{KeptContext, following};

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
    #[arg(help = "The daemon's socket, or https://address:port [env: PLIMSOLL_HOST]")]
    host: Option<String>,
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    #[arg(help = "Context made by `plimsoll login` [env: PLIMSOLL_CONTEXT]")]
    context: Option<String>,
    #[arg(long, value_name = "TOKEN", help_heading = "Connection")]
    #[arg(help = "API token or login string [env: PLIMSOLL_TOKEN]")]
    token: Option<String>,
    #[arg(long, value_name = "PRINT|FILE", help_heading = "Connection")]
    #[arg(help = "Fingerprint or CA file of the cell [env: PLIMSOLL_AUTHORITY]")]
    authority: Option<String>,
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    #[arg(help = "Your certificate and its key [env: PLIMSOLL_CERTIFICATE]")]
    certificate: Option<String>,
}

impl HostArgs {
    /// What was typed before the command holds where nothing was typed after it.
    pub(crate) fn or(&self, before: &Self) -> Self {
        Self {
            host: self.host.clone().or_else(|| before.host.clone()),
            context: self.context.clone().or_else(|| before.context.clone()),
            token: self.token.clone().or_else(|| before.token.clone()),
            authority: self.authority.clone().or_else(|| before.authority.clone()),
            certificate: self.certificate.clone().or_else(|| before.certificate.clone()),
        }
    }

    /// This socket, where nobody typed which daemon is meant.
    pub(crate) fn or_socket(&self, socket: Option<PathBuf>) -> Self {
        let is_typed = self.host.is_some() || self.context.is_some();
        let socket = socket.filter(|_| !is_typed).map(|path| path.display().to_string());
        Self { host: socket.or_else(|| self.host.clone()), ..self.clone() }
    }

    pub(crate) fn client(&self) -> Result<Client, CliError> {
        let from_env = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        self.choose(&from_env, &Who::of_process())?.client()
    }

    /// Where the command goes, and as whom.
    fn choose(&self, env: &dyn Fn(&str) -> Option<String>, who: &Who) -> Result<Choice, CliError> {
        let token = Given::of(self.token.as_ref(), "--token", env, "PLIMSOLL_TOKEN");
        let login = token.as_ref().filter(|token| Login::is_meant(&token.text));
        let login = match login {
            Some(given) => Some((given.by, given.login()?)),
            None => None,
        };
        let authority =
            Given::of(self.authority.as_ref(), "--authority", env, "PLIMSOLL_AUTHORITY");
        let mut choice = match (&self.host, &self.context) {
            (Some(_), Some(_)) => {
                return Err(CliError::refused("--host and --context name two ways; choose one"));
            }
            (Some(host), None) => Choice::host(host, "--host")?,
            (None, Some(name)) => Choice::context(name, "--context", who)?,
            (None, None) => {
                let given = (env("PLIMSOLL_HOST"), env("PLIMSOLL_CONTEXT"), &login);
                match given {
                    (Some(host), ..) => Choice::host(&host, "PLIMSOLL_HOST")?,
                    (None, Some(name), _) => Choice::context(&name, "PLIMSOLL_CONTEXT", who)?,
                    (None, None, Some((by, login))) if !login.addresses.is_empty() => Choice {
                        by: format!("the login string in {by}"),
                        way: Way::Https(login.addresses.clone()),
                        authorities: Vec::new(),
                        token: None,
                        certificate: None,
                        kept: None,
                    },
                    _ => Choice::current(who)?,
                }
            }
        };
        match login {
            Some((_, login)) => {
                choice.token = Some(login.token.to_string());
                choice.authorities.extend(login.fingerprints);
                // What one of these vouches for is not written to a context that does not know it.
                choice.kept = None;
            }
            None => choice.token = token.map(|token| token.text).or(choice.token),
        }
        if let Some(authority) = authority {
            choice.authorities = authority.fingerprints()?;
            choice.kept = None;
        }
        let certificate =
            Given::of(self.certificate.as_ref(), "--certificate", env, "PLIMSOLL_CERTIFICATE");
        if let Some(given) = certificate {
            choice.certificate = Some(certificate_in(Path::new(&given.text), given.by)?);
        }
        Ok(choice)
    }
}

/// What a person has given, and where.
struct Given {
    text: String,
    by: &'static str,
}

impl Given {
    fn of(
        typed: Option<&String>,
        option: &'static str,
        env: &dyn Fn(&str) -> Option<String>,
        variable: &'static str,
    ) -> Option<Self> {
        let typed = typed.cloned().map(|text| Self { text, by: option });
        typed.or_else(|| env(variable).map(|text| Self { text, by: variable }))
    }

    fn login(&self) -> Result<Login, CliError> {
        self.text.parse().map_err(|error| CliError::refused(format!("{}: {error}", self.by)))
    }

    /// Of a list of them, or of the certificates in a file.
    fn fingerprints(&self) -> Result<Vec<Fingerprint>, CliError> {
        let typed = self.text.split(',').map(|print| {
            let print = print.trim();
            print.strip_prefix("sha256:").unwrap_or(print).parse().ok()
        });
        if let Some(prints) = typed.collect() {
            return Ok(prints);
        }
        let wrong = |why: String| {
            CliError::refused(format!("{} {}: {why}", self.by, self.text)).hint(
                "give a fingerprint of 64 hexadecimal digits, or a file made by `plimsoll cell authority`",
            )
        };
        let pem = std::fs::read(&self.text).map_err(|error| wrong(error.to_string()))?;
        let prints = fingerprints_in(&pem).map_err(|error| wrong(error.to_string()))?;
        if prints.is_empty() {
            return Err(wrong("no certificate is in it".to_owned()));
        }
        Ok(prints)
    }
}

/// What a person gave to recognise a cell by.
pub(crate) fn fingerprints(text: &str, by: &'static str) -> Result<Vec<Fingerprint>, CliError> {
    Given { text: text.to_owned(), by }.fingerprints()
}

enum Way {
    Unix(PathBuf),
    Https(Vec<String>),
}

/// A way to a daemon, with who chose it.
struct Choice {
    way: Way,
    by: String,
    authorities: Vec<Fingerprint>,
    token: Option<String>,
    /// What is shown to the node.
    certificate: Option<OperatorCertificate>,
    /// The context that the authorities are of, where they are of one, and since when it has them.
    kept: Option<(KeptContext, Option<u64>)>,
}

impl Choice {
    fn unix(path: PathBuf, by: &str) -> Self {
        let (way, by) = (Way::Unix(path), by.to_owned());
        Self { way, by, authorities: Vec::new(), token: None, certificate: None, kept: None }
    }

    fn host(text: &str, by: &str) -> Result<Self, CliError> {
        if !text.contains('/') && Path::new(text).exists() {
            return Ok(Self::unix(text.into(), by));
        }
        let endpoint: Endpoint = text.parse().map_err(|error| {
            let hint = "`--host` and PLIMSOLL_HOST take a socket or https://address:port";
            CliError::refused(format!("{error}")).hint(hint)
        })?;
        Ok(match endpoint {
            Endpoint::Unix(path) => Self::unix(path, by),
            Endpoint::Https { addresses, .. } => {
                let (way, by) = (Way::Https(addresses), by.to_owned());
                Self {
                    way,
                    by,
                    authorities: Vec::new(),
                    token: None,
                    certificate: None,
                    kept: None,
                }
            }
        })
    }

    fn context(name: &str, by: &str, who: &Who) -> Result<Self, CliError> {
        if name == DEFAULT {
            return Ok(Self::local(who, &format!("context {DEFAULT}, from {by}")));
        }
        let store = ContextStore::of(who)?;
        let context = store.load(name)?.ok_or_else(|| ContextStore::unknown(name))?;
        Self::of(context, format!("context {name}, from {by}"), Some(store))
    }

    /// The current context, or the socket of this machine.
    fn current(who: &Who) -> Result<Self, CliError> {
        let Ok(store) = ContextStore::of(who) else { return Ok(Self::local(who, LOCAL)) };
        let Some(name) = store.current()? else { return Ok(Self::local(who, LOCAL)) };
        let gone = || {
            CliError::failed(format!("the current context {name} is gone"))
                .hint("choose another with `plimsoll context use NAME`, or `use default` for this machine")
        };
        let context = store.load(&name)?.ok_or_else(gone)?;
        Self::of(context, format!("current context {name}"), Some(store))
    }

    fn local(who: &Who, by: &str) -> Self {
        Self::unix(who.nearest_socket(|path| path.exists()), by)
    }

    /// With where the context is kept, if what is heard of its cell is to be.
    fn of(context: Context, by: String, store: Option<ContextStore>) -> Result<Self, CliError> {
        let prints = context.authorities.iter().map(|print| print.parse::<Fingerprint>().ok());
        let authorities = prints.collect::<Option<Vec<_>>>().ok_or_else(|| {
            CliError::failed(format!("context {} is damaged; log in again", context.name))
        })?;
        let by_context = |path: &PathBuf| certificate_in(path, "the context's certificate");
        let certificate = context.certificate.as_ref().map(by_context).transpose()?;
        let token = Some(context.token).filter(|token| !token.is_empty());
        let way = Way::Https(context.addresses);
        let (name, epoch) = (context.name, context.authority_epoch);
        let kept = store.map(|store| (KeptContext { store, name }, epoch));
        Ok(Self { way, by, authorities, token, certificate, kept })
    }

    fn client(self) -> Result<Client, CliError> {
        let endpoint = match self.way {
            Way::Unix(path) => Endpoint::Unix(path),
            Way::Https(addresses) if self.authorities.is_empty() => {
                let message = format!(
                    "https://{} ({}) can only be trusted by its cell's authority, and none is given",
                    addresses.join(","),
                    self.by
                );
                return Err(CliError::refused(message).hint(
                    "`plimsoll login STRING` with what `plimsoll token create` prints; or --authority with the \
                     fingerprint or file of `plimsoll cell authority`",
                ));
            }
            Way::Https(addresses) => {
                let tls = tls(&self.authorities, self.certificate.as_ref())?;
                Endpoint::Https { addresses, tls: None }.with_tls(tls)
            }
        };
        let (kept, epoch) = self.kept.unzip();
        let client = Client::new(endpoint).chosen_by(&self.by);
        let client = following(client, &self.authorities, self.certificate, epoch.flatten(), kept);
        Ok(match self.token {
            Some(token) => client.with_token(token),
            None => client,
        })
    }
}

/// The way to the cell of a context that was named as such.
pub(crate) fn of_context(context: &Context) -> Result<Client, CliError> {
    Choice::of(context.clone(), format!("context {}", context.name), None)?.client()
}

/// What the way is called that nobody chose.
const LOCAL: &str = "the default socket";

/// The certificate and the key in a file.
pub(crate) fn certificate_in(path: &Path, by: &str) -> Result<OperatorCertificate, CliError> {
    let wrong = |why: String| {
        CliError::refused(format!("{by} {}: {why}", path.display())).hint(
            "give a PEM file with a certificate and its key; an admin enrols it with `plimsoll token create NAME \
             --for-certificate FILE`",
        )
    };
    let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    OperatorCertificate::from_pem(&pem).map_err(|error| wrong(error.to_string()))
}

/// How a node of the cell with one of these authorities is recognised, and what is shown to it.
pub(crate) fn tls(
    authorities: &[Fingerprint],
    certificate: Option<&OperatorCertificate>,
) -> Result<Arc<ClientConfig>, CliError> {
    operator_client_config_with(authorities, certificate)
        .map_err(|error| CliError::failed(format!("cannot set up TLS: {error}")))
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
            Error::Problem(_)
            | Error::Untrusted { .. }
            | Error::TimedOut { .. }
            | Error::Protocol { .. } => Self::failed(error.to_string()),
        };
        match (error.code(), error.hint()) {
            (Some(ProblemCode::Unauthorized), _) => trouble.hint(
                "log in with what `plimsoll token create` prints on a node: `plimsoll login STRING`; or set PLIMSOLL_TOKEN to it",
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
