//! The files of a project on this machine's disk.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use crate::Files;

/// More than any file a deployment may carry; reading stops there, also where a file never ends.
const MAX_BYTES: u64 = 4 << 20;

/// Reads below a directory, or anywhere by an absolute path, as the person who runs the command may.
#[derive(Debug, Clone)]
pub struct Disk {
    pub root: PathBuf,
}

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.root.join(path))?.take(MAX_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
