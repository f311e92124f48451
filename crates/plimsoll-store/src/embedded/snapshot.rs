//! The snapshot on disk: one file that holds the state as of one entry, replaced whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::State;

use super::growth::LogGrowth;
use super::types::Header;
use crate::checked_file::{FileFormat, Unreadable};
use crate::disk::Disk;
use crate::level;

const SNAPSHOT: FileFormat = FileFormat { magic: *b"plimssnp", format: 1, name: "snapshot" };

/// The state as it is written.
pub(crate) type StateBytes = Arc<[u8]>;

#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    growth: Arc<LogGrowth>,
}

impl Snapshots {
    pub(crate) fn new(disk: &Arc<dyn Disk>, data_dir: &Path) -> Self {
        let growth = Arc::default();
        Self { disk: Arc::clone(disk), path: data_dir.join("snapshot"), growth }
    }

    /// What counts the bytes of the log since the last of them.
    pub(crate) fn growth(&self) -> &Arc<LogGrowth> {
        &self.growth
    }

    pub(crate) fn write(&self, header: &Header, state: &[u8]) -> io::Result<()> {
        let header = postcard::to_stdvec(header).map_err(io::Error::other)?;
        SNAPSHOT.write_streamed(self.disk.as_ref(), &self.path, |to| {
            to.write_all(&header)?;
            to.write_all(state)
        })?;
        self.growth.begin_anew(state.len() as u64);
        Ok(())
    }

    pub(crate) fn read(&self) -> Result<Option<(Header, StateBytes)>, Unreadable> {
        let Some(body) = SNAPSHOT.read(self.disk.as_ref(), &self.path)? else { return Ok(None) };
        let (header, state) =
            postcard::take_from_bytes(&body).map_err(|error| self.damaged(&error))?;
        self.growth.hold(state.len() as u64);
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
        let what = format!("cannot decode its content ({error})");
        Unreadable::Damaged { path: self.path.clone(), what }
    }
}

pub(crate) fn encode_state(state: &State) -> StateBytes {
    postcard::to_stdvec(state).expect("every state can be written").into()
}
