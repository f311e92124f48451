//! The snapshot on disk: one file that holds the state as of one entry, replaced whole.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::State;
use plimsoll_seal::{Keyring, SealReader, SealWriter};

use super::growth::LogGrowth;
use super::types::Header;
use crate::checked_file::{FileFormat, Unreadable};
use crate::disk::Disk;
use crate::level;

const SNAPSHOT: FileFormat = FileFormat { magic: *b"plimssnp", format: 1, name: "snapshot" };

/// What a snapshot is sealed as.
const CONTEXT: &str = "snapshot";

/// The state as it is written.
pub(crate) type StateBytes = Arc<[u8]>;

#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    growth: Arc<LogGrowth>,
    keys: Arc<Keyring>,
}

impl Snapshots {
    pub(crate) fn new(disk: &Arc<dyn Disk>, data_dir: &Path, keys: &Arc<Keyring>) -> Self {
        let (growth, keys) = (Arc::default(), Arc::clone(keys));
        Self { disk: Arc::clone(disk), path: data_dir.join("snapshot"), growth, keys }
    }

    /// Seals with this keyring from now on. It opens all that the one before does.
    pub(crate) fn seal_with(&mut self, keys: &Arc<Keyring>) {
        self.keys = Arc::clone(keys);
    }

    /// The key of the snapshot that is there.
    pub(crate) fn key_in_use(&self) -> Result<Option<u32>, Unreadable> {
        let body = SNAPSHOT.read(self.disk.as_ref(), &self.path)?;
        Ok(body.and_then(|body| plimsoll_seal::key_of(&body)))
    }

    /// What counts the bytes of the log since the last of them.
    pub(crate) fn growth(&self) -> &Arc<LogGrowth> {
        &self.growth
    }

    pub(crate) fn write(&self, header: &Header, state: &[u8]) -> io::Result<()> {
        let header = postcard::to_stdvec(header).map_err(io::Error::other)?;
        SNAPSHOT.write_streamed(self.disk.as_ref(), &self.path, |to| {
            let mut sealed = SealWriter::new(&self.keys, CONTEXT, to)?;
            sealed.write_all(&header)?;
            sealed.write_all(state)?;
            sealed.finish().map(drop)
        })?;
        self.growth.begin_anew(state.len() as u64);
        Ok(())
    }

    pub(crate) fn read(&self) -> Result<Option<(Header, StateBytes)>, Unreadable> {
        let Some(sealed) = SNAPSHOT.read(self.disk.as_ref(), &self.path)? else { return Ok(None) };
        let body = self.opened(&sealed)?;
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

    fn opened(&self, sealed: &[u8]) -> Result<Vec<u8>, Unreadable> {
        let mut body = Vec::with_capacity(sealed.len());
        let read = SealReader::new(&self.keys, CONTEXT, sealed);
        let read = read.and_then(|mut read| read.read_to_end(&mut body));
        read.map_err(|why| Unreadable::Damaged { path: self.path.clone(), what: why.to_string() })?;
        Ok(body)
    }

    fn damaged(&self, error: &postcard::Error) -> Unreadable {
        let what = format!("cannot decode its content ({error})");
        Unreadable::Damaged { path: self.path.clone(), what }
    }
}

pub(crate) fn encode_state(state: &State) -> StateBytes {
    postcard::to_stdvec(state).expect("every state can be written").into()
}
