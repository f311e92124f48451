//! What a service prints, on disk: numbered files of lines, each with its time and where it came from, the oldest file
//! dropped when there are too many. Numbers only grow, so a reader always knows which file follows.
//!
//! A line is `1764000000123 o text`: milliseconds, `o` or `e` for the two outputs, and what was printed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use plimsoll_model::Timestamp;

use super::launch::LogBounds;
use crate::logs::{LogLine, Output};

/// Longer lines are cut into several, as Docker does: a service that never ends its line must not fill our memory.
pub(super) const MAX_LINE: usize = 16 << 10;

/// Numbers of the files that are there, oldest first.
pub(super) fn files(dir: &Path) -> Vec<u64> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let number = |name: &str| name.strip_suffix(".log")?.parse().ok();
    let mut numbers: Vec<u64> =
        entries.filter_map(|entry| number(entry.ok()?.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.log"))
}

/// The one writer, in the supervisor.
pub(super) struct Journal {
    dir: PathBuf,
    bounds: LogBounds,
    number: u64,
    file: File,
    written: u64,
    buffer: Vec<u8>,
    /// Lines in the buffer.
    pending: u64,
    /// Lines that a full disk swallowed.
    lost: u64,
}

impl Journal {
    /// Goes on where an earlier run left off.
    pub(super) fn open(dir: &Path, bounds: LogBounds) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let number = files(dir).last().copied().unwrap_or(1);
        let mut file = append(dir, number)?;
        // A run that was cut off may have left half a line; the next one begins a line of its own.
        let written = file.seek(SeekFrom::End(0))?;
        let mut journal = Self {
            dir: dir.to_owned(),
            bounds,
            number,
            file,
            written,
            buffer: Vec::new(),
            pending: 0,
            lost: 0,
        };
        if written > 0 && !ends_line(dir, number)? {
            journal.buffer.push(b'\n');
        }
        Ok(journal)
    }

    pub(super) fn line(&mut self, at: Timestamp, from: Output, text: &[u8]) {
        let mark = if from == Output::Stdout { 'o' } else { 'e' };
        let _ = write!(self.buffer, "{} {mark} ", at.0);
        self.buffer.extend_from_slice(text);
        self.buffer.push(b'\n');
        self.pending += 1;
        let size = self.buffer.len() as u64;
        if self.written + size >= self.bounds.file_bytes.0 {
            self.flush(at);
            self.rotate();
        }
    }

    /// Writes out what has gathered. A full disk costs lines, never the service.
    pub(super) fn flush(&mut self, at: Timestamp) {
        if self.buffer.is_empty() {
            return;
        }
        if self.lost > 0 {
            let note = format!("{} e plimsoll: {} lines lost: disk full\n", at.0, self.lost);
            if self.file.write_all(note.as_bytes()).is_ok() {
                self.lost = 0;
            }
        }
        match self.file.write_all(&self.buffer) {
            Ok(()) => self.written += self.buffer.len() as u64,
            Err(_) => self.lost += self.pending,
        }
        self.buffer.clear();
        self.pending = 0;
    }

    fn rotate(&mut self) {
        // Without a new file the old one grows on; the next line tries again.
        let Ok(file) = append(&self.dir, self.number + 1) else { return };
        (self.file, self.written, self.number) = (file, 0, self.number + 1);
        let kept = u64::from(self.bounds.files.max(1));
        for old in files(&self.dir).into_iter().filter(|old| old + kept <= self.number) {
            let _ = fs::remove_file(path(&self.dir, old));
        }
    }
}

fn append(dir: &Path, number: u64) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path(dir, number))
}

fn ends_line(dir: &Path, number: u64) -> io::Result<bool> {
    let mut file = File::open(path(dir, number))?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// One place in the files, moving forward.
pub(super) struct Cursor {
    dir: PathBuf,
    /// The file that is being read, once there was one.
    current: Option<(u64, File)>,
    /// The beginning of a line whose end is not written yet.
    partial: Vec<u8>,
}

/// How much is read at a time.
const CHUNK: usize = 64 << 10;

impl Cursor {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, current: None, partial: Vec::new() }
    }

    /// The lines that come next; none when all there is has been read.
    pub(super) fn read(&mut self) -> io::Result<Vec<LogLine>> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let after = self.current.as_ref().map_or(0, |(number, _)| number + 1);
            let next = || files(&self.dir).into_iter().find(|number| *number >= after);
            let Some((_, file)) = &mut self.current else {
                match next() {
                    None => return Ok(Vec::new()),
                    Some(number) => self.open(number)?,
                }
                continue;
            };
            // Whether there is a next file is asked first: a file with a successor is complete, so an end found after
            // the question is the real one.
            let successor = next();
            let read = file.read(&mut chunk)?;
            if read > 0 {
                let lines = self.split(&chunk[..read]);
                if lines.is_empty() {
                    continue;
                }
                return Ok(lines);
            }
            match successor {
                None => return Ok(Vec::new()),
                Some(number) => self.open(number)?,
            }
        }
    }

    fn open(&mut self, number: u64) -> io::Result<()> {
        self.partial.clear();
        match File::open(path(&self.dir, number)) {
            Ok(file) => self.current = Some((number, file)),
            // Dropped since it was listed; the next look finds a later one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.current = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn split(&mut self, chunk: &[u8]) -> Vec<LogLine> {
        let mut lines = Vec::new();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if let Some(whole) = self.partial.strip_suffix(b"\n") {
                lines.extend(parse(whole));
                self.partial.clear();
            }
        }
        lines
    }
}

