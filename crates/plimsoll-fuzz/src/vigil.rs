//! What must hold while a test breaks inputs: nothing panics, in any thread or task, and memory stays bounded.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a test process may grow by, however many cases it reads.
const GROWTH: usize = 256 << 20;

/// Watches the process from its beginning on. One at a time: nextest gives each test a process of its own.
#[derive(Debug)]
pub struct Vigil {
    name: &'static str,
    before: usize,
    panics: Arc<AtomicUsize>,
}

impl Vigil {
    pub fn begin(name: &'static str) -> Self {
        let (panics, before) = (Arc::new(AtomicUsize::new(0)), std::panic::take_hook());
        let counted = Arc::clone(&panics);
        std::panic::set_hook(Box::new(move |info| {
            counted.fetch_add(1, Relaxed);
            before(info);
        }));
        Self { name, before: resident(), panics }
    }

    /// How often anything has panicked. A task that panics ends nothing else, so who goes on looks here.
    pub fn panics(&self) -> usize {
        self.panics.load(Relaxed)
    }

    /// Nothing has panicked, and the process has not grown beyond its bound in so many cases.
    pub fn end(self, cases: usize) {
        let (name, seed) = (self.name, crate::seed());
        assert_eq!(self.panics(), 0, "{name}: something panicked in {cases} cases of seed {seed}");
        let grown = resident().saturating_sub(self.before);
        assert!(grown < GROWTH, "{name}: {cases} cases, and the process grew by {grown} bytes");
        println!("{name}: {cases} cases of seed {seed}, grown by {} KiB", grown >> 10);
    }
}

/// What this process has in memory, in bytes; zero where the system does not say.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or(0) << 10
}
