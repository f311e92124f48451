//! Calls other nodes, each over one connection that all calls to it share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, StatusCode, Uri, Version};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::body::{Exchange, Outgoing, QUEUED, Receiver, Sender, Unread, collect};
use super::dial::DialOptions;
use super::duplex::{AHEAD, Outward};
use super::error::Error;
use super::hops::{strip_for_forwarding, strip_hops};
use super::link::Link;
use super::{NOMINAL, Target};
use crate::pki::Credentials;

/// The most that an answer may have which is read whole.
const MAX_ANSWER: usize = 64 << 20;

/// A connection that nobody has used for this long is closed.
const IDLE: Duration = Duration::from_mins(5);

/// Idle connections are looked for when there are this many more than the last time.
const SWEEP_EVERY: usize = 16;

/// An answer, whatever its status.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: StatusCode,
    pub body: Bytes,
    to: Arc<str>,
}

impl Response {
    pub(super) fn new(to: &Arc<str>, status: StatusCode, body: Bytes) -> Self {
        Self { status, body, to: Arc::clone(to) }
    }

    /// The body of a good answer; one of another status is an error.
    pub fn good(self) -> Result<Bytes, Error> {
        let Self { status, body, to } = self;
        if status.is_success() { Ok(body) } else { Err(Error::Answered { to, status, body }) }
    }
}

/// Calls other nodes. Clones share their connections.
#[derive(Debug, Clone)]
pub struct PeerClient {
    shared: Arc<PeerClientInner>,
}

#[derive(Debug)]
struct PeerClientInner {
    credentials: Credentials,
    options: DialOptions,
    links: Mutex<Links>,
}

#[derive(Debug, Default)]
struct Links {
    by_target: HashMap<Target, Arc<Link>>,
    sweep_at: usize,
}

impl PeerClient {
    pub fn new(credentials: Credentials) -> Self {
        Self::with(credentials, DialOptions::default())
    }

    pub fn with(credentials: Credentials, options: DialOptions) -> Self {
        let links = Mutex::new(Links { by_target: HashMap::new(), sweep_at: SWEEP_EVERY });
        Self { shared: Arc::new(PeerClientInner { credentials, options, links }) }
    }

    /// What it shows, and what it judges others by.
    pub fn credentials(&self) -> &Credentials {
        &self.shared.credentials
    }

    /// The same with connections of its own.
    pub fn apart(&self) -> Self {
        Self::with(self.shared.credentials.clone(), self.shared.options)
    }

    /// The same with connections of its own that carry tunnels. Clients wait at the other end of them, so that a node that
    /// falls silent is asked sooner whether it is there; it has as much time to answer as any.
    pub fn for_tunnels(&self) -> Self {
        Self::with(self.shared.credentials.clone(), self.shared.options.for_tunnels())
    }

