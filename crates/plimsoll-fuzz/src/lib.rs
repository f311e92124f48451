//! Inputs broken at random, for tests that no reader panics, hangs or takes memory without bound.
//!
//! A seed gives the same cases in the same order each time: `PLIMSOLL_FUZZ_SEED` gives others, and `PLIMSOLL_FUZZ_SECONDS` more
//! of them. Every input of the corpus is read as it is before any is broken, so an input that once broke a reader is put there.
//!
//! [`Fuzz`] is for a reader that is called with bytes. What answers over connections has a loop of its own, and takes from here
//! how long it may run ([`length`]) and what must hold at its end ([`Vigil`]).

mod dice;
mod mutate;
mod vigil;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use dice::Dice;
pub use mutate::Mutator;
pub use vigil::Vigil;

/// A reader that takes longer than this for one input does work out of proportion; on a busy machine a good one takes
/// milliseconds.
const SLOW: Duration = Duration::from_secs(20);

/// The seed of this run.
pub fn seed() -> u64 {
    from_environment("PLIMSOLL_FUZZ_SEED", 17)
}

/// How long a test breaks inputs for, where so many tests are for one reader: these share its time.
pub fn length(sharers: u32) -> Duration {
    Duration::from_secs(from_environment("PLIMSOLL_FUZZ_SECONDS", 2)) / sharers.max(1)
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

/// A reader that is given broken inputs.
#[derive(Debug)]
pub struct Fuzz {
    name: &'static str,
    corpus: Vec<Vec<u8>>,
    words: Vec<&'static [u8]>,
    sharers: u32,
}

impl Fuzz {
    pub fn new(name: &'static str) -> Self {
        Self { name, corpus: Vec::new(), words: Vec::new(), sharers: 1 }
    }

    /// It is one of so many tests of one reader, which have the time of one together.
    pub fn one_of(mut self, sharers: u32) -> Self {
        self.sharers = sharers;
        self
    }

    /// One more whole input.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.corpus.push(bytes.into());
        self
    }

    /// Every file in a directory and those below it, in order of their names. It must have some.
    pub fn inputs_in(mut self, dir: &Path) -> Self {
        let before = self.corpus.len();
        for path in files_below(dir) {
            self.corpus.push(
                fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            );
        }
        assert!(self.corpus.len() > before, "{} has no inputs", dir.display());
        self
    }

    /// Pieces that mean something to the reader, to be put anywhere.
    pub fn words(mut self, words: &[&'static str]) -> Self {
        self.words.extend(words.iter().map(|word| word.as_bytes()));
        self
    }

    /// Has all of it read: first the corpus as it is, then broken inputs for as long as the test may take. Says how many there
    /// were. An input that made the reader panic or hang is kept in a file whose name is told.
    pub fn run(self, mut read: impl FnMut(&[u8])) -> usize {
        assert!(!self.corpus.is_empty(), "there is nothing to break");
        let vigil = Vigil::begin(self.name);
        for input in &self.corpus {
            self.one(input, &mut read);
        }
        let mut mutator = Mutator::new(seed(), &self.corpus, &self.words);
        let (begun, mut count) = (Instant::now(), self.corpus.len());
        while begun.elapsed() < length(self.sharers) {
            self.one(&mutator.next_input(), &mut read);
            count += 1;
        }
        vigil.end(count);
        count
    }

    fn one(&self, input: &[u8], read: &mut impl FnMut(&[u8])) {
        let begun = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| read(input)));
        if let Err(panic) = ended {
            println!(
                "{}: this input of seed {} is in {}",
                self.name,
                seed(),
                self.keep(input).display()
            );
            resume_unwind(panic);
        }
        let took = begun.elapsed();
        assert!(
            took < SLOW,
            "{}: {took:?} for the input in {}",
            self.name,
            self.keep(input).display()
        );
    }

    /// Writes an input down for a person to look at.
    fn keep(&self, input: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!(
            "plimsoll-fuzz-{}-{}.bin",
            self.name,
            std::process::id()
        ));
        // The test fails either way; without the file, its seed says the same.
        let _ = fs::write(&path, input);
        path
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort_unstable();
    let below = |path: PathBuf| if path.is_dir() { files_below(&path) } else { vec![path] };
    paths.into_iter().flat_map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_breaks_at_some_input_is_found_out() {
        let reading = || {
            Fuzz::new("breaks").input("a: 1\nb: 2\n").words(&["&a"]).run(|input| {
                assert!(!input.windows(2).any(|pair| pair == b"&a"), "it cannot read anchors");
            })
        };
        let panic = catch_unwind(reading).expect_err("some input has an anchor");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"it cannot read anchors"));
    }

    #[test]
    fn a_seed_gives_the_same_inputs_each_time() {
        let corpus = [b"services: {web: {image: nginx}}".to_vec()];
        let inputs = || {
            let mut mutator = Mutator::new(7, &corpus, &[b"${A"]);
            (0..500).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(), inputs());
        assert!(inputs().iter().any(|input| input.len() > 1 << 10), "some are long");
        assert!(inputs().iter().all(|input| input.len() <= mutate::LONGEST));
    }
}
