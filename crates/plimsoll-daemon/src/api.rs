//! The API: JSON over HTTP on a Unix socket, and under TLS on TCP for those who have a token. Every path is a handler below, every
//! answer a word of [`view`](plimsoll_api::view), and whatever is not 2xx a [`Problem`](plimsoll_api::view::Problem).
//!
//! Who may connect is settled in `socket` and `token`, how connections live and end in `connections`. What a request does
//! is settled in [`operations`](crate::operations).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::Router;
use plimsoll_router::Sockets;
use tokio::sync::{Mutex, watch};

use crate::context::NodeContext;
use crate::routing::Routing;
use crate::shared::Shared;
use plimsoll_peer::PeerClient;
use plimsoll_peer::pki::Credentials;

mod answer;
mod apply_body;
mod auth;
mod backup;
mod cell;
mod connections;
mod context;
mod dashboard;
mod door;
mod event_metrics;
mod examples;
mod exec;
mod extract;
mod fan_out;
mod files;
mod fleet;
mod follow;
mod forward;
mod health;
mod local_users;
mod logs;
mod metrics;
mod operators;
mod optimize;
mod read;
mod registries;
mod requester;
mod reschedule;
mod revocation;
mod rotation;
mod router;
mod router_metrics;
mod scope;
mod socket;
mod source_shares;
mod staleness;
mod statuses;
mod token;
mod volume_holds;
mod volumes;
mod watching;
mod write;

pub use socket::BindError;
pub use token::token_file;

use connections::ApiListeners;
use context::Context;

/// The most bytes a request may have.
pub const MAX_BODY: usize = 16 << 20;

/// Where the API listens.
#[derive(Debug, Clone)]
pub struct Listen {
    pub socket: PathBuf,
    /// Who may use the socket beside root and the daemon's own user: a group of this host, by name or number.
    pub group: Option<String>,
    pub tcp: Option<TcpListen>,
    /// The token for TCP and files on their way out are kept here.
    pub data_dir: PathBuf,
    /// Those that are open already are among these.
    pub sockets: Sockets,
}

/// Where it listens on TCP, and as which node: under TLS, with the certificate that the node shows others.
#[derive(Debug, Clone)]
pub struct TcpListen {
    pub address: SocketAddr,
    pub credentials: Credentials,
}

/// An API that listens already and answers once it runs.
#[derive(Debug)]
pub struct ApiServer {
    context: Arc<Context>,
    ending: watch::Sender<bool>,
    listeners: ApiListeners,
}

impl ApiServer {
    /// Takes the socket and the port. Nobody is answered before [`run`](Self::run).
    pub async fn bind(cell: NodeContext, listen: &Listen) -> Result<Self, BindError> {
        let listeners = ApiListeners::open(listen).await?;
        backup::clear(&listen.data_dir);
        let (ending, has_ended) = watch::channel(false);
        let data_dir = listen.data_dir.clone();
        let context = Arc::new(Context {
            cell,
            data_dir,
            client: OnceLock::new(),
            routing: OnceLock::new(),
            token_uses: Shared::default(),
            event_counts: Shared::default(),
            hashed: Mutex::new(None),
            notice: Shared::default(),
            ending: has_ended,
        });
        Ok(Self { context, ending, listeners })
    }

    /// From now on what is another node's to answer is passed on to it.
    pub fn reach(&self, client: PeerClient) {
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
        self.listeners.tcp_address()
    }

    /// Answers until `shutdown` is done. Then nobody new is let in, short requests are finished, and streams are cut.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { context, ending, listeners } = self;
        let router = router::router(Arc::clone(&context));
        let serving = listeners.serve(router, context.cell.clone(), context.ending.clone());
        let ended = async {
            shutdown.await;
            ending.send_replace(true);
        };
        tokio::join!(serving, ended);
    }
}

/// Binds and runs in one.
pub async fn serve(
    cell: NodeContext,
    listen: &Listen,
    shutdown: impl Future<Output = ()>,
) -> Result<(), BindError> {
    ApiServer::bind(cell, listen).await?.run(shutdown).await;
    Ok(())
}