    /// Asks, and reads the answer whole. Giving up, also by dropping the call, frees what it held on both sides.
    pub async fn call(
        &self,
        to: &Target,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<Response, Error> {
        let link = self.link(to);
        call(&link, request(method, uri(path)?, Outgoing::whole(body)), within).await
    }

    /// Opens a stream in both directions. `within` is for the other side to begin its answer; then it may take its
    /// time.
    pub async fn stream(
        &self,
        to: &Target,
        method: Method,
        path: &str,
        headers: HeaderMap,
        within: Duration,
    ) -> Result<Exchange, Error> {
        let link = self.link(to);
        let (sender, pieces) = mpsc::channel(QUEUED);
        let (listening, unheard) = oneshot::channel();
        let mut request = request(method, uri(path)?, Outgoing::Fed(pieces, Some(unheard)));
        *request.headers_mut() = headers;
        let (head, body) = begin(&link, request, within).await?.into_parts();
        let receiver = Receiver { to: Arc::clone(&link.to), body, _listening: listening };
        Ok(Exchange {
            status: head.status,
            headers: head.headers,
            sender: Sender(sender),
            receiver,
        })
    }

    /// The same as bytes in both directions, with the status of the answer.
    pub async fn tunnel(
        &self,
        to: &Target,
        method: Method,
        path: &str,
        headers: HeaderMap,
        within: Duration,
    ) -> Result<(StatusCode, Outward), Error> {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let (listening, unheard) = oneshot::channel();
        let mut request = request(method, uri(path)?, Outgoing::Fed(pieces, Some(unheard)));
        *request.headers_mut() = headers;
        let (head, body) = begin(&self.link(to), request, within).await?.into_parts();
        Ok((head.status, Outward::asked(sender, listening, body)))
    }

    /// Passes somebody else's request on, and the answer back, both as they come. What concerns only the connection it
    /// came by is left out; all else, the body included, stays as it is.
    pub async fn forward(
        &self,
        to: &Target,
        request: Request<Body>,
        within: Duration,
    ) -> Result<hyper::Response<Body>, Error> {
        let link = self.link(to);
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        head.uri = uri(path)?;
        head.version = Version::HTTP_2;
        head.extensions.clear();
        strip_for_forwarding(&mut head.headers);
        let request = Request::from_parts(head, Outgoing::Passed(body));
        let mut response = begin(&link, request, within).await?;
        *response.version_mut() = Version::default();
        strip_hops(response.headers_mut());
        Ok(response.map(Body::new))
    }

    /// The connection to this node at this address, open or not.
    pub(super) fn link(&self, to: &Target) -> Arc<Link> {
        let PeerClientInner { credentials, options, links } = &*self.shared;
        let mut links = links.lock().expect("no holder of the links panics");
        if let Some(link) = links.by_target.get(to) {
            return Arc::clone(link);
        }
        if links.by_target.len() >= links.sweep_at {
            links.by_target.retain(|_, link| !link.is_idle_for(IDLE));
            links.sweep_at = links.by_target.len() + SWEEP_EVERY;
        }
        let link = Arc::new(Link::new(to, credentials, *options));
        links.by_target.insert(to.clone(), Arc::clone(&link));
        link
    }
}

pub(super) fn request(method: Method, uri: Uri, body: Outgoing) -> Request<Outgoing> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    request
}

pub(super) fn uri(path: &str) -> Result<Uri, Error> {
    Uri::builder()
        .scheme("https")
        .authority(NOMINAL)
        .path_and_query(path)
        .build()
        .map_err(|_| Error::Path { path: path.to_owned() })
}

pub(super) async fn call(
    link: &Arc<Link>,
    request: Request<Outgoing>,
    within: Duration,
) -> Result<Response, Error> {
    let whole = async {
        let response = send(link, request).await?;
        whole(&link.to, response).await
    };
    let late = Error::TimedOut { to: Arc::clone(&link.to), within };
    timeout(within, whole).await.unwrap_or(Err(late))
}

pub(super) async fn whole(
    to: &Arc<str>,
    response: hyper::Response<Incoming>,
) -> Result<Response, Error> {
    let status = response.status();
    let body = collect(response.into_body(), MAX_ANSWER).await;
    let body = body.map_err(|unread| match unread {
        Unread::TooLong => Error::TooLong { to: Arc::clone(to), limit: MAX_ANSWER },
        Unread::Broken(error) => Error::closed(to, error),
    })?;
    Ok(Response::new(to, status, body))
}

async fn begin(
    link: &Arc<Link>,
    request: Request<Outgoing>,
    within: Duration,
) -> Result<hyper::Response<Incoming>, Error> {
    let late = Error::TimedOut { to: Arc::clone(&link.to), within };
    timeout(within, send(link, request)).await.unwrap_or(Err(late))
}

/// Sends a request and waits for the head of its answer.
async fn send(
    link: &Arc<Link>,
    request: Request<Outgoing>,
) -> Result<hyper::Response<Incoming>, Error> {
    let mut connection = link.ready().await?;
    let mut failed = match connection.try_send_request(request).await {
        Ok(response) => return Ok(response),
        Err(failed) => failed,
    };
    // A request that comes back was never sent: the connection had closed unnoticed, by a restart for one. Anything
    // else may have been carried out, and to ask again is for whoever knows what it means.
    let Some(request) = failed.take_message() else {
        return Err(Error::closed(&link.to, failed.into_error()));
    };
    let mut connection = link.ready().await?;
    connection.send_request(request).await.map_err(|error| Error::closed(&link.to, error))
}
