//! `plimsoll cell recover`: makes a stopped server the only one of its cell, when too many of the others are lost. It says
//! what it found and what can be lost, and does nothing until somebody says that this is meant.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use plimsoll_daemon::node::recovery::is_on_etcd;
use plimsoll_daemon::node::store_dir;
use plimsoll_store::embedded::OpenError;
use plimsoll_store::recovery::{self, GivenUp, Recovered, StoppedServer, Survivor};
use serde::Serialize;

use super::recover_etcd;
use crate::commands::etcd::EtcdArgs;
use crate::default_paths::Who;
use crate::error::CliError;
use crate::live::HostArgs;
use crate::output::{Format, note, print};
use crate::unlock::UnlockArgs;
use crate::wait::now;

const EXAMPLES: &str = "\
Examples:
  plimsoll cell recover                                   see what would happen, and be asked
  plimsoll cell recover --data-dir /var/lib/plimsoll -y   do it
  plimsoll cell recover --force                           go back to a server that was given up in a recovery

For when more than half of the servers that vote are lost for good: their disks are gone, or their machines. Servers that are
only down want to be started, which loses nothing. The daemon here must be stopped; start it again afterwards.

If the wrong server was recovered, the one given up can be told to return: run this on it with --force. The cell goes on from
it, and the servers of the recovery give up when they hear of it; what was written there since is lost. To have a server
that was given up join the recovered cell instead, start it with `plimsoll up --join` and a new token.

On etcd it is for when etcd lost acknowledged writes (log_lost), and the daemons must run: they have the state in memory. Run it
on the server that has applied the most, which takes the cell to a fresh prefix, then on each other one with that prefix, then
restart their daemons.";

/// Recover the cell with this server alone after losing the quorum.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Data directory of the stopped daemon [default: as for `plimsoll up`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Return to this server, although the cell was recovered without it
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Format,
    #[command(flatten)]
    pub(super) unlock: UnlockArgs,
    #[command(flatten)]
    pub(super) etcd: EtcdArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// What was done.
#[derive(Debug, Serialize)]
struct RecoveryFacts {
    cell: String,
    node: String,
    server: u64,
    /// The last entry that is kept.
    last: u64,
    term: u64,
    incarnation: String,
    /// The servers that are given up.
    lost: Vec<String>,
    /// The state as it was before, in a file that `plimsoll restore` takes.
    backup: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let dir = args.data_dir.clone().unwrap_or_else(|| Who::of_process().data_dir());
    if is_on_etcd(&dir) {
        return recover_etcd::run(args, &dir);
    }
    let store = store_dir(&dir);
    if !store.is_dir() {
        let message = format!("{} is no data directory of plimsoll", dir.display());
        return Err(CliError::refused(message).hint("name the one `plimsoll up` was started with"));
    }
    let given_up = if args.force { GivenUp::Returns } else { GivenUp::Stays };
    let unlock = args.unlock.key()?;
    let survivor = Survivor { store: &store, given_up, unlock: unlock.as_ref() };
    let found = recovery::look(survivor).map_err(|error| trouble(&error))?;
    note(&plan(&found));
    if !args.yes {
        ask(&found)?;
    }
    let backup = dir.join(format!("before-recovery.{}.backup", found.last));
    let recovered = recovery::recover(survivor, &backup, now());
    let recovered = recovered.map_err(|error| trouble(&error))?;
    print(args.output, &facts(&recovered), done)?;
    note(&format!(
        "hint: start it with `plimsoll up --data-dir {}`, then join others",
        dir.display()
    ));
    Ok(())
}

fn facts(recovered: &Recovered) -> RecoveryFacts {
    let Recovered { found, incarnation, backup } = recovered;
    RecoveryFacts {
        cell: found.cell_id.to_string(),
        node: found.node.clone(),
        server: found.server.0,
        last: found.last,
        term: incarnation.since,
        incarnation: incarnation.to_string(),
        lost: found.others.iter().map(|other| other.peer.name.clone()).collect(),
        backup: backup.clone(),
    }
}

fn done(facts: &RecoveryFacts) -> String {
    let RecoveryFacts { cell, node, last, backup, .. } = facts;
    let backup = backup.display();
    format!(
        "{node} is the only server of cell {cell}, as of entry {last}; what was there before is in {backup}\n"
    )
}

