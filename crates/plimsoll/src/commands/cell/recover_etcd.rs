//! `plimsoll cell recover` on an etcd that lost acknowledged writes: takes the state that a running daemon has in memory to a
//! fresh prefix. What is left below the old one stays as it is.

use std::path::{Path, PathBuf};

use plimsoll_api::view::{Cell, ProblemCode};
use plimsoll_daemon::node::EtcdOptions;
use plimsoll_daemon::node::recovery::{self, Error, RecoveredEtcd};
use plimsoll_store::backup::chain;
use plimsoll_store::keys::CellKey;
use plimsoll_store_etcd::migrate::MigrateError;
use serde::Serialize;

use super::recover::{Args, confirm};
use crate::commands::backup::from_daemon;
use crate::error::CliError;
use crate::live;
use crate::output::{note, print};

/// What was done.
#[derive(Debug, Serialize)]
struct Facts {
    cell: String,
    node: String,
    prefix: String,
    /// The last entry that is kept.
    last: u64,
    term: u64,
    /// SHA-256 of the state.
    hash: String,
    has_followed: bool,
    /// The state, in a file that `plimsoll restore` takes.
    backup: PathBuf,
}

pub(super) fn run(args: &Args, dir: &Path) -> Result<(), CliError> {
    let client = args.host.client()?;
    let cell = live::block_on(async { Ok(client.cell().await?) })?;
    check(&cell)?;
    let mut etcd = args.etcd.options();
    let prefix = match etcd.prefix.take() {
        Some(prefix) => prefix,
        None => recovery::fresh_prefix(dir, cell.applied).map_err(|error| trouble(&error))?,
    };
    note(&plan(&cell, &prefix));
    if !args.yes {
        let message = format!("this would take {} to {prefix} in etcd", cell.name);
        confirm(&cell.name, &message)?;
    }
    let backup = unused(dir, cell.applied);
    live::block_on(from_daemon(&client, &backup))?;
    let key = live::block_on(async { Ok(client.backup_key().await?) })?.key;
    let keys: Vec<CellKey> = key.and_then(|key| key.parse().ok()).into_iter().collect();
    let etcd = EtcdOptions { prefix: Some(prefix), ..etcd };
    let unlock = args.unlock.key()?;
    let recovered = live::block_on(async {
        let recovered = recovery::recover(dir, &backup, &keys, &etcd, unlock.as_ref()).await;
        recovered.map_err(|error| trouble(&error))
    })?;
    let facts = facts(recovered, backup);
    print(args.output, &facts, done)?;
    note(&format!(
        "hint: on each other server `plimsoll cell recover --etcd-prefix {}`, then restart every daemon",
        facts.prefix
    ));
    Ok(())
}

/// A file that is not there yet.
fn unused(dir: &Path, applied: u64) -> PathBuf {
    let mut names =
        (1_u32..).map(|nth| dir.join(format!("before-recovery.{applied}.{nth}.backup")));
    names.find(|path| !path.exists()).expect("there is always another number")
}

/// Whether there is anything to recover, and nobody has more of it.
fn check(cell: &Cell) -> Result<(), CliError> {
    if cell.trouble.as_ref().is_none_or(|problem| problem.code != ProblemCode::LogLost) {
        let message =
            format!("the log of cell {} has lost nothing that {} has", cell.name, cell.node);
        return Err(CliError::refused(message).hint("`plimsoll cell status` shows how it stands"));
    }
    let newest = cell.servers.iter().max_by_key(|server| server.applied);
    match newest.filter(|server| server.applied > Some(cell.applied)) {
        None => Ok(()),
        Some(server) => {
            let (node, applied) = (&server.node, server.applied.unwrap_or_default());
            let message = format!(
                "{node} has applied entry {applied}, and {} only {}",
                cell.node, cell.applied
            );
            Err(CliError::refused(message).hint(format!("run it on {node}; nothing is lost there")))
        }
    }
}

fn plan(cell: &Cell, prefix: &str) -> String {
    let silent = cell.servers.iter().filter(|server| server.applied.is_none());
    let silent: Vec<&str> = silent.map(|server| server.node.as_str()).collect();
    let unheard = if silent.is_empty() {
        String::new()
    } else {
        format!("No answer from {}, which may have applied more.\n", silent.join(", "))
    };
    format!(
        "cell {}: {} has applied entry {}, the most of all servers that answer\n{unheard}\
         Its state goes to {prefix} in etcd, with nodes, deployments and tokens. What is below the old prefix stays.\n",
        cell.name, cell.node, cell.applied
    )
}

fn facts(recovered: RecoveredEtcd, backup: PathBuf) -> Facts {
    let RecoveredEtcd { cell_id, node, prefix, applied, term, hash, has_followed } = recovered;
    let (cell, node, term) = (cell_id.to_string(), node.to_string(), term.0);
    Facts { cell, node, prefix, last: applied, term, hash, has_followed, backup }
}

fn done(facts: &Facts) -> String {
    let Facts { cell, node, prefix, last, hash, has_followed, .. } = facts;
    if *has_followed {
        return format!("{node} follows cell {cell} to {prefix} when its daemon is restarted\n");
    }
    format!(
        "cell {cell} is at {prefix} as of entry {last}; its state reads back the same, {hash}\n"
    )
}

fn trouble(error: &Error) -> CliError {
    let text = chain(error);
    match error {
        Error::NotOnEtcd { .. }
        | Error::SamePrefix { .. }
        | Error::OtherCell { .. }
        | Error::Ahead { .. }
        | Error::Etcd(
            MigrateError::NotEmpty { .. }
            | MigrateError::OtherCell { .. }
            | MigrateError::OtherSeal { .. },
        ) => CliError::refused(text),
        _ => CliError::failed(text),
    }
}
