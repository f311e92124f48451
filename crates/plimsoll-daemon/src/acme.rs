//! Gets certificates for routes with `tls: auto`, while this node leads: asks an ACME authority for what
//! [`kernel::certificates`](plimsoll_kernel::certificates) says is due, and writes down each step before the next, so that
//! whoever leads next goes on with the same order and the same key. Every node answers the authority and serves what it
//! issues; see [`routing`](crate::routing).

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_kernel::certificates::{CertificateDecision, DueCertificate, decide, retry_at};
use plimsoll_model::acme::{AcmeAccount, AcmeChange, AcmeFailureKind, AcmeSettings, MAX_CHAIN};
use plimsoll_model::{Change, Guarded, Millis, Writer};
use plimsoll_peer::PeerClient;
use plimsoll_store::Leadership;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::context::{NodeContext, WriteError, now, span};

mod account;
mod client;
mod order;
mod propagation;

/// Who the audit says it was.
const IDENTITY: &str = "certificates";

/// How many hosts are asked for at once: a slow one must not hold up all others, nor must all of them come at once.
const AT_ONCE: usize = 4;

/// How long changes of the state are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(200);

/// How often it is looked anyway: a clock may have been put forward.
const LOOK: Duration = Duration::from_mins(5);

/// How long to wait when the log does not take a step.
const RETRY: Duration = Duration::from_millis(500);

/// The longest that one host may take, in all: what takes longer is gone on with later.
const PATIENCE: Duration = Duration::from_mins(4);

/// What this node was started with. The setting itself is the cell's and lies in the log: whoever leads writes there what it
/// was told, and one that was told nothing goes on with what is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AcmeChoice {
    #[default]
    AsBefore,
    Off,
    Ask(AcmeSettings),
}

/// Why a step was not taken.
#[derive(Debug)]
struct StepFailure {
    kind: AcmeFailureKind,
    text: String,
    retry_after: Option<Millis>,
}

/// A step ends well, fails in a way to be written down, or is not this node's to take any more.
#[derive(Debug)]
enum StepEnd {
    Failed(StepFailure),
    /// The log did not take it: somebody else leads, or the host is not wanted any more.
    Unwritten(WriteError),
}

impl From<WriteError> for StepEnd {
    fn from(error: WriteError) -> Self {
        Self::Unwritten(error)
    }
}

