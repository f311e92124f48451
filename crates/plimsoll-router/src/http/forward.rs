//! One request: finds its route, has an upstream answer it, and counts what became of it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue, LOCATION};
use hyper::{Method, Request, Response, StatusCode, Version};

use super::answer::{Answer, Busy, Held};
use super::page::{Problem, accepted};
use super::passage::{Passage, Passed};
use super::{Door, Guest, head, upgrade};
use crate::table::{Route, Tls, bare_host};

/// Answers one request, whatever becomes of it.
pub(super) async fn answer(guest: Arc<Guest>, request: Request<Incoming>) -> Response<Answer> {
    let busy = Busy::new(guest);
    let began = Instant::now();
    let accept = accepted(request.headers());
    let (route, response) = match find(&busy.0, &request) {
        Err(problem) => return problem.answer(accept.as_ref(), busy),
        Ok(Found::Elsewhere(address)) => return redirect(&address, busy),
        Ok(Found::Here(route)) => {
            let passed = Passage::new(&busy.0, &route, request).run().await;
            (route, passed)
        }
    };
    let response = match response {
        Ok(passed) => pass(&route, passed, began, busy),
        Err(problem) => {
            route.meter.unserved.add(1);
            problem.answer(accept.as_ref(), busy)
        }
    };
    route.meter.classes.note(response.status().as_u16());
    route.meter.latency.note(began.elapsed());
    response
}

/// Where a request belongs.
enum Found {
    Here(Arc<Route>),
    /// The same with TLS.
    Elsewhere(String),
}

fn find(guest: &Guest, request: &Request<Incoming>) -> Result<Found, Problem> {
    if request.method() == Method::CONNECT {
        return Err(Problem::NotHere { method: request.method().to_string() });
    }
    let authority = authority(request)?;
    let (host, path) = (bare_host(authority), request.uri().path());
    let no_route = || Problem::NoRoute { host: host.to_owned(), path: path.to_owned() };
    let table = guest.core.table.load();
    let route = table.route(host, path).ok_or_else(no_route)?;
    match (guest.door, route.spec.tls) {
        (Door::Plain { .. }, Tls::Off) | (Door::Secure, Tls::Internal | Tls::Files) => {
            Ok(Found::Here(Arc::clone(route)))
        }
        (Door::Plain { secure_port: Some(port) }, _) => {
            let port = if port == 443 { String::new() } else { format!(":{port}") };
            let rest = request.uri().path_and_query().map_or("/", |rest| rest.as_str());
            Ok(Found::Elsewhere(format!("https://{host}{port}{rest}")))
        }
        (Door::Plain { secure_port: None }, _) | (Door::Secure, Tls::Off) => Err(no_route()),
    }
}

/// The host that is asked for. Two of them are none: one of those who read the request would believe the other.
fn authority(request: &Request<Incoming>) -> Result<&str, Problem> {
    if let Some(authority) = request.uri().authority() {
        return Ok(authority.as_str());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().map_err(|_| Problem::NoHost),
        (None, _) if request.version() == Version::HTTP_10 => Ok(""),
        _ => Err(Problem::NoHost),
    }
}

fn redirect(address: &str, busy: Busy) -> Response<Answer> {
    let mut response = Response::new(Answer::page(Bytes::new(), busy));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    if let Ok(address) = HeaderValue::from_str(address) {
        response.headers_mut().insert(LOCATION, address);
    }
    response
}

/// Gives the client what the upstream answered.
fn pass(route: &Route, passed: Passed, began: Instant, busy: Busy) -> Response<Answer> {
    let Passed { mut response, first, in_flight, link, source, near } = passed;
    let meter = &in_flight.upstream().meter;
    meter.classes.note(response.status().as_u16());
    meter.latency.note(began.elapsed());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some((near, protocol)) = near
    {
        route.meter.tunnels.add(1);
        let far = hyper::upgrade::on(&mut response);
        let protocol = response.headers().get(hyper::header::UPGRADE).cloned().unwrap_or(protocol);
        upgrade::carry(&busy.0, near, far, in_flight);
        let (mut parts, _) = response.into_parts();
        head::strip_hops(&mut parts.headers);
        head::ask_upgrade(&mut parts.headers, protocol);
        return Response::from_parts(parts, Answer::page(Bytes::new(), busy));
    }
    let (mut parts, body) = response.into_parts();
    head::strip_hops(&mut parts.headers);
    parts.version = Version::HTTP_11;
    let held = Held { in_flight, link, source };
    Response::from_parts(parts, Answer::streamed(first, body, held, busy))
}
