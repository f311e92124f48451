//! Files in one stream, as POSIX `tar` (ustar) has them: a header of 512 bytes, the content in whole blocks, two empty blocks at the end.

use std::io::{self, Write};

const BLOCK: usize = 512;

/// The longest name that a header has room for without a prefix.
const MAX_NAME: usize = 100;

/// In front of it names are split, at a slash.
const MAX_PREFIX: usize = 155;

#[derive(Debug)]
pub(super) struct Tar<W> {
    to: W,
    /// When all of it was made, in seconds since 1970.
    seconds: u64,
}

impl<W: Write> Tar<W> {
    pub(super) fn new(to: W, seconds: u64) -> Self {
        Self { to, seconds }
    }

    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.to.write_all(&header(name, content.len() as u64, self.seconds)?)?;
        self.to.write_all(content)?;
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        self.to.write_all(&[0; BLOCK][..rest])
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&[0; 2 * BLOCK])?;
        Ok(self.to)
    }
}

fn header(name: &str, size: u64, seconds: u64) -> io::Result<[u8; BLOCK]> {
    let (prefix, name) = split(name).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is too long for a tar"))
    })?;
    let mut header = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, &format!("{seconds:011o}\0"));
    // Counted as blanks while it is not known.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    put(345, prefix);
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= MAX_NAME {
        return Some(("", name));
    }
    let slashes = name.match_indices('/').map(|(at, _)| at);
    let fits = |at: &usize| *at <= MAX_PREFIX && name.len() - at - 1 <= MAX_NAME;
    slashes.into_iter().find(fits).map(|at| (&name[..at], &name[at + 1..]))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_itself_unpacks_what_was_packed() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("{}/{}.json", "a".repeat(60), "b".repeat(90));
        let block = [7; BLOCK];
        let mut tar = Tar::new(Vec::new(), 1_700_000_000);
        let files = [("top/empty", &b""[..]), (&long, b"{}"), ("top/block", &block[..])];
        for (name, content) in files {
            tar.add(name, content).unwrap();
        }
        std::fs::write(dir.path().join("it.tar"), tar.finish().unwrap()).unwrap();
        let said = Command::new("tar").args(["xf", "it.tar"]).current_dir(&dir).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stderr), "", "{said:?}");
        for (name, content) in files {
            assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), content, "{name}");
        }
        assert!(header(&"c".repeat(300), 0, 0).is_err());
    }
}
