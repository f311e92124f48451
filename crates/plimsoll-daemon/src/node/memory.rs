//! What a node remembers of itself from one start to the next.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_model::{ClusterId, NodeId};
use plimsoll_store::Incarnation;
use serde::{Deserialize, Serialize};

use super::etcd::Kept;
use super::{Error, Kind};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) name: NodeId,
    pub(super) runtime: Option<Kind>,
    /// The cell it was taken into, and its number there as a server. None for one that founded its own.
    #[serde(default)]
    pub(super) joined: Option<(ClusterId, u64)>,
    /// The life of that cell, until its log is begun and knows itself.
    #[serde(default)]
    pub(super) incarnation: Incarnation,
    /// Where its log is, if that is not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etcd: Option<Kept>,
}

impl Memory {
    fn path(dir: &Path) -> PathBuf {
        dir.join("node.json")
    }

    pub(super) fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(dir);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Error::Memory { path, why: error.to_string() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { action: "read", path, source }),
        }
    }

    /// Beside it and then in its place, so that a crash leaves the old one or the new one.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Error> {
        let (path, beside) = (Self::path(dir), dir.join("node.json.new"));
        let text = serde_json::to_vec_pretty(self).expect("a name and a word can be written");
        let written = std::fs::write(&beside, text)
            .and_then(|()| std::fs::File::open(&beside)?.sync_all())
            .and_then(|()| std::fs::rename(&beside, &path));
        written.map_err(|source| Error::Io { action: "write", path, source })
    }
}
