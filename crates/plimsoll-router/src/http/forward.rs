//! One request: finds its route, proxies it to an upstream, and counts the response.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, LOCATION};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Version};

use super::acme::{self, AcmeAnswer};
use super::error_page::{ErrorPage, accepted};
use super::path::DotSegments;
use super::proxy::{ProxiedRequest, ProxiedResponse};
use super::response_body::{ActiveRequest, ResponseBody, ResponseResources};
use super::{ClientConnection, HttpListenerKind, head, upgrade};
use crate::table::{RouteEntry, RouteTls, bare_host};

/// Answers one request, with an error page if no upstream does.
pub(super) async fn answer(
    client: Arc<ClientConnection>,
    mut request: Request<Incoming>,
) -> Response<ResponseBody> {
    let busy = ActiveRequest::new(client);
    let began = Instant::now();
    let accept = accepted(request.headers());
    let (route, response) = match find(&busy.client, &mut request) {
        Err(problem) => return problem.answer(accept.as_ref(), busy),
        Ok(RouteMatch::RedirectedToHttps(address)) => return redirect(&address, busy),
        Ok(RouteMatch::AcmeProof(proof)) => return prove(proof, busy),
        Ok(RouteMatch::Proxied(route)) => {
            let proxied = ProxiedRequest::new(&busy.client, &route, request).run().await;
            (route, proxied)
        }
    };
    let response = match response {
        Ok(proxied) => respond(&route, proxied, began, busy),
        Err(problem) => {
            route.meter.unserved.add(1);
            problem.answer(accept.as_ref(), busy)
        }
    };
    route.meter.classes.note(response.status().as_u16());
    route.meter.latency.note(began.elapsed());
    response
}

/// Where a request is routed.
enum RouteMatch {
    Proxied(Arc<RouteEntry>),
    /// The same URL with HTTPS.
    RedirectedToHttps(String),
    /// What an authority asks for, to see that the host is ours.
    AcmeProof(String),
}

fn find(
    client: &ClientConnection,
    request: &mut Request<Incoming>,
) -> Result<RouteMatch, ErrorPage> {
    if request.method() == Method::CONNECT {
        return Err(ErrorPage::MethodNotSupported { method: request.method().to_string() });
    }
    if let Err(DotSegments) = head::resolve_path(request.uri_mut()) {
        return Err(ErrorPage::DotSegments { path: request.uri().path().to_owned() });
    }
    let authority = authority(request)?;
    let (host, path) = (bare_host(authority), request.uri().path());
    let no_route = || ErrorPage::NoRoute { host: host.to_owned(), path: path.to_owned() };
    let table = client.core.table.load();
    if matches!(client.listener, HttpListenerKind::Plain { .. }) {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match acme::answer(&table, host, path) {
            AcmeAnswer::Proof(proof) if is_read => return Ok(RouteMatch::AcmeProof(proof)),
            AcmeAnswer::Proof(_) | AcmeAnswer::Unknown => return Err(no_route()),
            AcmeAnswer::NotOurs => {}
        }
    }
    let route = table.route(host, path).ok_or_else(no_route)?;
    match (client.listener, route.spec.tls) {
        (HttpListenerKind::Plain { .. }, RouteTls::Off)
        | (HttpListenerKind::Tls, RouteTls::Internal | RouteTls::Files | RouteTls::Auto) => {
            Ok(RouteMatch::Proxied(Arc::clone(route)))
        }
        (HttpListenerKind::Plain { https_port: Some(port) }, _) => {
            let port = if port == 443 { String::new() } else { format!(":{port}") };
            let rest = request.uri().path_and_query().map_or("/", |rest| rest.as_str());
            Ok(RouteMatch::RedirectedToHttps(format!("https://{host}{port}{rest}")))
        }
        (HttpListenerKind::Plain { https_port: None }, _)
        | (HttpListenerKind::Tls, RouteTls::Off) => Err(no_route()),
    }
}

/// The host of the request. Two of them are refused: the router and the upstream might each go by another.
fn authority(request: &Request<Incoming>) -> Result<&str, ErrorPage> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (request.uri().authority(), hosts.next(), hosts.next()) {
        (Some(authority), _, _) => Some(authority.as_str()),
        (None, Some(host), None) => host.to_str().ok(),
        (None, None, _) if request.version() == Version::HTTP_10 => Some(""),
        _ => None,
    };
    // Without an authority, what an HTTP/2 request calls its host becomes one.
    let is_lost = |host: &str| {
        let has_authority = request.uri().authority().is_some();
        request.version() == Version::HTTP_2 && !has_authority && host.parse::<Authority>().is_err()
    };
    host.filter(|host| head::is_host(host) && !is_lost(host)).ok_or(ErrorPage::NoHost)
}

fn redirect(address: &str, busy: ActiveRequest) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::page(Bytes::new(), busy));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    if let Ok(address) = HeaderValue::from_str(address) {
        response.headers_mut().insert(LOCATION, address);
    }
    response
}

fn prove(proof: String, busy: ActiveRequest) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::page(Bytes::from(proof), busy));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The upstream's response as the client gets it.
fn respond(
    route: &RouteEntry,
    proxied: ProxiedResponse,
    began: Instant,
    busy: ActiveRequest,
) -> Response<ResponseBody> {
    let ProxiedResponse { mut response, first, in_flight, link, source, near } = proxied;
    let meter = &in_flight.upstream().meter;
    meter.classes.note(response.status().as_u16());
    meter.latency.note(began.elapsed());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some((near, protocol)) = near
    {
        route.meter.tunnels.add(1);
        let far = hyper::upgrade::on(&mut response);
        let protocol = response.headers().get(hyper::header::UPGRADE).cloned().unwrap_or(protocol);
        upgrade::carry(&busy.client, near, far, in_flight);
        let (mut parts, _) = response.into_parts();
        head::strip_hop_by_hop(&mut parts.headers);
        head::ask_upgrade(&mut parts.headers, protocol);
        return Response::from_parts(parts, ResponseBody::page(Bytes::new(), busy));
    }
    let (mut parts, body) = response.into_parts();
    head::strip_hop_by_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    let held = ResponseResources { in_flight, link, source };
    Response::from_parts(parts, ResponseBody::streamed(first, body, held, busy))
}
