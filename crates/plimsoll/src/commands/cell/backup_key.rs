//! `plimsoll cell backup-key`: what backups of the cell are encrypted with.

use std::path::PathBuf;

use plimsoll_api::view::BackupKey;
use plimsoll_daemon::node::store_dir;
use plimsoll_store::backup;

use crate::commands::backup::trouble;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, note, print};
use crate::unlock::UnlockArgs;

const EXAMPLES: &str = "\
Examples:
  plimsoll cell backup-key > backup.key                       keep it where the backups are not
  plimsoll cell backup-key rotate >> backup.key               encrypt backups with a new key from now on
  plimsoll restore cell.backup --key-file backup.key --data-dir DIR
  plimsoll cell backup-key --data-dir /var/lib/plimsoll       of a daemon that is stopped

A backup holds every secret of the cell, so it is encrypted. Without the key it cannot be restored: keep the key before you need
it. Older backups open with older keys only; a key file may list several, one a line.";

/// Print the key that backups of the cell are encrypted with, or rotate it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BackupKeyArgs {
    /// What to do with it
    #[arg(value_enum, default_value_t)]
    action: KeyAction,
    /// Data directory of a stopped daemon, to read the key without a running one
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    unlock: UnlockArgs,
    /// Output format; a table is the key alone
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum KeyAction {
    /// Print it
    #[default]
    Show,
    /// Make a new one for later backups, and print that
    Rotate,
}

pub(super) fn run(args: &BackupKeyArgs) -> Result<(), CliError> {
    let key = match (&args.data_dir, args.action) {
        (Some(_), KeyAction::Rotate) => {
            return Err(CliError::refused("a stopped cell cannot rotate its backup key")
                .hint("start its servers, and leave out --data-dir"));
        }
        (Some(dir), KeyAction::Show) => {
            let key = backup::stopped_key(&store_dir(dir), args.unlock.key()?.as_ref());
            let key = key.map_err(|error| trouble(&error))?;
            let id = Some(key.id().to_string());
            BackupKey { id, key: Some(key.to_string()), created_at: None }
        }
        (None, action) => {
            let client = args.host.client()?;
            live::block_on(async {
                Ok(match action {
                    KeyAction::Show => client.backup_key().await?,
                    KeyAction::Rotate => client.rotate_backup_key().await?,
                })
            })?
        }
    };
    let (Some(id), Some(_)) = (&key.id, &key.key) else {
        return Err(CliError::refused("the cell has no backup key yet")
            .hint("its first leader makes one; `plimsoll cell status` says who leads"));
    };
    print(args.output, &key, |key| format!("{}\n", key.key.as_deref().unwrap_or_default()))?;
    match args.action {
        KeyAction::Show => note(&format!(
            "key {id} opens the backups of this cell: keep it where the backups are not"
        )),
        KeyAction::Rotate => note(&format!(
            "key {id} opens backups taken from now on; keep the former key for those taken before"
        )),
    }
    Ok(())
}
