//! The newest term this node has taken orders of. It is on disk before the first order of that term is heeded, so that
//! a leader that was deposed, or slept through its deposition, is refused even after this node was restarted.
//!
//! Who asks waits for the disk without holding a thread: a disk that hangs must not stop the node's heartbeat.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use plimsoll_files::modes;
use plimsoll_model::Term;

pub struct Fence {
    seen: Term,
    kept: Arc<Mutex<StoredTerm>>,
}

/// What is on disk, and how it gets there.
struct StoredTerm {
    term: Term,
    write: Box<dyn FnMut(Term) -> io::Result<()> + Send>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Fence {
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let seen = match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Term).map_err(|_| {
                let what = format!("{} does not hold a term", path.display());
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Term(0),
            Err(error) => return Err(error),
        };
        Ok(Self::writing(seen, move |term| write(&path, term)))
    }

    /// One that is forgotten with the process, for tests.
    pub fn in_memory() -> Self {
        Self::writing(Term(0), |_| Ok(()))
    }

    /// One that is kept by whatever this does.
    pub(super) fn writing(
        seen: Term,
        write: impl FnMut(Term) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let kept = StoredTerm { term: seen, write: Box::new(write) };
        Self { seen, kept: Arc::new(Mutex::new(kept)) }
    }

    pub fn seen(&self) -> Term {
        self.seen
    }

    /// Whether orders of this term may be heeded; if so, none older will be.
    pub async fn admit(&mut self, term: Term) -> io::Result<bool> {
        if term < self.seen {
            return Ok(false);
        }
        if term > self.seen {
            let kept = Arc::clone(&self.kept);
            let written = tokio::task::spawn_blocking(move || keep(&kept, term));
            written.await.map_err(io::Error::other)??;
            self.seen = term;
        }
        Ok(true)
    }
}

/// A write that nobody waited for any more may come after a later one: the mark on disk only ever rises.
fn keep(kept: &Mutex<StoredTerm>, term: Term) -> io::Result<()> {
    let mut kept = kept.lock().map_err(|_| io::Error::other("an earlier write broke off"))?;
    if term > kept.term {
        (kept.write)(term)?;
        kept.term = term;
    }
    Ok(())
}

fn write(path: &Path, term: Term) -> io::Result<()> {
    plimsoll_files::write(path, format!("{}\n", term.0).as_bytes(), modes::FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn orders_of_an_older_term_are_refused_also_after_a_restart() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("term");
        let mut fence = Fence::open(path.clone()).unwrap();
        for (term, is_admitted) in [(3, true), (3, true), (2, false), (5, true), (4, false)] {
            assert_eq!(fence.admit(Term(term)).await.unwrap(), is_admitted, "{term}");
        }
        let mut fence = Fence::open(path.clone()).unwrap();
        assert!(!fence.admit(Term(4)).await.unwrap() && fence.admit(Term(5)).await.unwrap());
        std::fs::write(&path, "garbage").unwrap();
        assert!(Fence::open(path).is_err(), "a fence that cannot be read is not taken for none");
    }
}
