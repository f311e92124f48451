//! The API: JSON over HTTP on a Unix socket, and on TCP for those who have the token. Every path is a handler below, every
//! answer a word of [`view`](crate::view), and whatever is not 2xx a [`Problem`](crate::view::Problem).
//!
//! Who may connect is settled in `socket` and `token`, how connections live and end in `connections`. What a request does
//! is settled in [`operations`](crate::operations).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::Router;
use plimsoll_router::Sockets;
use tokio::sync::{Mutex, watch};

use crate::cell::Cell;
use crate::peer::Client;
use crate::routing::Routing;

mod answer;
mod backup;
mod cluster;
mod connections;
mod context;
mod exec;
mod extract;
mod follow;
mod forward;
mod fresh;
mod health;
mod logs;
mod metrics;
mod peer;
mod permit;
mod places;
mod read;
mod revocation;
mod routed;
mod router;
mod socket;
mod token;
mod watching;
mod write;

pub use socket::BindError;
pub use token::token_file;

use connections::Doors;
use context::Context;

/// The most bytes a request may have.
pub const MAX_BODY: usize = 16 << 20;

/// Where the API listens.
#[derive(Debug, Clone)]
pub struct Listen {
    pub socket: PathBuf,
    pub tcp: Option<SocketAddr>,
    /// The token for TCP and files on their way out are kept here.
    pub data_dir: PathBuf,
    /// Those that are open already are among these.
    pub sockets: Sockets,
}

/// An API that listens already and answers once it runs.
#[derive(Debug)]
pub struct Server {
    context: Arc<Context>,
    ending: watch::Sender<bool>,
    doors: Doors,
}

impl Server {
    /// Takes the socket and the port. Nobody is answered before [`run`](Self::run).
    pub async fn bind(cell: Cell, listen: &Listen) -> Result<Self, BindError> {
        let doors = Doors::open(listen).await?;
        backup::clear(&listen.data_dir);
        let (ending, has_ended) = watch::channel(false);
        let data_dir = listen.data_dir.clone();
        let context = Arc::new(Context {
            cell,
            data_dir,
            client: OnceLock::new(),
            routing: OnceLock::new(),
            hashed: Mutex::new(None),
            ending: has_ended,
        });
        Ok(Self { context, ending, doors })
    }

    /// From now on what is another node's to answer is passed on to it.
    pub fn reach(&self, client: Client) {
        // There is one way to other nodes; a second would be the same.
        let _ = self.context.client.set(client);
    }

    /// From now on what this node's router does can be asked.
    pub fn beside(&self, routing: Arc<Routing>) {
        let _ = self.context.routing.set(routing);
    }

    /// The same for other nodes of the cell, to be served on the peer port.
    pub fn for_peers(&self) -> Router {
        router::for_peers(Arc::clone(&self.context))
    }

    /// The port on TCP, where it was left to the system to choose.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.doors.tcp_address()
    }

    /// Answers until `shutdown` is done. Then nobody new is let in, short requests are finished, and streams are cut.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { context, ending, doors } = self;
        let router = router::router(Arc::clone(&context));
        let serving = doors.serve(router, context.cell.clone(), context.ending.clone());
        let ended = async {
            shutdown.await;
            ending.send_replace(true);
        };
        tokio::join!(serving, ended);
    }
}

/// Binds and runs in one.
pub async fn serve(
    cell: Cell,
    listen: &Listen,
    shutdown: impl Future<Output = ()>,
) -> Result<(), BindError> {
    Server::bind(cell, listen).await?.run(shutdown).await;
    Ok(())
}
