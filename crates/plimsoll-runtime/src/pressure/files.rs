//! Small files of numbers, as the kernel writes them.

use std::fs;
use std::path::Path;

pub(crate) fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// A file that is one number. `max`, where a limit could stand, is none.
pub(crate) fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// The number after `key` in a file of `key number` lines.
pub(crate) fn field(path: &Path, key: &str) -> Option<u64> {
    text(path)?.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(key)).then(|| words.next()?.parse().ok())?
    })
}
