//! The newest term this node has taken orders of. It is on disk before the first order of that term is heeded, so that
//! a leader that was deposed, or slept through its deposition, is refused even after this node was restarted.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_model::Term;

#[derive(Debug)]
pub struct Fence {
    path: Option<PathBuf>,
    seen: Term,
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
        Ok(Self { path: Some(path), seen })
    }

    /// One that is forgotten with the process, for tests.
    pub fn in_memory() -> Self {
        Self { path: None, seen: Term(0) }
    }

    pub fn seen(&self) -> Term {
        self.seen
    }

    /// Whether orders of this term may be heeded; if so, none older will be.
    pub fn admit(&mut self, term: Term) -> io::Result<bool> {
        if term < self.seen {
            return Ok(false);
        }
        if term > self.seen {
            if let Some(path) = &self.path {
                write(path, term)?;
            }
            self.seen = term;
        }
        Ok(true)
    }
}

fn write(path: &Path, term: Term) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    writeln!(file, "{}", term.0)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_an_older_term_are_refused_also_after_a_restart() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("term");
        let mut fence = Fence::open(path.clone()).unwrap();
        for (term, is_admitted) in [(3, true), (3, true), (2, false), (5, true), (4, false)] {
            assert_eq!(fence.admit(Term(term)).unwrap(), is_admitted, "{term}");
        }
        let mut fence = Fence::open(path.clone()).unwrap();
        assert!(!fence.admit(Term(4)).unwrap() && fence.admit(Term(5)).unwrap());
        std::fs::write(&path, "garbage").unwrap();
        assert!(Fence::open(path).is_err(), "a fence that cannot be read is not taken for none");
    }
}
