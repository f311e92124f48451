//! `plimsoll dashboard`: the dashboard in a browser on this machine, without a token to type or a certificate to trust. It listens on
//! loopback and passes requests on the way every command goes: to the socket, or to the cell of a context, as whoever runs it.
//!
//! Others on this machine can reach a port of loopback, and so can pages of other sites in a browser. Each request must therefore
//! carry a secret of this process, which is in the address that it prints, and name this port as its host.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use plimsoll_api::client::Client;
use plimsoll_model::access::Digest;
use plimsoll_peer::pki::OperatorToken;
use tokio::net::TcpListener;

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::data;

const EXAMPLES: &str = "\
Examples:
  plimsoll dashboard                         print an address to open in a browser on this machine
  plimsoll dashboard --port 8080
  plimsoll --context prod dashboard          the cell of a context

A node that listens on TCP (`plimsoll up --listen`) serves the same page at its own address, with a login.";

/// What a page may send at once: a request for what would come of a file.
const MAX_BODY: usize = 16 << 20;

/// What of an answer's head a browser needs.
const PASSED: [HeaderName; 5] =
    [CONTENT_TYPE, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS, REFERRER_POLICY, CACHE_CONTROL];

const EVENTS: &str = "text/event-stream";
const HTML: &str = "text/html";
const JSON: &str = "application/json";

/// Open the dashboard of a cell in a browser on this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Port on 127.0.0.1; any free one by default
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

struct Proxy {
    client: Client,
    address: SocketAddr,
    secret: Digest,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.host.client()?;
    let secret = OperatorToken::new().map_err(|error| CliError::failed(error.to_string()))?;
    live::block_on(async {
        // Whoever is not there is better known before a browser is.
        client.who_am_i().await?;
        let asked = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.port);
        let cannot = |error: std::io::Error| {
            CliError::failed(format!("cannot listen on {asked}: {error}"))
                .hint("try another --port")
        };
        let listener = TcpListener::bind(asked).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let proxy = Arc::new(Proxy { client, address, secret: secret.hash() });
        data(&format!("http://{address}/#token={secret}\n"))?;
        loop {
            let (stream, _) = listener.accept().await.map_err(cannot)?;
            let proxy = Arc::clone(&proxy);
            let answer = service_fn(move |request| {
                let proxy = Arc::clone(&proxy);
                async move { Ok::<_, Infallible>(proxy.answer(request).await) }
            });
            tokio::spawn(async move {
                // A browser that goes away is its own affair.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    })
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if !self.is_meant(request.headers()) {
            return said(
                StatusCode::MISDIRECTED_REQUEST,
                "this is the dashboard of another address",
            );
        }
        let path = request.uri().path();
        let is_page = path == "/" || path.starts_with("/dashboard/");
        if !is_page && !self.is_trusted(request.headers()) {
            return said(
                StatusCode::UNAUTHORIZED,
                "open the address that `plimsoll dashboard` printed",
            );
        }
        let takes = |kind| takes(request.headers(), kind);
        let accept = if takes(EVENTS) {
            EVENTS
        } else if path == "/" {
            HTML
        } else {
            JSON
        };
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let Ok(body) = Limited::new(request.into_body(), MAX_BODY).collect().await else {
            return said(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large");
        };
        let body = body.to_bytes().to_vec();
        let answer = match self.client.pass(method, path, accept, body).await {
            Ok(answer) => answer,
            Err(error) => return said(StatusCode::BAD_GATEWAY, &error.to_string()),
        };
        let mut response = Response::builder().status(answer.status);
        for name in PASSED {
            if let Some(value) = answer.headers().get(&name) {
                response = response.header(name, value);
            }
        }
        let pieces = unfold(answer, |mut answer| async {
            let piece = answer.piece().await.ok().flatten()?;
            Some((Ok(Frame::data(piece)), answer))
        });
        response
            .body(StreamBody::new(pieces).boxed_unsync())
            .unwrap_or_else(|_| said(StatusCode::BAD_GATEWAY, "an answer that cannot be passed on"))
    }

    /// A page of another site that has its name point here names itself.
    fn is_meant(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let port = self.address.port();
        host == self.address.to_string() || host == format!("localhost:{port}")
    }

    fn is_trusted(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|given| given.to_str().ok());
        let given = given.and_then(|given| given.strip_prefix("Bearer ")?.parse().ok());
        let given: Option<OperatorToken> = given;
        // By their hashes: how long that takes says nothing of the secret.
        given.is_some_and(|given| given.hash() == self.secret)
    }
}

fn takes(headers: &HeaderMap, kind: &str) -> bool {
    headers.get(ACCEPT).and_then(|it| it.to_str().ok()).is_some_and(|it| it.contains(kind))
}

/// A problem in the API's own form, so that the page shows it.
fn said(status: StatusCode, message: &str) -> Response<Body> {
    let body = serde_json::json!({ "code": "unknown", "message": message }).to_string();
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}
