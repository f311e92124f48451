//! Waits until a deployment is as it was asked for, and shows how it gets there. When to stop waiting is decided in
//! `judge`, what is shown in `show`; here they are fed, with that deployment alone: what a wait costs follows the stack, however
//! large the cell is.

use std::time::{Duration, Instant};

use plimsoll_api::client::Client;
use plimsoll_api::view::{Deployment, Status};
use plimsoll_model::{Millis, Timestamp};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::age::{length, took};
use crate::error::CliError;
use crate::live::News;
use crate::output::{count, note};
use crate::replica_line::ready;
use crate::screen::Block;
use crate::terminal::Target;

mod judge;
mod next;
mod show;

use judge::{Goal, Judge, WaitVerdict};

/// How often the lines are drawn though nothing changed: they say how long it has taken.
const TICK: Duration = Duration::from_secs(1);

/// Whether to wait, as it is typed.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Wait {
    /// Return without waiting
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Time limit for waiting, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "LENGTH", default_value = "10m", value_parser = length)]
    pub(crate) timeout: Millis,
}

/// What is waited for.
#[derive(Debug)]
pub(crate) struct WaitTarget {
    pub(crate) deployment: String,
    /// None: whatever it is at, as after a restart.
    pub(crate) revision: Option<u64>,
    /// The log entry that asked for it.
    pub(crate) index: Option<u64>,
}

/// Returns the deployment once it is steady. Anything else is trouble with its reasons.
pub(crate) async fn until_steady(
    client: &Client,
    wanted: &WaitTarget,
    timeout: Millis,
) -> Result<(Deployment, Millis), CliError> {
    let begun = Instant::now();
    let mut shown = ShownProgress::new(begun);
    let mut judge = Judge::new(Goal { revision: wanted.revision, timeout });
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| CliError::failed(format!("cannot listen for Ctrl-C: {error}")))?;
    let mut news: Option<News> = None;
    let name = &wanted.deployment;
    loop {
        let at = since(begun);
        match client.status_of(name).await {
            Ok(status) => {
                let news = news.get_or_insert_with(|| News::of(client, name, &status));
                let deployment = status.deployments.iter().find(|it| it.name == *name);
                let is_behind = wanted.index.is_some_and(|index| status.cell.applied < index);
                if let Some(deployment) = deployment {
                    shown.show(&status, deployment);
                }
                let verdict = if is_behind { judge.blind(at) } else { judge.look(deployment, at) };
                match (verdict, deployment) {
                    (WaitVerdict::Steady, Some(deployment)) => return Ok((deployment.clone(), at)),
                    (WaitVerdict::Waiting, _) => {}
                    (mut verdict, deployment) => {
                        if let WaitVerdict::Late(reasons) = &mut verdict {
                            reasons.splice(0..0, status.nodes.iter().filter_map(next::unavailable));
                        }
                        let revision = wanted.revision.or(deployment.map(|it| it.revision));
                        return Err(next::trouble(name, revision, deployment, verdict, at));
                    }
                }
                let pause = async {
                    tokio::select! { () = news.wait() => {} () = sleep(TICK) => {} }
                };
                tokio::select! {
                    () = pause => {}
                    _ = interrupt.recv() => return Err(left(name)),
                }
            }
            // Whoever answered before comes back, or the time runs out.
            Err(error) => {
                if judge.blind(at) != WaitVerdict::Waiting {
                    return Err(error.into());
                }
                shown.lost(&error.to_string());
                tokio::select! {
                    () = sleep(TICK) => {}
                    _ = interrupt.recv() => return Err(left(name)),
                }
            }
        }
    }
}

/// Returns once nothing of the deployment is left.
pub(crate) async fn until_gone(
    client: &Client,
    name: &str,
    timeout: Millis,
) -> Result<Millis, CliError> {
    let begun = Instant::now();
    let mut shown = ShownProgress::new(begun);
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| CliError::failed(format!("cannot listen for Ctrl-C: {error}")))?;
    let mut news: Option<News> = None;
    loop {
        let is_late = since(begun) >= timeout;
        let looked = client.status_of(name).await;
        match &looked {
            Ok(status) => {
                let Some(deployment) = status.deployments.iter().find(|it| it.name == name) else {
                    return Ok(since(begun));
                };
                shown.show(status, deployment);
                news.get_or_insert_with(|| News::of(client, name, status));
                if is_late {
                    return Err(not_gone(deployment, timeout));
                }
            }
            Err(error) if !is_late => shown.lost(&error.to_string()),
            Err(_) => {}
        }
        if let (Err(error), true) = (looked, is_late) {
            return Err(error.into());
        }
        let heard = async {
            match &mut news {
                Some(news) => news.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = heard => {}
            () = sleep(TICK) => {}
            _ = interrupt.recv() => return Err(left(name)),
        }
    }
}

fn not_gone(deployment: &Deployment, timeout: Millis) -> CliError {
    let name = &deployment.name;
    let left = deployment.services.iter().map(|service| service.replicas.len()).sum();
    let left = count(left, "replica");
    CliError::failed(format!("{name} is not gone after {timeout}: {left} still to stop"))
        .hint(format!("it continues; `plimsoll status {name} -w` shows how"))
}

/// `shop revision 3 is steady: 5 replicas in 4.2 s`
pub(crate) fn done(deployment: &Deployment, at: Millis) -> String {
    let (ready, _) = ready(deployment);
    let replicas = count(ready as usize, "replica");
    let (name, revision) = (&deployment.name, deployment.revision);
    format!("{name} revision {revision} is steady: {replicas} in {}\n", took(at))
}

fn left(name: &str) -> CliError {
    let text = format!("\n{name} continues in the background\n");
    CliError::interrupted(&text).hint(format!("`plimsoll status {name} -w` shows how"))
}

fn since(begun: Instant) -> Millis {
    Millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// What the person at the terminal has seen so far.
struct ShownProgress {
    begun: Instant,
    /// None: every change is a line of its own.
    block: Option<Block>,
    story: show::ProgressStory,
    lost: bool,
}

impl ShownProgress {
    fn new(begun: Instant) -> Self {
        let block = Target::Stderr.is_drawable().then(Block::default);
        Self { begun, block, story: show::ProgressStory::default(), lost: false }
    }

    fn show(&mut self, status: &Status, deployment: &Deployment) {
        self.lost = false;
        let at = since(self.begun);
        let changes = self.story.changes(status, deployment);
        let Some(block) = &mut self.block else {
            for change in changes {
                note(&format!("{:>8}  {change}", took(at)));
            }
            return;
        };
        let (width, height) = Target::Stderr.size().unwrap_or((80, 24));
        let lines = self.story.lines(status, deployment, at, now(), (width, height));
        Target::Stderr.write(&block.draw(Target::Stderr.lines(lines), width));
    }

    fn lost(&mut self, error: &str) {
        if !self.lost {
            note(&format!("{error}; retrying"));
            self.lost = true;
            // Lines below the note are drawn anew.
            self.block = self.block.take().map(|_| Block::default());
        }
    }
}

/// This machine's clock, for ages.
pub(crate) fn now() -> Timestamp {
    plimsoll_daemon::context::now()
}
