//! `plimsoll restore`: a data directory from a backup.

use std::path::PathBuf;

use plimsoll_daemon::node::store_dir;
use plimsoll_store::{Peer, ServerId, backup};

use super::backup::{facts, trouble};
use crate::input::beside;
use crate::output::{Format, note, print};
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll restore cell.backup --data-dir /var/lib/plimsoll.new
  plimsoll up --data-dir /var/lib/plimsoll.new

The directory becomes that of a cell of one. It must be empty or not there yet, so that nothing is lost.";

/// Make a data directory from a backup.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The backup
    file: PathBuf,
    /// The data directory to make
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// How to print what was done
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The number a server that is alone goes by.
const ALONE: ServerId = ServerId(1);

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let (file, dir) = (&args.file, &args.data_dir);
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        let dir = dir.clone();
        return Err(trouble(&backup::Error::NotEmpty { dir }));
    }
    if !file.exists() {
        let hint = beside(file).unwrap_or_else(|| "check the path".to_owned());
        return Err(Trouble::refused(format!("there is no file {}", file.display())).hint(hint));
    }
    let restored = backup::restore(file, &store_dir(dir), ALONE, Peer::default());
    let summary = restored.map_err(|error| trouble(&error))?;
    let shown = dir.display();
    print(args.output, &facts(file, &summary), |_| {
        let (cluster, applied) = (&summary.cluster, summary.applied);
        format!("{shown} holds cell {cluster} as of entry {applied}\n")
    })?;
    note(&format!("hint: start it with `plimsoll up --data-dir {shown}`"));
    Ok(())
}
