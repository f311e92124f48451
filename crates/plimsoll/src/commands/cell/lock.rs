//! `plimsoll cell unlock-key` and `plimsoll cell change-lock`: what a server's store is locked with. Neither needs a daemon.

use std::path::PathBuf;

use plimsoll_daemon::node::recovery::is_on_etcd;
use plimsoll_daemon::node::{etcd_seal, store_dir};
use plimsoll_store::backup::chain;
use plimsoll_store::embedded::OpenError;
use plimsoll_store::keys::{UnlockKey, change_lock};

use crate::commands::up::unstarted;
use crate::default_paths::Who;
use crate::error::CliError;
use crate::output::note;
use crate::unlock::{self, UnlockArgs};

const EXAMPLES: &str = "\
Examples:
  plimsoll cell unlock-key > unlock.key
  plimsoll up --unlock-key-file unlock.key      lock the store, and open it from now on

A server's log and snapshots are encrypted with keys of its own. Without an unlock key these lie beside them, readable for root
alone; with one, the disk gives nothing away. Keep the key elsewhere: a store cannot be opened without it.";

/// Print a new unlock key for the store of a server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UnlockKeyArgs {}

pub(super) fn create() -> Result<(), CliError> {
    let key = UnlockKey::generate();
    let key = key.map_err(|error| CliError::failed(format!("cannot make a key: {error}")))?;
    println!("{key}");
    note(
        "hint: write it to a file of mode 0600, and start the server with `plimsoll up --unlock-key-file FILE`",
    );
    Ok(())
}

/// Lock the store of a stopped server with another unlock key, or with none.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangeArgs {
    /// Data directory of the stopped daemon [default: as for `plimsoll up`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    unlock: UnlockArgs,
    /// File with the new unlock key
    #[arg(long, value_name = "FILE", required_unless_present = "remove")]
    to: Option<PathBuf>,
    /// Need no unlock key any more
    #[arg(long, conflicts_with = "to")]
    remove: bool,
}

pub(super) fn change(args: &ChangeArgs) -> Result<(), CliError> {
    let dir = args.data_dir.clone().unwrap_or_else(|| Who::of_process().data_dir());
    let to = args.to.as_deref().map(unlock::read).transpose()?;
    let from = args.unlock.key()?;
    if is_on_etcd(&dir) {
        let changed = etcd_seal::change_lock(&dir, from.as_ref(), to.as_ref());
        changed.map_err(|error| unstarted(&error))?;
    } else {
        let changed = change_lock(&store_dir(&dir), from.as_ref(), to.as_ref());
        changed.map_err(|error| trouble(&error))?;
    }
    let shown = dir.display();
    match to {
        Some(_) => note(&format!("the store in {shown} is locked with the new unlock key")),
        None => note(&format!("the store in {shown} needs no unlock key any more")),
    }
    Ok(())
}

fn trouble(error: &OpenError) -> CliError {
    let text = chain(error);
    match error {
        OpenError::InUse { .. } => CliError::refused(text).hint("stop the daemon first"),
        OpenError::Locked { .. } | OpenError::WrongUnlockKey { .. } | OpenError::NoStore { .. } => {
            CliError::refused(text)
        }
        _ => CliError::failed(text),
    }
}
