//! How many files a process may have open. A leader holds one for every node that is linked to it, more than most systems
//! give a process unless it asks. Services find what the daemon itself was given: programs exist that go wrong with more.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What this process was given before it asked for more.
static GIVEN: OnceLock<(Option<u64>, Option<u64>)> = OnceLock::new();

/// Asks for as many as this process is allowed, and returns how many that is; none: any number.
pub fn raise() -> io::Result<Option<u64>> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    GIVEN.get_or_init(|| (current, maximum));
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum)
}

/// What services get who do not say: the limit to warn at and the one to hold; none where nothing was raised.
pub(crate) fn given() -> Option<(Option<u64>, Option<u64>)> {
    GIVEN.get().copied()
}
