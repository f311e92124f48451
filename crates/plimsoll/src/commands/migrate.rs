//! `plimsoll migrate`: takes a stopped cell from one engine to another.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use plimsoll_daemon::node::EngineKind;
use plimsoll_daemon::node::migration::{self, Error, Migrated};
use plimsoll_store::backup::chain;
use plimsoll_store::embedded::OpenError;
use plimsoll_store_etcd::migrate::MigrateError;
use serde::Serialize;

use super::etcd::EtcdArgs;
use super::up::unstarted;
use crate::default_paths::Who;
use crate::error::CliError;
use crate::output::{Format, note, print};
use crate::unlock::UnlockArgs;

const EXAMPLES: &str = "\
Examples:
  plimsoll migrate --from embedded --to etcd --etcd-endpoints http://10.0.0.1:2379
  plimsoll migrate --from etcd --to embedded --data-dir /var/lib/plimsoll

Stop the daemons of all servers first; replicas keep running. Run it on the server with the newest log, which takes the cell along,
then on each other server, which follows. Nodes without the log need nothing. The state is read back and its hash compared
before anything is switched; what was there before is kept. Then start the daemons again with `plimsoll up`.";

/// Migrate a stopped cell to another storage engine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Current storage engine
    #[arg(long, value_enum)]
    from: EngineWord,
    /// New storage engine
    #[arg(long, value_enum)]
    to: EngineWord,
    /// Data directory of the stopped daemon [default: as for `plimsoll up`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    unlock: UnlockArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    etcd: EtcdArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum EngineWord {
    Embedded,
    Etcd,
}

impl EngineWord {
    pub(super) fn kind(self) -> EngineKind {
        match self {
            Self::Embedded => EngineKind::Embedded,
            Self::Etcd => EngineKind::Etcd,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Etcd => "etcd",
        }
    }
}

/// What was done.
#[derive(Debug, Serialize)]
struct MigrationFacts {
    cell: String,
    node: String,
    engine: &'static str,
    /// The last entry in the state.
    applied: u64,
    /// SHA-256 of the state, before and after.
    hash: String,
    has_followed: bool,
    kept: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    if args.from == args.to {
        let message = format!("from {0} to {0} there is nothing to do", args.to.word());
        return Err(CliError::refused(message));
    }
    let dir = args.data_dir.clone().unwrap_or_else(|| Who::of_process().data_dir());
    let dir = std::path::absolute(&dir).unwrap_or(dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| CliError::failed(format!("cannot start threads: {error}")))?;
    let etcd = args.etcd.options();
    let unlock = args.unlock.key()?;
    let migrated = migration::migrate(&dir, args.to.kind(), &etcd, unlock.as_ref());
    let migrated = runtime.block_on(migrated).map_err(|error| trouble(&error))?;
    print(args.output, &facts(migrated, args.to), text)?;
    note(&format!(
        "hint: run it on every other server too, then start them all with `plimsoll up`; this one with --data-dir {}",
        dir.display()
    ));
    Ok(())
}

fn facts(migrated: Migrated, to: EngineWord) -> MigrationFacts {
    let Migrated { cell_id, node, applied, hash, has_followed, kept } = migrated;
    let (cell, node) = (cell_id.to_string(), node.to_string());
    MigrationFacts { cell, node, engine: to.word(), applied, hash, has_followed, kept }
}

fn text(facts: &MigrationFacts) -> String {
    let MigrationFacts { cell, node, engine, applied, hash, has_followed, kept } = facts;
    let mut text = if *has_followed {
        format!("{node} follows cell {cell} to the {engine} engine\n")
    } else {
        format!(
            "cell {cell} is on the {engine} engine as of entry {applied}; its state reads back the same, {hash}\n"
        )
    };
    if let Some(kept) = kept {
        let _ = writeln!(text, "the log that {node} had is kept in {}", kept.display());
    }
    text
}

fn trouble(error: &Error) -> CliError {
    let text = chain(error);
    match error {
        Error::Node(error) => unstarted(error),
        Error::Store(plimsoll_store::migration::Error::Store(OpenError::InUse { dir })) => {
            CliError::refused(format!("a daemon runs on {}", dir.display())).hint("stop it first")
        }
        Error::NoNode { .. }
        | Error::There { .. }
        | Error::Ahead { .. }
        | Error::Running { .. }
        | Error::Stranger { .. }
        | Error::NoLog { .. }
        | Error::Etcd(
            MigrateError::OtherCell { .. }
            | MigrateError::OtherSeal { .. }
            | MigrateError::NotEmpty { .. }
            | MigrateError::NoCell { .. },
        ) => CliError::refused(text),
        _ => CliError::failed(text),
    }
}
