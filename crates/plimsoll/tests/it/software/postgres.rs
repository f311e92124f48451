//! A client of PostgreSQL that asks one thing at a time: as much of its protocol as it takes to know what was committed.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::writer::{RowStore, connect};

/// The third version of the protocol.
const PROTOCOL: i32 = 3 << 16;

/// More than any answer here has: a number beyond it is not a length.
const MAX_MESSAGE: usize = 1 << 20;

pub(super) struct Postgres(TcpStream);

impl RowStore for Postgres {
    const PORT: u16 = 5432;
    const NAME: &str = "PostgreSQL";

    fn open() -> io::Result<Self> {
        let mut client = Self(connect(Self::PORT)?);
        let mut hello = PROTOCOL.to_be_bytes().to_vec();
        hello.extend(b"user\0postgres\0database\0postgres\0\0");
        client.send(None, &hello)?;
        client.answer()?;
        Ok(client)
    }

    fn prepare(&mut self) -> io::Result<()> {
        self.ask("CREATE TABLE IF NOT EXISTS rows (n bigint PRIMARY KEY)").map(drop)
    }

    fn write(&mut self, row: u64) -> io::Result<()> {
        let told = self.ask(&format!("INSERT INTO rows VALUES ({row}) RETURNING n"))?;
        if told == [row] { Ok(()) } else { Err(io::Error::other(format!("{told:?}"))) }
    }

    fn rows(&mut self) -> io::Result<BTreeSet<u64>> {
        Ok(self.ask("SELECT n FROM rows")?.into_iter().collect())
    }
}

impl Postgres {
    /// What a statement gives, once the server says that it has committed it.
    fn ask(&mut self, statement: &str) -> io::Result<Vec<u64>> {
        self.send(Some(b'Q'), format!("{statement}\0").as_bytes())?;
        self.answer()
    }

    fn send(&mut self, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
        let length = i32::try_from(body.len() + 4).expect("what is said here is short");
        let mut message: Vec<u8> = kind.into_iter().collect();
        message.extend(length.to_be_bytes());
        message.extend(body);
        self.0.write_all(&message)
    }

    /// Everything up to where the server is ready for the next statement, which it is only after a commit.
    fn answer(&mut self) -> io::Result<Vec<u64>> {
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'D' => rows.extend(column(&body)),
                b'E' => error = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'Z' => return error.map_or(Ok(rows), |error| Err(io::Error::other(error))),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(i32::from_be_bytes(length)).ok();
        let length = length.and_then(|length| length.checked_sub(4));
        let length = length.filter(|length| *length < MAX_MESSAGE);
        let mut body = vec![0; length.ok_or_else(|| io::Error::other("no length"))?];
        self.0.read_exact(&mut body)?;
        Ok((kind, body))
    }
}

/// The first column of a row, which is a number: two bytes count the columns, four are the length of the first.
fn column(body: &[u8]) -> Option<u64> {
    std::str::from_utf8(body.get(6..)?).ok()?.parse().ok()
}
