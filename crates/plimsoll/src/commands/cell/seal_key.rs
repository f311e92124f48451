//! `plimsoll cell etcd-seal-key`: what a cell seals its values in etcd with. It needs no daemon, and is for who may read the data
//! directory of a server.

use std::path::PathBuf;

use plimsoll_daemon::node::etcd_seal;
use plimsoll_store::keys::CellKey;

use crate::commands::up::unstarted;
use crate::default_paths::Who;
use crate::error::CliError;
use crate::output::note;
use crate::unlock::UnlockArgs;

const EXAMPLES: &str = "\
Examples:
  plimsoll cell etcd-seal-key > seal.key                on a server of the cell
  plimsoll up --engine etcd --etcd-seal-key-file seal.key ...    on the next one; then the file can go
  plimsoll cell etcd-seal-key new > seal.key            for a cell whose servers are all started at once

With --engine etcd the log and the state are encrypted before they go to etcd. The first server makes the key, and every server
keeps it in its data directory, under its unlock key where it has one. Keep a copy elsewhere: without it what is in etcd cannot be
read.";

/// Print the key that the cell's values in etcd are sealed with.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SealKeyArgs {
    /// What to do
    #[arg(value_enum, default_value_t)]
    action: SealKeyAction,
    /// Data directory of the server [default: as for `plimsoll up`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    unlock: UnlockArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum SealKeyAction {
    /// Print that of the server
    #[default]
    Show,
    /// Print a new one, for a cell that does not exist yet
    New,
}

pub(super) fn run(args: &SealKeyArgs) -> Result<(), CliError> {
    let key = match args.action {
        SealKeyAction::New => CellKey::generate()
            .map_err(|error| CliError::failed(format!("cannot make a key: {error}")))?,
        SealKeyAction::Show => {
            let dir = args.data_dir.clone().unwrap_or_else(|| Who::of_process().data_dir());
            let key = etcd_seal::read(&dir, args.unlock.key()?.as_ref());
            let none = || {
                let message =
                    format!("{} holds no such key: its log is not on etcd", dir.display());
                CliError::refused(message)
                    .hint("name the data directory of a server with --data-dir")
            };
            key.map_err(|error| unstarted(&error))?.ok_or_else(none)?
        }
    };
    println!("{key}");
    note(
        "hint: write it to a file of mode 0600, and give it to further servers with --etcd-seal-key-file",
    );
    Ok(())
}
