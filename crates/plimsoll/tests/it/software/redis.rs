//! A client of Redis that asks one thing at a time.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;

use super::writer::{RowStore, connect};

pub(super) struct Redis(BufReader<TcpStream>);

impl RowStore for Redis {
    const PORT: u16 = 6379;
    const NAME: &str = "Redis";

    fn open() -> io::Result<Self> {
        Ok(Self(BufReader::new(connect(Self::PORT)?)))
    }

    fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, row: u64) -> io::Result<()> {
        match self.ask(&format!("SADD rows {row}"))? {
            Reply::Number(1) => Ok(()),
            other => Err(other.unexpected()),
        }
    }

    fn rows(&mut self) -> io::Result<BTreeSet<u64>> {
        match self.ask("SMEMBERS rows")? {
            Reply::All(rows) => Ok(rows.iter().filter_map(|row| row.parse().ok()).collect()),
            other => Err(other.unexpected()),
        }
    }
}

enum Reply {
    Number(i64),
    All(Vec<String>),
    Other(String),
}

impl Reply {
    fn unexpected(self) -> io::Error {
        io::Error::other(match self {
            Self::Number(number) => format!("it answered {number}"),
            Self::All(rows) => format!("it answered {} rows", rows.len()),
            Self::Other(text) => text,
        })
    }
}

impl Redis {
    fn ask(&mut self, command: &str) -> io::Result<Reply> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let line = self.line()?;
        let Some(kind) = line.chars().next() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let number = line[kind.len_utf8()..].parse();
        Ok(match (kind, number) {
            (':', Ok(number)) => Reply::Number(number),
            ('*', Ok(count)) => Reply::All(self.strings(count)?),
            _ => Reply::Other(line),
        })
    }

    /// Each has its length before it, on a line of its own.
    fn strings(&mut self, count: i64) -> io::Result<Vec<String>> {
        (0..count).map(|_| self.line().and_then(|_| self.line())).collect()
    }

    /// Nothing here has an end of line in it.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}