impl From<StepFailure> for StepEnd {
    fn from(failure: StepFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Asks for certificates whenever this node leads, until told to stop.
pub async fn run(
    cell: NodeContext,
    client: PeerClient,
    choice: AcmeChoice,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut leadership = cell.engine.leadership();
    loop {
        tokio::select! {
            elected = leadership.wait_for(|leadership| leadership.is_me) => {
                if elected.is_err() {
                    return;
                }
            }
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        let term = leadership.borrow().term;
        let asking = Asking { cell: cell.clone(), client: client.clone() };
        tokio::select! {
            () = asking.lead(&choice) => {}
            _ = leadership.wait_for(|now: &Leadership| !now.is_me || now.term != term) => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

#[derive(Debug, Clone)]
struct Asking {
    cell: NodeContext,
    client: PeerClient,
}

impl Asking {
    /// Goes on until it is dropped.
    async fn lead(self, choice: &AcmeChoice) {
        self.configure(choice).await;
        let mut applied = self.cell.engine.machine().applied();
        // Dropped with this, and with it whatever is under way: the next leader goes on with what was written.
        let mut running: JoinSet<String> = JoinSet::new();
        let mut hosts = BTreeSet::new();
        loop {
            applied.mark_unchanged();
            let decision =
                self.cell.engine.machine().read(|state| decide(state, &self.cell.policy, now()));
            let CertificateDecision { batch, due, wake } = decision;
            for guarded in batch {
                let _ = self.commit(guarded).await;
            }
            let due: Vec<DueCertificate> =
                due.into_iter().filter(|due| !hosts.contains(&due.host)).collect();
            if !due.is_empty() && hosts.len() < AT_ONCE && self.has_account(&due).await {
                for due in due.into_iter().take(AT_ONCE - hosts.len()) {
                    hosts.insert(due.host.clone());
                    let asking = self.clone();
                    running.spawn(async move { asking.attend(due).await });
                }
            }
            let wait = wake.map_or(LOOK, |wake| span(wake.since(now())).clamp(GATHER, LOOK));
            tokio::select! {
                Some(ended) = running.join_next() => {
                    match ended {
                        Ok(host) => drop(hosts.remove(&host)),
                        // One that panicked is not known by name: all are looked at again once the others have ended.
                        Err(_) if running.is_empty() => hosts.clear(),
                        Err(_) => {}
                    }
                }
                changed = applied.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    sleep(GATHER).await;
                }
                () = sleep(wait) => {}
            }
        }
    }

    async fn configure(&self, choice: &AcmeChoice) {
        let settings = match choice {
            AcmeChoice::AsBefore => return,
            AcmeChoice::Off => None,
            AcmeChoice::Ask(settings) => Some(settings.clone()),
        };
        let is_known = self.cell.engine.machine().read(|state| state.acme().settings == settings);
        if is_known {
            return;
        }
        let change = AcmeChange::Configure { settings };
        while let Err(error) = self.write(change.clone()).await {
            if matches!(error, WriteError::Refused(_)) {
                tracing::error!(%error, "cannot take over what --acme-email and its neighbours say");
                return;
            }
            sleep(RETRY).await;
        }
    }

    /// Whether the cell has an account, made now if there was none. Without one nothing can be asked, and every host that is
    /// due says why.
    async fn has_account(&self, due: &[DueCertificate]) -> bool {
        match timeout(PATIENCE, account::ensure(self)).await.unwrap_or_else(|_| Err(late().into()))
        {
            Ok(()) => true,
            Err(StepEnd::Unwritten(error)) => {
                tracing::debug!(%error, "an ACME account was not written");
                sleep(RETRY).await;
                false
            }
            Err(StepEnd::Failed(failure)) => {
                for due in due {
                    self.fail(&due.host, &failure).await;
                }
                false
            }
        }
    }

    /// Takes what is due for a host as far as it goes, and returns the host.
    async fn attend(self, due: DueCertificate) -> String {
        let work = timeout(PATIENCE, order::go_on(&self, &due.host, due.step)).await;
        match work.unwrap_or_else(|_| Err(late().into())) {
            Ok(()) => {}
            Err(StepEnd::Unwritten(error)) => {
                tracing::debug!(host = due.host, %error, "a step of an ACME order was not written");
                sleep(RETRY).await;
            }
            Err(StepEnd::Failed(failure)) => self.fail(&due.host, &failure).await,
        }
        due.host
    }

    async fn fail(&self, host: &str, failure: &StepFailure) {
        let StepFailure { kind, text, retry_after } = failure;
        let failures = self
            .cell
            .engine
            .machine()
            .read(|state| state.acme().hosts.get(host).map_or(0, |row| row.failures));
        let retry_at = retry_at(host, failures, *kind, *retry_after, now());
        let wait = retry_at.since(now());
        tracing::warn!(host, why = text, "no certificate; trying again in {wait}");
        let change =
            AcmeChange::Fail { host: host.to_owned(), kind: *kind, text: text.clone(), retry_at };
        if let Err(error) = self.write(change).await {
            tracing::debug!(host, %error, "a failed ACME order was not written");
            sleep(RETRY).await;
        }
    }

    fn settings(&self) -> Option<(AcmeSettings, Option<AcmeAccount>)> {
        self.cell.engine.machine().read(|state| {
            let acme = state.acme();
            Some((acme.settings.clone()?, acme.account.clone()))
        })
    }

    async fn write(&self, change: AcmeChange) -> Result<(), WriteError> {
        self.commit(Change::Acme { change }.free()).await
    }

    async fn commit(&self, guarded: Guarded) -> Result<(), WriteError> {
        self.cell.write(Writer::Scheduler, IDENTITY, vec![guarded]).await.map(drop)
    }
}

fn late() -> StepFailure {
    let text = "the authority took too long".to_owned();
    StepFailure { kind: AcmeFailureKind::Unavailable, text, retry_after: None }
}

/// The setting as it is typed, if it can be one.
pub fn settings(
    email: &str,
    directory: &str,
    ca: Option<String>,
) -> Result<AcmeSettings, &'static str> {
    if !directory.starts_with("https://") || directory.parse::<hyper::Uri>().is_err() {
        return Err("the directory is an https:// URL");
    }
    let is_email =
        email.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
    if !is_email || email.contains(char::is_whitespace) {
        return Err("write the email address as ops@example.org");
    }
    if ca.as_ref().is_some_and(|ca| ca.len() > MAX_CHAIN) {
        return Err("the file has more certificates than an authority needs");
    }
    let (email, directory) = (email.to_owned(), directory.to_owned());
    Ok(AcmeSettings { directory, email, ca })
}
