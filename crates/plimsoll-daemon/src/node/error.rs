//! Why a node does not start, each with the next step.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use plimsoll_model::{CellId, NodeId};
use plimsoll_runtime::chain;
use plimsoll_store::embedded::OpenError;
use thiserror::Error;

use crate::api;
use crate::cell::join;
use crate::context::WriteError;
use plimsoll_peer::pki;

/// Why a node does not start. Nothing was changed, and nothing that runs was touched.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged: {why}", path.display())]
    NodeFile { path: PathBuf, why: String },
    #[error(
        "{} is missing, and {} has a store: without it this would be another node. Put it back; else empty the directory and \
         join again, or for a cell of one node `plimsoll backup FILE --data-dir {}`, then `plimsoll restore`",
        dir.join("node.json").display(), dir.display(), dir.display()
    )]
    NoNodeFile { dir: PathBuf },
    #[error("{} belongs to node {found}, not to {wanted}; leave out --name, or choose another --data-dir", dir.display())]
    OtherNode { dir: PathBuf, found: NodeId, wanted: NodeId },
    #[error("{hostname:?} cannot be the name of a node ({why}); choose one with --name")]
    Name { hostname: String, why: String },
    #[error("cannot read this host's processors and memory from /proc")]
    Host,
    #[error(
        "no Docker Engine was found; start it, name its socket with --docker-socket, or use --runtime process"
    )]
    NoEngine,
    #[error(
        "no Docker Engine answers, and a daemon of root does not run services as processes of this host unless told to; \
         start the engine, name its socket with --docker-socket, or use --runtime process"
    )]
    RootWithoutEngine,
    #[error("this data directory is a coordinator's; start it with `plimsoll coordinator up`")]
    OfCoordinator,
    #[error(
        "this data directory is of a node that runs containers; give the coordinator another one with --data-dir"
    )]
    OfCell,
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{}", chain(.0))]
    Runtime(#[from] plimsoll_runtime::Error),
    #[error("this node cannot write to its own log")]
    Write(#[from] WriteError),
    #[error(transparent)]
    Api(#[from] api::BindError),
    #[error("--address: {0}")]
    Address(String),
    #[error("{0}")]
    Unfit(String),
    #[error(
        "{} is of the {found} engine; use it without --engine, or see `plimsoll migrate --from {found} --to {wanted}`",
        dir.display()
    )]
    OtherEngine { dir: PathBuf, found: &'static str, wanted: &'static str },
    #[error(transparent)]
    Etcd(plimsoll_etcd::Error),
    #[error(transparent)]
    EtcdStart(#[from] plimsoll_store_etcd::StartError),
    #[error(
        "{} holds node {node} of cell {cell_id}, and the token in --join is for another cell; to keep this node, leave out \
         --join; to join that cell, choose another --data-dir, or delete this one if cell {cell_id} was made by mistake",
        dir.display()
    )]
    OtherToken { dir: PathBuf, node: NodeId, cell_id: CellId },
    #[error(
        "{} holds node {node}, which cell {cell_id} does not have any more: it was removed, or the cell was restored without \
         it; to join again, use this token with another --data-dir, or with this one emptied",
        dir.display()
    )]
    NoMember { dir: PathBuf, node: NodeId, cell_id: CellId },
    #[error(
        "{} holds node {node} of cell {cell_id}, whose authority was rotated without it, so that nobody accepts its certificate \
         any more; to join again, use this token with another --data-dir, or with this one emptied",
        dir.display()
    )]
    LeftBehind { dir: PathBuf, node: NodeId, cell_id: CellId },
    #[error("cannot join the cell")]
    Join(#[from] join::Error),
    #[error(transparent)]
    Identity(#[from] pki::Error),
    #[error("cannot listen for other nodes on {address}")]
    Peers { address: SocketAddr, source: io::Error },
    #[error("cannot listen for {what} on {address}; choose another with --{what}, or leave it out")]
    Entrance { what: &'static str, address: SocketAddr, source: io::Error },
}
