//! Why a lab could not be made, or could not do what was asked.

use std::io;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    #[error("{count} hosts are too many; the limit is {max}")]
    TooMany { count: usize, max: usize },
    #[error("there is no host {name}; there are {known}")]
    NoSuchHost { name: String, known: String },
    #[error("cannot {what} for {host}: {source}")]
    Host { what: &'static str, host: String, source: io::Error },
    #[error("cannot start the wire: {0}")]
    Wire(#[source] io::Error),
    #[error("{host} is switched off")]
    Off { host: String },
    #[error("the lab cannot {verb} engine {name}: {said}")]
    Engine { verb: &'static str, name: String, said: String },
    #[error("cannot start threads to watch with: {0}")]
    Threads(#[source] io::Error),
    #[error("cannot watch the engine at {socket}: {source}")]
    Watch { socket: String, source: bollard::errors::Error },
}
