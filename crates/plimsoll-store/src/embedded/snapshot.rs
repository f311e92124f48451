//! The snapshot on disk: one file that holds the state as of one entry, replaced whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::State;

use super::types::Header;
use crate::disk::Disk;
use crate::level;
use crate::sealed::{Kind, Unreadable};

const SNAPSHOT: Kind = Kind { magic: *b"plimssnp", format: 1, name: "snapshot" };

/// The state as it is written.
pub(crate) type StateBytes = Arc<[u8]>;

#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl Snapshots {
    pub(crate) fn new(disk: &Arc<dyn Disk>, data_dir: &Path) -> Self {
        Self { disk: Arc::clone(disk), path: data_dir.join("snapshot") }
    }

    pub(crate) fn write(&self, header: &Header, state: &[u8]) -> io::Result<()> {
        let mut body = postcard::to_stdvec(header).map_err(io::Error::other)?;
        body.extend_from_slice(state);
        SNAPSHOT.write(self.disk.as_ref(), &self.path, &body)
    }

    pub(crate) fn read(&self) -> Result<Option<(Header, StateBytes)>, Unreadable> {
        let Some(body) = SNAPSHOT.read(self.disk.as_ref(), &self.path)? else { return Ok(None) };
        let (header, state) =
            postcard::take_from_bytes(&body).map_err(|error| self.damaged(&error))?;
        Ok(Some((header, Arc::from(state))))
    }

    /// The snapshot with its state decoded.
    pub(crate) fn load(&self) -> Result<Option<(Header, State)>, Unreadable> {
        let Some((header, bytes)) = self.read()? else { return Ok(None) };
        let state = level::decode(&bytes)
            .map_err(|undecoded| Unreadable::undecoded(&self.path, &undecoded))?;
        Ok(Some((header, state)))
    }

    fn damaged(&self, error: &postcard::Error) -> Unreadable {
        let what = format!("its content cannot be understood ({error})");
        Unreadable::Damaged { path: self.path.clone(), what }
    }
}

pub(crate) fn encode_state(state: &State) -> StateBytes {
    postcard::to_stdvec(state).expect("every state can be written").into()
}
