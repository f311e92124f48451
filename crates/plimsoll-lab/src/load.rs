//! Steady HTTP requests from many clients at once while something is done, and what became of every one of them.
//!
//! On plain sockets, and nothing is tried again: what is refused, reset, cut short or late is a request that failed. A
//! client asks again as soon as it was answered, so there are always as many requests under way as there are clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::host::Host;

mod client;
mod report;

pub use report::{LoadReport, RequestFailure};

/// What is not answered by then has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a client asks for.
#[derive(Debug, Clone)]
pub struct Aim {
    pub at: SocketAddr,
    /// The name of the site, as the header has it.
    pub host: String,
    pub manner: Manner,
}

/// What becomes of a connection after its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It was for one request.
    OneShot,
    /// It is used for the next, unless the other side said that it is for one.
    KeepAlive,
}

/// Somebody who asks.
#[derive(Debug, Clone)]
pub struct LoadClient<'a> {
    /// From this host; none: from wherever we are.
    pub from: Option<&'a Host>,
    pub aim: Aim,
}

/// What is known while it goes on.
#[derive(Debug)]
pub struct LoadProgress {
    pub begun: Instant,
    is_over: AtomicBool,
    answered: AtomicUsize,
    failed: AtomicUsize,
    enough: usize,
}

impl LoadProgress {
    pub fn answered(&self) -> usize {
        self.answered.load(Relaxed)
    }

    pub fn failed(&self) -> usize {
        self.failed.load(Relaxed)
    }

    /// It is done, and enough were answered; or it is done and one was not, and no more are needed to know that.
    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed) && (self.answered() >= self.enough || self.failed() > 0)
    }
}

/// Has the clients ask while something is done, and go on until so many requests were answered.
pub fn asked_while<T>(
    clients: &[LoadClient<'_>],
    enough: usize,
    act: impl FnOnce(&LoadProgress) -> T,
) -> Result<(T, LoadReport), Error> {
    let progress = LoadProgress {
        begun: Instant::now(),
        is_over: AtomicBool::new(false),
        answered: AtomicUsize::new(0),
        failed: AtomicUsize::new(0),
        enough,
    };
    let outcome = Mutex::new(LoadReport::default());
    let mut by_host: BTreeMap<Option<&str>, Vec<&LoadClient<'_>>> = BTreeMap::new();
    for client in clients {
        by_host.entry(client.from.map(Host::name)).or_default().push(client);
    }
    let ask = |together: Vec<&LoadClient<'_>>| {
        let aims: Vec<Aim> = together.iter().map(|client| client.aim.clone()).collect();
        // A thread is on one host, so a host's clients share one.
        let asked = match together[0].from {
            Some(host) => host.within(|| client::all(&aims, &progress))?,
            None => client::all(&aims, &progress),
        };
        outcome.lock().unwrap_or_else(PoisonError::into_inner).add(asked);
        Ok(())
    };
    let ask = &ask;
    let done = thread::scope(|scope| {
        let asking: Vec<_> =
            by_host.into_values().map(|together| scope.spawn(move || ask(together))).collect();
        // Clients must end also where this panics.
        let over = Over(&progress);
        let done = act(&progress);
        let meanwhile = progress.answered();
        drop(over);
        for one in asking {
            one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok::<_, Error>((done, meanwhile))
    });
    let (done, meanwhile) = done?;
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.meanwhile = meanwhile;
    outcome.settle();
    Ok((done, outcome))
}

/// Says that it is over when it is dropped.
struct Over<'a>(&'a LoadProgress);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}
