//! `plimsoll demo`: runs a small stack on this machine, treats it badly, and says what came of it. Every number that is
//! told was measured, and every claim is checked; one that does not hold ends the story with exit code 2.
//!
//! The node is a whole one, in this process and in a directory of its own, which `stage` sets up and clears away. What
//! happens is in `acts`; `look` checks the daemon's word against the kernel's, and `tell` prints.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::age::took;
use crate::error::CliError;
use crate::output::data;

mod acts;
mod look;
mod process;
mod stack;
mod stage;
mod tell;

use stage::Stage;
use tell::Teller;

/// It takes a quarter of this; whoever waited longer would not know whether it still goes on.
const LIMIT: Duration = Duration::from_secs(50);

const OPENING: &str = "\
A node of its own on this machine, with a small stack: store, api and web, as plain processes.
No image and no network is needed, and nothing is left afterwards.
";

const NEXT: &str = "
Try next:
  plimsoll up                                        run a node that stays
  plimsoll apply -f compose.yaml                     a stack of yours on it
  plimsoll sim run scenarios/lost-node.yaml --story  a cell that loses a node, simulated
";

/// Watch a node heal, update and restart real processes, in under a minute.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<(), CliError> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| CliError::failed(format!("cannot start threads: {error}")))?;
    runtime.block_on(perform())
}

async fn perform() -> Result<(), CliError> {
    let mut ends = Vec::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let listening = signal(kind);
        ends.push(
            listening
                .map_err(|error| CliError::failed(format!("cannot listen for signals: {error}")))?,
        );
    }
    let [interrupt, terminate, hangup] = ends.as_mut_slice() else { unreachable!("three kinds") };
    let mut stage = Stage::set()?;
    let mut teller = Teller::begin();
    let ended = tokio::select! {
        ended = timeout(LIMIT, story(&mut stage, &mut teller)) => {
            ended.unwrap_or_else(|_| Err(CliError::failed("the demo takes too long; is this machine very busy?")))
        }
        _ = interrupt.recv() => Err(left()),
        _ = terminate.recv() => Err(left()),
        _ = hangup.recv() => Err(left()),
    };
    // However it ended, and also when it is interrupted once more.
    let cleared = stage.clear().await;
    let shown = ended?;
    cleared?;
    let took = took(teller.elapsed());
    let mut text = format!("\nWhat was shown, in {took}:\n");
    for claim in shown {
        text.extend(["  - ", &claim, "\n"]);
    }
    text += "  - nothing is left: no process, no file\n";
    data(&(text + NEXT))
}

/// What was shown, a claim each.
async fn story(stage: &mut Stage, teller: &mut Teller) -> Result<Vec<String>, CliError> {
    data(OPENING)?;
    stage.up().await?;
    let mut play = acts::Play::new(stage, teller);
    Ok(vec![
        play.comes_up().await?,
        play.heals().await?,
        play.refuses_a_bad_revision().await?,
        play.rolls_a_good_revision().await?,
        play.outlives_its_daemon().await?,
        play.goes().await?,
    ])
}

fn left() -> CliError {
    CliError::interrupted("\nstopped; what the demo had started is gone\n")
}

fn hold(is_so: bool, claim: impl FnOnce() -> String) -> Result<(), CliError> {
    if is_so { Ok(()) } else { Err(not_so(&claim())) }
}

fn not_so(claim: &str) -> CliError {
    CliError::failed(format!("the demo cannot show what it claims: {claim}"))
}
