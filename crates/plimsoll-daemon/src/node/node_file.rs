//! What a node remembers of itself from one start to the next.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_files::modes;
use plimsoll_model::access::Digest;
use plimsoll_model::{CellId, NodeId};
use plimsoll_store::Incarnation;
use serde::{Deserialize, Serialize};

use super::etcd::EtcdRecord;
use super::{Error, RuntimeKind};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NodeFile {
    pub(super) name: NodeId,
    pub(super) runtime: Option<RuntimeKind>,
    /// The cell it was taken into, and its number there as a server. None for one that founded its own.
    #[serde(default)]
    pub(super) joined: Option<(CellId, u64)>,
    /// The join token it was taken in with, as the cell keeps it. None where nobody wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) join_token: Option<Digest>,
    /// The life of that cell, until its log is begun and knows itself.
    #[serde(default)]
    pub(super) incarnation: Incarnation,
    /// Where its log is, if that is not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etcd: Option<EtcdRecord>,
}

impl NodeFile {
    fn path(dir: &Path) -> PathBuf {
        dir.join("node.json")
    }

    pub(super) fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(dir);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Error::NodeFile { path, why: error.to_string() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { action: "read", path, source }),
        }
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = Self::path(dir);
        let text = serde_json::to_vec_pretty(self).expect("a name and a word can be written");
        let written = plimsoll_files::write(&path, &text, modes::FILE);
        written.map_err(|source| Error::Io { action: "write", path, source })
    }
}