fn plan(found: &StoppedServer) -> String {
    let StoppedServer { cell_id, server, node, last, last_term, term, .. } = found;
    let StoppedServer { unconfirmed, others, superseded, .. } = found;
    let mut text = format!("cell {cell_id}, {server} on {node}\n");
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:11} {value}");
    };
    line("last entry", &format!("{last} of term {}; newest term seen {}", last_term.0, term.0));
    if *unconfirmed > 0 {
        line(
            "",
            &format!(
                "{unconfirmed} of its entries it does not know to be agreed on; they are kept"
            ),
        );
    }
    if let Some(by) = superseded {
        line(
            "returns",
            &format!("from incarnation {by} of the cell, whose servers are given up too"),
        );
    }
    for (nth, other) in others.iter().enumerate() {
        let votes = if other.votes { "" } else { ", without a vote" };
        let (id, name, address) = (other.id, &other.peer.name, &other.peer.address);
        let title = if nth == 0 { "given up" } else { "" };
        line(title, &format!("{id} on {name} ({address}){votes}"));
    }
    let _ = write!(
        text,
        "
What was acknowledged after entry {last} and never reached {node} is LOST. Of several survivors, recover the one
whose last entry has the highest term and then the highest number, and only that one.
The servers given up are no longer of the cell. One that comes back is refused and gives up, also if it and others
had gone on by themselves; it can join again with a new token. Join tokens made so far are void.
Deployments, the tokens of operators and the cell's authority stay. Replicas of the given-up nodes are placed again,
but for those with data there.
"
    );
    text
}

/// Nothing is given up on a guess: somebody types the name of the cell.
fn ask(found: &StoppedServer) -> Result<(), CliError> {
    let message = format!("this would give up {} servers of {}", found.others.len(), found.cell_id);
    confirm(found.cell_id.as_str(), &message)
}

/// Goes on only if the name of the cell is typed.
pub(super) fn confirm(cell_id: &str, message: &str) -> Result<(), CliError> {
    if !std::io::stdin().is_terminal() {
        return Err(CliError::refused(message).hint("say `-y` if that is meant"));
    }
    anstream::eprint!("Type the name of the cell, {cell_id}, to go on: ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    if answer.trim() == cell_id {
        return Ok(());
    }
    Err(CliError::refused("nothing was changed"))
}

fn trouble(error: &recovery::Error) -> CliError {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let _ = write!(text, ": {cause}");
        next = cause.source();
    }
    match error {
        recovery::Error::Store(OpenError::InUse { dir }) => {
            let dir = Path::display(dir);
            CliError::refused(format!("a daemon runs on {dir}")).hint("stop it first")
        }
        recovery::Error::Alone { .. }
        | recovery::Error::Outsider { .. }
        | recovery::Error::Superseded { .. } => CliError::refused(text),
        _ => CliError::failed(text),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_model::Term;
    use plimsoll_store::{Incarnation, Member, Peer, ServerId};

    use super::*;

    #[test]
    fn what_is_given_up_is_said_before_it_is() {
        let other = |id: u64, name: &str, votes: bool| {
            let peer = Peer { name: name.to_owned(), address: format!("10.0.0.{id}:7117") };
            Member { id: ServerId(id), peer, votes }
        };
        let found = StoppedServer {
            cell_id: "shop".parse().unwrap(),
            server: ServerId(3),
            node: "cedar".to_owned(),
            last: 120,
            last_term: Term(4),
            term: Term(6),
            unconfirmed: 2,
            others: vec![other(1, "ash", true), other(4, "dogwood", false)],
            superseded: None,
        };
        expect![[r#"
            cell shop, server 3 on cedar
              last entry  120 of term 4; newest term seen 6
                          2 of its entries it does not know to be agreed on; they are kept
              given up    server 1 on ash (10.0.0.1:7117)
                          server 4 on dogwood (10.0.0.4:7117), without a vote

            What was acknowledged after entry 120 and never reached cedar is LOST. Of several survivors, recover the one
            whose last entry has the highest term and then the highest number, and only that one.
            The servers given up are no longer of the cell. One that comes back is refused and gives up, also if it and others
            had gone on by themselves; it can join again with a new token. Join tokens made so far are void.
            Deployments, the tokens of operators and the cell's authority stay. Replicas of the given-up nodes are placed again,
            but for those with data there.
        "#]].assert_eq(&plan(&found));
        let by = Incarnation { since: 1_000_006, salt: 7, is_heir: true, line: 0 };
        let returning = plan(&StoppedServer { superseded: Some(by), ..found });
        let said = "  returns     from incarnation 1000006-00000007 of the cell, whose servers are given up too\n";
        assert!(returning.contains(said), "{returning}");
    }
}
