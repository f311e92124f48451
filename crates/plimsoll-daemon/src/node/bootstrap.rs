//! How a node comes by its log: it founds a cell, joins one, or goes on where it was; or finds its cell on an etcd.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::access::Digest;
use plimsoll_model::{Change, NodeFacts, NodeId, Writer};
use plimsoll_store::embedded::{EmbeddedConfig, cell_of, is_superseded};
use plimsoll_store::{Embedded, Founding, Incarnation, Peer, ServerId};

use super::etcd::{self, EngineKind, EtcdRecord};
use super::node_file::NodeFile;
use super::{Error, NodeOptions, name, store_dir};
use crate::cell::log::CellLog;
use crate::cell::{Late, join};
use crate::context::NodeContext;
use crate::servers::Servers;
use plimsoll_peer::pki::Identity;

/// The log of this node, and what to remember of how it came by it.
pub(super) struct OpenedLog {
    pub(super) log: CellLog,
    pub(super) joined: Option<(plimsoll_model::CellId, u64)>,
    pub(super) join_token: Option<Digest>,
    pub(super) etcd: Option<EtcdRecord>,
}

impl OpenedLog {
    pub(super) async fn take(
        options: &NodeOptions,
        memory: Option<&NodeFile>,
        name: &NodeId,
        facts: &NodeFacts,
    ) -> Result<Self, Error> {
        match etcd::choose(options, memory)? {
            EngineKind::Embedded => Self::local(options, memory, name, facts).await,
            EngineKind::Etcd => {
                let (log, kept) = etcd::take(options, memory, name, facts).await?;
                let join_token = memory.and_then(|memory| memory.join_token);
                Ok(Self { log, joined: None, join_token, etcd: Some(kept) })
            }
        }
    }

    /// In the data directory.
    async fn local(
        options: &NodeOptions,
        memory: Option<&NodeFile>,
        name: &NodeId,
        facts: &NodeFacts,
    ) -> Result<Self, Error> {
        let dir = &options.data_dir;
        let store = store_dir(dir);
        let mut joined = memory.and_then(|memory| memory.joined.clone());
        let mut join_token = memory.and_then(|memory| memory.join_token);
        let mut incarnation = memory.map(|memory| memory.incarnation).unwrap_or_default();
        let mut found = cell_of(&store)?;
        if memory.is_none() && found.is_some() {
            return Err(Error::NoNodeFile { dir: dir.clone() });
        }
        if options.join.is_some() && is_superseded(&store)? {
            let to = set_aside(&store, "superseded")?;
            tracing::warn!(to = %to.display(), "the log of a cell that was recovered without this node is set aside");
            (found, joined) = (None, None);
        }
        if found.is_none()
            && joined.is_none()
            && let Some(at) = &options.join
        {
            let cell_id = options.cell_id.as_ref();
            let (admission, _) = join::join(at, cell_id, name, facts.clone(), dir).await?;
            servers(dir)?.begin_with(admission.servers);
            joined = Some((admission.cell_id, admission.server));
            join_token = Some(at.token.secret_hash());
            incarnation = admission.incarnation;
            // Written down before the log is begun: the token is used up, and a crash here must not cost the seat.
            let runtime = memory.and_then(|memory| memory.runtime);
            let (name, joined) = (name.clone(), joined.clone());
            NodeFile { name, runtime, joined, join_token, incarnation, etcd: None }.write(dir)?;
        }
        let network = Arc::new(Late::default());
        let cell_id = match (&joined, found, &options.cell_id) {
            (Some((cell_id, _)), ..) => cell_id.clone(),
            (None, Some(found), None) => found,
            (None, _, Some(wanted)) => wanted.clone(),
            (None, None, None) => name::cell_id()?,
        };
        // Before the log, because a store is never without it: whatever fails after this, the next start knows who it is.
        if memory.is_none() && joined.is_none() {
            let name = name.clone();
            NodeFile {
                name,
                runtime: None,
                joined: None,
                join_token: None,
                incarnation,
                etcd: None,
            }
            .write(dir)?;
        }
        let address = facts.address.clone().unwrap_or_default();
        let config = EmbeddedConfig {
            peer: Peer { name: name.to_string(), address },
            network: Arc::clone(&network) as _,
            notary: Arc::clone(&network) as _,
            server: ServerId(joined.as_ref().map_or(1, |(_, server)| *server)),
            incarnation: if joined.is_some() { incarnation } else { Incarnation::default() },
            founding: if joined.is_some() { Founding::Join } else { Founding::Alone },
            unlock: options.unlock.clone(),
            ..EmbeddedConfig::alone(store, cell_id)
        };
        let engine = Embedded::start(config).await?;
        if let Some(cut) = engine.cut() {
            tracing::warn!(?cut, "removed a torn write left by a crash");
        }
        Ok(Self { log: CellLog::Embedded { engine, network }, joined, join_token, etcd: None })
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
    let moved = plimsoll_files::replace(store, &to);
    moved.map_err(|source| Error::Io { action: "set aside", path: store.to_owned(), source })?;
    Ok(to)
}

/// Who this node is to the others. One that has never been of a larger cell may have to make that first.
pub(super) async fn identity(
    cell: &NodeContext,
    log: &CellLog,
    dir: &Path,
    facts: &NodeFacts,
    has_joined: bool,
) -> Result<Identity, Error> {
    if log.takes_certificates() {
        return Ok(crate::cell::bootstrap::signed(cell, dir, facts).await?);
    }
    if has_joined && let Some(identity) = Identity::load(dir)? {
        return Ok(identity);
    }
    let is_known = cell.engine.machine().read(|state| state.node(&cell.node).is_some());
    if !is_known {
        let join = Change::PutNode { node: cell.node.clone(), facts: facts.clone() };
        cell.write(Writer::Agent, cell.node.as_str(), vec![join.free()]).await?;
    }
    Ok(crate::cell::bootstrap::identity(cell, dir).await?)
}
