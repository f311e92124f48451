//! Files of a directory of traces: lines of numbers between commas, gzipped or not.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::TraceError;

/// A day of the largest trace there is has a third of a megabyte; beyond this it is another file, or never ends.
const MAX_BYTES: u64 = 256 << 20;

/// The most samples of one series: a month of five minutes.
const MAX_SAMPLES: usize = 10_000;

/// A file of the directory, by its name without the extension.
#[derive(Debug)]
pub(crate) struct TraceFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// A line of a file: what it begins with, and the numbers after that.
#[derive(Debug)]
pub(crate) struct TraceLine<'s> {
    file: &'s TraceFile,
    number: usize,
    pub(crate) text: String,
}

/// The files `*.csv` and `*.csv.gz`, by name.
pub(super) fn files(directory: &Path) -> Result<Vec<TraceFile>, TraceError> {
    files_ending(directory, ".csv")
}

/// The files with that ending, and those with `.gz` after it, by name.
pub(crate) fn files_ending(directory: &Path, ending: &str) -> Result<Vec<TraceFile>, TraceError> {
    let path = directory.to_owned();
    let entries = fs::read_dir(directory).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => TraceError::NoDirectory(path),
        io::ErrorKind::NotADirectory => TraceError::NotADirectory(path),
        _ => TraceError::Unlisted { path, source },
    })?;
    let mut files: Vec<TraceFile> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let file = path.file_name()?.to_str()?;
            let name = file.strip_suffix(".gz").unwrap_or(file).strip_suffix(ending)?.to_owned();
            Some(TraceFile { name, path })
        })
        .collect();
    files.sort_by(|one, other| (&one.name, &one.path).cmp(&(&other.name, &other.path)));
    files.dedup_by(|one, other| one.name == other.name);
    Ok(files)
}

impl TraceFile {
    pub(crate) fn text(&self) -> Result<String, TraceError> {
        let path = || self.path.clone();
        let failed = |source: io::Error| TraceError::Unreadable { path: path(), source };
        let file = File::open(&self.path).map_err(failed)?;
        let is_packed = self.path.extension().is_some_and(|extension| extension == "gz");
        let mut text = String::new();
        let read = if is_packed {
            MultiGzDecoder::new(file).take(MAX_BYTES + 1).read_to_string(&mut text)
        } else {
            file.take(MAX_BYTES + 1).read_to_string(&mut text)
        };
        read.map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(TraceError::TooLarge { path: path(), most: MAX_BYTES });
        }
        Ok(text)
    }

    pub(crate) fn lines(&self) -> Result<Vec<TraceLine<'_>>, TraceError> {
        let text = self.text()?;
        let lines = text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty());
        let line = |(nth, text): (usize, &str)| TraceLine {
            file: self,
            number: nth + 1,
            text: text.trim().to_owned(),
        };
        Ok(lines.map(line).collect())
    }
}

impl TraceLine<'_> {
    /// Reads the fields from `from` on, each by `one`.
    pub(super) fn series<T>(
        &self,
        from: usize,
        one: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, TraceError> {
        let fields = self.text.split(',').skip(from);
        let series: Result<Vec<T>, TraceError> = fields
            .map(|field| {
                one(field.trim())
                    .ok_or_else(|| self.wrong(&format!("{field:?} is not a percentage")))
            })
            .collect();
        let series = series?;
        if series.is_empty() || series.len() > MAX_SAMPLES {
            let message = format!("{} samples, of 1 to {MAX_SAMPLES}", series.len());
            return Err(self.wrong(&message));
        }
        Ok(series)
    }

    pub(crate) fn wrong(&self, message: &str) -> TraceError {
        let (path, message) = (self.file.path.clone(), message.to_owned());
        TraceError::BadLine { path, line: self.number, message }
    }
}

/// The node a task begins on: SHA-256 of the seed and its name, as a number, by the number of nodes.
pub(super) fn first_node(seed: &str, name: &str, nodes: usize) -> usize {
    let digest = Sha256::digest(format!("{seed}{name}").as_bytes());
    digest.iter().fold(0, |rest, byte| (rest * 256 + usize::from(*byte)) % nodes.max(1))
}

/// The number of nodes, where each is to hold so many halves of a task; to the nearest, and at least one.
pub(super) fn nodes_for(tasks: usize, halves: usize) -> usize {
    ((4 * tasks + halves) / (2 * halves)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_begin_where_the_protocol_puts_them() {
        assert_eq!(nodes_for(1_052, 35), 60);
        assert_eq!(nodes_for(898, 35), 51);
        assert_eq!(nodes_for(1_463, 35), 84);
        assert_eq!(nodes_for(1, 35), 1);
        // SHA-256 of "0abc", read as a number by another program, modulo 60.
        assert_eq!(first_node("0", "abc", 60), 8);
    }
}