/// None for what is not a line of ours, such as the half of one.
fn parse(line: &[u8]) -> Option<LogLine> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let at = str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    let from = match line.get(space + 1..space + 3)? {
        b"o " => Output::Stdout,
        b"e " => Output::Stderr,
        _ => return None,
    };
    Some(LogLine { at: Timestamp(at), from, text: line[space + 3..].to_vec() })
}

#[cfg(test)]
mod tests {
    use plimsoll_model::Bytes;

    use super::*;

    fn journal(dir: &Path, file_bytes: u64, files: u32) -> Journal {
        Journal::open(dir, LogBounds { file_bytes: Bytes(file_bytes), files }).unwrap()
    }

    fn all(dir: &Path) -> Vec<String> {
        let mut cursor = Cursor::new(dir.to_owned());
        let mut texts = Vec::new();
        loop {
            let lines = cursor.read().unwrap();
            if lines.is_empty() {
                return texts;
            }
            texts.extend(lines.into_iter().map(|line| String::from_utf8(line.text).unwrap()));
        }
    }

    #[test]
    fn lines_come_back_as_they_went_in() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path(), 1 << 20, 2);
        journal.line(Timestamp(5), Output::Stdout, b"one two ");
        journal.line(Timestamp(6), Output::Stderr, b"\xff\0");
        journal.flush(Timestamp(6));
        let lines = Cursor::new(dir.path().to_owned()).read().unwrap();
        let line = |at, from, text: &[u8]| LogLine { at: Timestamp(at), from, text: text.to_vec() };
        let expected = [line(5, Output::Stdout, b"one two "), line(6, Output::Stderr, b"\xff\0")];
        assert_eq!(lines, expected);
    }

    #[test]
    fn only_the_newest_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path(), 1_000, 3);
        for number in 0..1_000 {
            journal.line(Timestamp(number), Output::Stdout, format!("line {number}").as_bytes());
        }
        journal.flush(Timestamp(1_000));
        let numbers = files(dir.path());
        assert_eq!(numbers.len(), 3);
        let size: u64 =
            numbers.iter().map(|n| fs::metadata(path(dir.path(), *n)).unwrap().len()).sum();
        assert!(size <= 3_100, "{size}");
        let texts = all(dir.path());
        assert_eq!(texts.last().unwrap(), "line 999");
        let first: u32 = texts[0].strip_prefix("line ").unwrap().parse().unwrap();
        assert_eq!(texts.len(), 1_000 - first as usize, "nothing is missing in between");
    }

    #[test]
    fn a_reader_follows_over_file_ends_and_half_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut cursor = Cursor::new(dir.path().to_owned());
        assert_eq!(cursor.read().unwrap(), [], "nothing is there yet");
        let mut heard = Vec::new();
        let mut journal = journal(dir.path(), 100, 50);
        for number in 0..30 {
            journal.line(Timestamp(1), Output::Stdout, format!("{number}").as_bytes());
            journal.flush(Timestamp(1));
            heard.extend(cursor.read().unwrap().into_iter().map(|line| line.text));
        }
        heard.extend(cursor.read().unwrap().into_iter().map(|line| line.text));
        let expected: Vec<Vec<u8>> = (0..30).map(|n| format!("{n}").into_bytes()).collect();
        assert_eq!(heard, expected);
        drop(journal);
        let mut file = append(dir.path(), *files(dir.path()).last().unwrap()).unwrap();
        file.write_all(b"9 o cut of").unwrap();
        let mut journal = self::journal(dir.path(), 1_000, 50);
        journal.line(Timestamp(2), Output::Stdout, b"anew");
        journal.flush(Timestamp(2));
        let texts: Vec<_> = cursor.read().unwrap().into_iter().map(|line| line.text).collect();
        assert_eq!(texts, [b"cut of".to_vec(), b"anew".to_vec()]);
    }
}
