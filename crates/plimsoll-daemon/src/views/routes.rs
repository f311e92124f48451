//! Routes as they are told, and where a request goes: the same judgement that routers go by, with its reasons.

use plimsoll_model::spec::{RouteSpec, Tls, bare_name};
use plimsoll_model::{DeploymentName, Generation, ReplicaId, ServiceKey};
use plimsoll_router::{self as router, RoutingTable, UpstreamStatus, bare_host};

use super::Source;
use crate::routing::{Addresses, Open, wanted};
use plimsoll_api::view::{
    Certificate, Reason, ReasonCode, Route, RouteContainer, RouteExplanation, RouteQuery,
};
use plimsoll_kernel::endpoints::{EndpointEligibility, Endpoints};

/// Every route, by host and path.
pub fn routes(source: &Source<'_>) -> Vec<Route> {
    let routes = source.state.routes();
    let mut all: Vec<Route> = routes.map(|(name, it)| route(source, name, it)).collect();
    all.sort_by(|one, other| (&one.host, &one.path).cmp(&(&other.host, &other.path)));
    all
}

/// What becomes of a request; none, if no route is for it. `seen` is what this node's router makes of it.
pub fn explain_route(
    source: &Source<'_>,
    query: &RouteQuery,
    seen: Option<&router::RouteExplanation>,
) -> Option<RouteExplanation> {
    let (deployment, found) = find(source, query)?;
    let service = ServiceKey::new(deployment.clone(), found.service.clone());
    let mut containers: Vec<RouteContainer> = ruled(source, &service)
        .map(|(id, generation, node, eligibility)| {
            let said = seen.and_then(|seen| verdict(seen, &id, generation));
            container(source, &id, generation, node, &eligibility, said)
        })
        .collect();
    containers.sort_by_key(|one| !one.takes_requests);
    let told_by = source.here.node.to_string();
    let host = found.host.as_deref().filter(|_| found.tls != Tls::Off).map(bare_name);
    let certificate = host.map(|host| {
        let one = super::certificates::certificate(source, &host, found.tls);
        Certificate { deployments: vec![deployment.to_string()], ..one }
    });
    let route = route(source, deployment, found);
    Some(RouteExplanation { route, certificate, told_by, containers })
}

/// The route of a request, as a router with the same table finds it.
fn find<'s>(
    source: &Source<'s>,
    query: &RouteQuery,
) -> Option<(&'s DeploymentName, &'s RouteSpec)> {
    let endpoints = Endpoints::of(source.state, None);
    let asked = wanted(&endpoints, &source.here.node, &Addresses::new(), &Open::new());
    let table = RoutingTable::default().next(&asked.wanted);
    let found = &table.route(bare_host(&query.host), &query.path)?.spec;
    source.state.routes().find(|(_, it)| it.host == found.host && it.prefix() == found.path)
}

fn route(source: &Source<'_>, deployment: &DeploymentName, route: &RouteSpec) -> Route {
    let service = ServiceKey::new(deployment.clone(), route.service.clone());
    let taking = ruled(source, &service)
        .filter(|(.., eligibility)| *eligibility == EndpointEligibility::Eligible)
        .count();
    let host = route.host.as_ref();
    let missing = host.and_then(|host| source.ingress.missing_certificates.get(host));
    let missing = missing
        .filter(|_| route.tls != Tls::Off)
        .map(|text| Reason::new(&source.here.node, ReasonCode::NoCertificate, text));
    Route {
        host: host.cloned(),
        path: route.prefix().to_owned(),
        deployment: deployment.to_string(),
        service: route.service.to_string(),
        port: route.port,
        strip_path: route.strip_path,
        tls: word(route.tls).to_owned(),
        taking: u32::try_from(taking).unwrap_or(u32::MAX),
        notes: missing.into_iter().collect(),
    }
}

pub fn word(tls: Tls) -> &'static str {
    match tls {
        Tls::Off => "off",
        Tls::Internal => "internal",
        Tls::Files => "files",
        Tls::Auto => "auto",
    }
}

/// Every container of a service and what is ruled of it.
fn ruled<'s>(
    source: &Source<'s>,
    key: &ServiceKey,
) -> impl Iterator<Item = (ReplicaId, Generation, &'s str, EndpointEligibility)> {
    let (state, key) = (source.state, key.clone());
    let replicas = state.service(&key).into_iter().flat_map(|service| &service.replicas);
    replicas.flat_map(move |(slot, replica)| {
        let id = ReplicaId::new(key.clone(), slot.clone());
        replica.holds().map(move |held| {
            let eligibility = EndpointEligibility::of(state, replica, held);
            (id.clone(), held.generation, held.node.as_str(), eligibility)
        })
    })
}

fn verdict(
    seen: &router::RouteExplanation,
    id: &ReplicaId,
    generation: Generation,
) -> Option<UpstreamStatus> {
    let name = id.to_string();
    let mut all = seen.upstreams.iter();
    let found = all.find(|(key, ..)| *key.replica == *name && key.generation == generation.0);
    found.map(|(_, _, verdict)| *verdict)
}

fn container(
    source: &Source<'_>,
    id: &ReplicaId,
    generation: Generation,
    node: &str,
    eligibility: &EndpointEligibility,
    said: Option<UpstreamStatus>,
) -> RouteContainer {
    let here = &source.here.node;
    let (mut takes_requests, mut in_flight) = (*eligibility == EndpointEligibility::Eligible, None);
    let (mut word, mut text) = (ReasonCode::from(eligibility), eligibility.to_string());
    match said {
        Some(UpstreamStatus::Ejected { left }) if takes_requests => {
            (takes_requests, word) = (false, ReasonCode::Ejected);
            text = format!("connections from {here} fail; tried again in {} ms", left.as_millis());
        }
        Some(UpstreamStatus::Ready { weight, in_flight: open }) if takes_requests => {
            in_flight = Some(open);
            if weight < router::FULL_WEIGHT {
                let percent = weight * 100 / router::FULL_WEIGHT;
                text = format!("it is new, and takes {percent} % of its share so far");
            }
        }
        Some(UpstreamStatus::Draining { in_flight: open, .. }) => in_flight = Some(open),
        _ => {}
    }
    let reason = Reason::new(id, word, text);
    let (replica, node) = (id.to_string(), node.to_owned());
    RouteContainer { replica, generation: generation.0, node, takes_requests, in_flight, reason }
}
