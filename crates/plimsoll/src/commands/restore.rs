//! `plimsoll restore`: a data directory from a backup.

use std::path::PathBuf;

use plimsoll_daemon::node::{self, store_dir};
use plimsoll_model::NodeId;
use plimsoll_store::backup::{self, Restored};

use super::backup::{facts, trouble};
use super::up::unstarted;
use crate::backup_key::BackupKeyArgs;
use crate::error::CliError;
use crate::output::{Format, note, print};
use crate::wait::now;
use plimsoll_workbench::input::beside;

const EXAMPLES: &str = "\
Examples:
  plimsoll restore cell.backup --key-file backup.key --data-dir /var/lib/plimsoll.new
  plimsoll up --data-dir /var/lib/plimsoll.new

The key is what `plimsoll cell backup-key` printed for the cell that the backup is of. The directory becomes that of a cell of one. It must be empty or not there yet, so that nothing is lost. The new cell does not
wait for the nodes of the old one: their replicas are placed again, but for those with data there, and they can join with
new tokens. Operators keep their tokens; join tokens are void. The old cell, should it still run, is another one from now on:
stop it, or two cells run the same deployments.";

/// Create a data directory from a backup.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The backup
    file: PathBuf,
    /// Data directory to create
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Node to become, from the backup or a new one [default: the only one, else the host name]
    #[arg(long, value_name = "NODE", value_parser = named)]
    name: Option<NodeId>,
    #[command(flatten)]
    keys: BackupKeyArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn named(text: &str) -> Result<NodeId, String> {
    text.parse().map_err(|error: plimsoll_model::ids::InvalidName| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let (file, dir) = (&args.file, &args.data_dir);
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        let dir = dir.clone();
        return Err(trouble(&backup::Error::NotEmpty { dir }));
    }
    if !file.exists() {
        let hint = beside(file).unwrap_or_else(|| "check the path".to_owned());
        return Err(CliError::refused(format!("there is no file {}", file.display())).hint(hint));
    }
    let keys = args.keys.keys()?;
    let label = backup::verify(file).map_err(|error| trouble(&error))?;
    let held = backup::state(file, &keys).map_err(|error| trouble(&error))?;
    let known: Vec<NodeId> = held.1.nodes().keys().cloned().collect();
    let name = name(args, &known)?;
    let restored = backup::restore(held, &store_dir(dir), &name, now());
    let Restored { summary, lost, .. } = restored.map_err(|error| trouble(&error))?;
    node::remember(dir, &name).map_err(|error| unstarted(&error))?;
    let shown = dir.display();
    print(args.output, &facts(file, &label), |_| {
        let (cell_id, applied) = (&summary.cell_id, summary.applied);
        format!("{shown} holds cell {cell_id} as of entry {applied}, for node {name}\n")
    })?;
    if !lost.is_empty() {
        let lost: Vec<&str> = lost.iter().map(NodeId::as_str).collect();
        note(&format!("given up: {}; they can join with new tokens", lost.join(", ")));
    }
    note(&format!("hint: start it with `plimsoll up --data-dir {shown}`"));
    Ok(())
}

/// A node that is alone is this one, whatever the host is called.
fn name(args: &Args, known: &[NodeId]) -> Result<NodeId, CliError> {
    match (&args.name, known) {
        (Some(name), _) => Ok(name.clone()),
        (None, [only]) => Ok(only.clone()),
        (None, _) => node::default_name().map_err(|error| unstarted(&error)),
    }
}
