//! Places where a test has the daemon it started panic, to see what goes on without the part that did. Builds without debug
//! assertions have none of them.

/// The directory in which a test leaves a file by the name of a place.
pub const DIRECTORY: &str = "PLIMSOLL_FAULT_DIR";

/// Panics if a test asked for it, once.
#[cfg(debug_assertions)]
pub(crate) fn reach(place: &str) {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    static FAULTS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let dir = FAULTS.get_or_init(|| std::env::var_os(DIRECTORY).map(PathBuf::from));
    let is_asked = dir.as_ref().is_some_and(|dir| std::fs::remove_file(dir.join(place)).is_ok());
    assert!(!is_asked, "a test asked for a panic in {place}");
}

#[cfg(not(debug_assertions))]
pub(crate) fn reach(_: &str) {}
