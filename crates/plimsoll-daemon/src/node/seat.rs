//! How a node comes by its log: it founds a cell, joins one, or goes on where it was; or finds its cell on an etcd.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::{Change, NodeFacts, NodeId, Writer};
use plimsoll_store::embedded::{Config, cluster_of, is_superseded};
use plimsoll_store::{Embedded, Founding, Incarnation, Peer, ServerId};

use super::etcd::{self, EngineKind, Kept};
use super::memory::Memory;
use super::{Error, Options, name, store_dir};
use crate::cell::Cell;
use crate::cluster::log::Log;
use crate::cluster::servers::Servers;
use crate::cluster::{Late, found, join};
use crate::pki::Identity;

/// The log of this node, and what to remember of how it came by it.
pub(super) struct Seat {
    pub(super) log: Log,
    pub(super) joined: Option<(plimsoll_model::ClusterId, u64)>,
    pub(super) etcd: Option<Kept>,
}

impl Seat {
    pub(super) async fn take(
        options: &Options,
        memory: Option<&Memory>,
        name: &NodeId,
        facts: &NodeFacts,
    ) -> Result<Self, Error> {
        match etcd::choose(options, memory)? {
            EngineKind::Embedded => Self::at_home(options, memory, name, facts).await,
            EngineKind::Etcd => {
                let (log, kept) = etcd::take(options, memory, name, facts).await?;
                Ok(Self { log, joined: None, etcd: Some(kept) })
            }
        }
    }

    /// In the data directory.
    async fn at_home(
        options: &Options,
        memory: Option<&Memory>,
        name: &NodeId,
        facts: &NodeFacts,
    ) -> Result<Self, Error> {
        let dir = &options.data_dir;
        let store = store_dir(dir);
        let mut joined = memory.and_then(|memory| memory.joined.clone());
        let mut incarnation = memory.map(|memory| memory.incarnation).unwrap_or_default();
        let mut found = cluster_of(&store)?;
        if options.join.is_some() && is_superseded(&store)? {
            let to = set_aside(&store, "superseded")?;
            tracing::warn!(to = %to.display(), "the log of a cell that was recovered without this node is set aside");
            (found, joined) = (None, None);
        }
        if found.is_none()
            && joined.is_none()
            && let Some(at) = &options.join
        {
            let (admission, _) = join::join(at, name, facts.clone(), dir).await?;
            servers(dir)?.begin_with(admission.servers);
            joined = Some((admission.cluster, admission.server));
            incarnation = admission.incarnation;
            // Written down before the log is begun: the token is used up, and a crash here must not cost the seat.
            let runtime = memory.and_then(|memory| memory.runtime);
            let (name, joined) = (name.clone(), joined.clone());
            Memory { name, runtime, joined, incarnation, etcd: None }.write(dir)?;
        }
        let network = Arc::new(Late::default());
        let cluster = match (&joined, found, &options.cluster) {
            (Some((cluster, _)), ..) => cluster.clone(),
            (None, Some(found), None) => found,
            (None, _, Some(wanted)) => wanted.clone(),
            (None, None, None) => name::cluster()?,
        };
        let address = facts.address.clone().unwrap_or_default();
        let config = Config {
            peer: Peer { name: name.to_string(), address },
            network: Arc::clone(&network) as _,
            server: ServerId(joined.as_ref().map_or(1, |(_, server)| *server)),
            incarnation: if joined.is_some() { incarnation } else { Incarnation::default() },
            founding: if joined.is_some() { Founding::Join } else { Founding::Alone },
            ..Config::alone(store, cluster)
        };
        let engine = Embedded::start(config).await?;
        if let Some(cut) = engine.cut() {
            tracing::warn!(?cut, "a crash had left a torn write, which is cut off");
        }
        Ok(Self { log: Log::Embedded { engine, network }, joined, etcd: None })
    }
}

/// Where it finds the others.
pub(super) fn servers(dir: &Path) -> Result<Servers, Error> {
    let path = dir.join("servers.json");
    Servers::open(path.clone()).map_err(|source| Error::Io { action: "read", path, source })
}

/// A log that is not used any more: kept, in case somebody wants to look into it. Returns where.
pub(super) fn set_aside(store: &Path, why: &str) -> Result<PathBuf, Error> {
    let mut names = (1_u32..).map(|nth| store.with_file_name(format!("store.{why}.{nth}")));
    let to = names.find(|path| !path.exists()).expect("there is always another number");
    let moved = std::fs::rename(store, &to);
    moved.map_err(|source| Error::Io { action: "set aside", path: store.to_owned(), source })?;
    Ok(to)
}

/// Who this node is to the others. One that has never been of a larger cell may have to make that first.
pub(super) async fn identity(
    cell: &Cell,
    log: &Log,
    dir: &Path,
    facts: &NodeFacts,
    has_joined: bool,
) -> Result<Identity, Error> {
    if log.takes_certificates() {
        return Ok(found::signed(cell, dir, facts).await?);
    }
    if has_joined && let Some(identity) = Identity::load(dir)? {
        return Ok(identity);
    }
    let is_known = cell.engine.machine().read(|state| state.node(&cell.node).is_some());
    if !is_known {
        let join = Change::PutNode { node: cell.node.clone(), facts: facts.clone() };
        cell.write(Writer::Agent, cell.node.as_str(), vec![join.free()]).await?;
    }
    Ok(found::identity(cell, dir).await?)
}
