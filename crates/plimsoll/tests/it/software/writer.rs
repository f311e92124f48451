//! Clients that write rows all the time, at whichever node answers, and keep account of those that were acknowledged. Of a
//! row whose answer did not come they know nothing: it may be there or not.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use plimsoll_lab::within;

use crate::harness::{Cell, PATIENCE};

/// Between two rows of one client: often enough to meet every moment, and the machine is left to the others.
const PACE: Duration = Duration::from_millis(5);

/// Longer than an answer takes on a busy machine, and than a database takes to end.
const ANSWER: Duration = Duration::from_secs(5);

/// At which each client has been through a disturbance and written on.
const MORE: u64 = 40;

/// Software that keeps rows.
pub(super) trait RowStore: Sized + Send {
    const PORT: u16;
    const NAME: &str;

    /// A connection to whatever is published at the port of the node whose network this is called in.
    fn open() -> io::Result<Self>;

    /// Has a place for rows, once and for all: if it goes missing, so have the rows.
    fn prepare(&mut self) -> io::Result<()>;

    /// Returns when the software says that it has the row for good.
    fn write(&mut self, row: u64) -> io::Result<()>;

    fn rows(&mut self) -> io::Result<BTreeSet<u64>>;
}

/// To a published port, as a client on the node.
pub(super) fn connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    Ok(stream)
}

/// One client of one software, and what it was told. It ends when this does.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    read: fn(&File) -> io::Result<BTreeSet<u64>>,
    name: &'static str,
}

struct Shared {
    /// Of the nodes.
    networks: Vec<File>,
    next: AtomicU64,
    acknowledged: Mutex<BTreeSet<u64>>,
    /// What the last attempt came to that came to nothing.
    trouble: Mutex<String>,
    is_over: AtomicBool,
}

impl Writer {
    /// Writes from now on, and waits for the first rows.
    #[track_caller]
    pub(super) fn start<S: RowStore>(cell: &Cell) -> Self {
        let hosts = cell.lab().hosts().iter();
        let networks: Vec<File> = hosts.map(|host| File::open(host.network()).unwrap()).collect();
        cell.until("there is a place for rows", |_| {
            within(&networks[0], || S::open()?.prepare()).unwrap().is_ok()
        });
        let shared = Arc::new(Shared {
            networks,
            next: AtomicU64::new(0),
            acknowledged: Mutex::default(),
            trouble: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let writing = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || writing.live::<S>()));
        let writer = Self { shared, thread, read: read::<S>, name: S::NAME };
        writer.goes_on(cell, "it was started");
        writer
    }

    fn acknowledged(&self) -> BTreeSet<u64> {
        self.shared.acknowledged.lock().unwrap().clone()
    }

    /// Waits until more rows are acknowledged.
    #[track_caller]
    pub(super) fn goes_on(&self, cell: &Cell, what: &str) {
        let count = || self.shared.acknowledged.lock().unwrap().len() as u64;
        let (target, begun) = (count() + MORE, Instant::now());
        while count() < target {
            let trouble = || self.shared.trouble.lock().unwrap().clone();
            let is_late = begun.elapsed() > PATIENCE;
            assert!(!is_late, "{}, after {what}: {}\n{}", self.name, trouble(), cell.diagnosis());
            sleep(PACE);
        }
    }

    /// Every row that was acknowledged is there, and the client goes on to write.
    #[track_caller]
    pub(super) fn misses_nothing(&self, cell: &Cell, what: &str) {
        self.goes_on(cell, what);
        // What is written meanwhile may be there or not.
        let told = self.acknowledged();
        let mut found = BTreeSet::new();
        cell.until("all rows are read", |_| {
            let networks = &mut self.shared.networks.iter();
            let read = networks.find_map(|network| (self.read)(network).ok());
            read.map(|rows| found = rows).is_some()
        });
        let missing: Vec<&u64> = told.difference(&found).collect();
        let (name, all) = (self.name, told.len());
        assert!(
            missing.is_empty(),
            "{name}, after {what}: {} of {all} acknowledged rows are missing, from {:?} to {:?}\n{}",
            missing.len(),
            missing.first(),
            missing.last(),
            cell.diagnosis()
        );
        println!("{name}, after {what}: {all} acknowledged rows, none missing");
    }
}

fn read<S: RowStore>(network: &File) -> io::Result<BTreeSet<u64>> {
    within(network, || S::open()?.rows())?
}

impl Shared {
    fn live<S: RowStore>(&self) {
        for network in self.networks.iter().cycle() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let opened = within(network, S::open).map_err(io::Error::from).flatten();
            if let Err(error) = opened.and_then(|client| self.write(client)) {
                *self.trouble.lock().unwrap() = error.to_string();
                sleep(PACE * 10);
            }
        }
    }

    /// One row after another, until one is not acknowledged.
    fn write(&self, mut client: impl RowStore) -> io::Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            let row = self.next.fetch_add(1, Ordering::Relaxed);
            client.write(row)?;
            self.acknowledged.lock().unwrap().insert(row);
            sleep(PACE);
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
