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
use crate::output::{Format, note, print};
use crate::places::Who;
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll migrate --from embedded --to etcd --etcd-endpoints http://10.0.0.1:2379
  plimsoll migrate --from etcd --to embedded --data-dir /var/lib/plimsoll

Stop the daemons of all servers first; replicas run on. Run it on the server with the newest log, which takes the cell along,
then on each other server, which follows. Nodes without the log need nothing. The state is read back and its hash compared
before anything is switched; what was there before is kept. Then start the daemons again with `plimsoll up`.";

/// Take a stopped cell from one engine to another.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What keeps the log now
    #[arg(long, value_enum)]
    from: EngineWord,
    /// What is to keep it
    #[arg(long, value_enum)]
    to: EngineWord,
    /// The data directory of the stopped daemon [default: as `plimsoll up` has it]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// How to print what was done
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
struct Facts {
    cluster: String,
    node: String,
    engine: &'static str,
    /// The last entry in the state.
    applied: u64,
    /// SHA-256 of the state, before and after.
    hash: String,
    has_followed: bool,
    kept: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    if args.from == args.to {
        let message = format!("from {0} to {0} there is nothing to do", args.to.word());
        return Err(Trouble::refused(message));
    }
    let dir = args.data_dir.clone().unwrap_or_else(|| Who::of_process().data_dir());
    let dir = std::path::absolute(&dir).unwrap_or(dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Trouble::failed(format!("cannot start threads: {error}")))?;
    let etcd = args.etcd.options();
    let migrated = migration::migrate(&dir, args.to.kind(), &etcd);
    let migrated = runtime.block_on(migrated).map_err(|error| trouble(&error))?;
    print(args.output, &facts(migrated, args.to), text)?;
    note(&format!(
        "hint: run it on each other server too, then start them all with `plimsoll up`; this one with --data-dir {}",
        dir.display()
    ));
    Ok(())
}

fn facts(migrated: Migrated, to: EngineWord) -> Facts {
    let Migrated { cluster, node, applied, hash, has_followed, kept } = migrated;
    let (cluster, node) = (cluster.to_string(), node.to_string());
    Facts { cluster, node, engine: to.word(), applied, hash, has_followed, kept }
}

fn text(facts: &Facts) -> String {
    let Facts { cluster, node, engine, applied, hash, has_followed, kept } = facts;
    let mut text = if *has_followed {
        format!("{node} follows cell {cluster} to the {engine} engine\n")
    } else {
        format!(
            "cell {cluster} is on the {engine} engine as of entry {applied}; its state reads back the same, {hash}\n"
        )
    };
    if let Some(kept) = kept {
        let _ = writeln!(text, "the log that {node} had is kept in {}", kept.display());
    }
    text
}

fn trouble(error: &Error) -> Trouble {
    let text = chain(error);
    match error {
        Error::Node(error) => unstarted(error),
        Error::Store(plimsoll_store::migration::Error::Store(OpenError::InUse { dir })) => {
            Trouble::refused(format!("a daemon runs on {}", dir.display())).hint("stop it first")
        }
        Error::NoNode { .. }
        | Error::There { .. }
        | Error::Ahead { .. }
        | Error::Running { .. }
        | Error::Stranger { .. }
        | Error::NoLog { .. }
        | Error::Etcd(
            MigrateError::OtherCluster { .. }
            | MigrateError::NotEmpty { .. }
            | MigrateError::NoCell { .. },
        ) => Trouble::refused(text),
        _ => Trouble::failed(text),
    }
}
