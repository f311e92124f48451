//! Certificates of routes, as they are told: those of an ACME authority off the log, others as this node holds them.

use plimsoll_kernel::certificates::renew_at;
use plimsoll_model::acme::HostCertificate;
use plimsoll_model::spec::{Tls, bare_name};

use super::Source;
use crate::route_certificates::HeldCertificate;
use plimsoll_api::view::{Certificate, Time};

/// Every certificate that a route wants, by host.
pub fn certificates(source: &Source<'_>) -> Vec<Certificate> {
    let mut all: Vec<Certificate> = Vec::new();
    for (deployment, route) in source.state.routes().filter(|(_, route)| route.tls != Tls::Off) {
        let Some(host) = route.host.as_deref().map(bare_name) else { continue };
        let word = super::routes::word(route.tls);
        if let Some(known) = all.iter_mut().find(|it| it.host == host && it.source == word) {
            if !known.deployments.iter().any(|name| name == deployment.as_str()) {
                known.deployments.push(deployment.to_string());
            }
            continue;
        }
        let mut one = certificate(source, &host, route.tls);
        one.deployments.push(deployment.to_string());
        all.push(one);
    }
    all.sort_by(|one, other| (&one.host, &one.source).cmp(&(&other.host, &other.source)));
    all
}

/// One host's, of one kind.
pub(super) fn certificate(source: &Source<'_>, host: &str, tls: Tls) -> Certificate {
    let nothing = Certificate {
        host: host.to_owned(),
        source: super::routes::word(tls).to_owned(),
        deployments: Vec::new(),
        issuer: None,
        expires_at: None,
        renew_at: None,
        retry_at: None,
        last_error: None,
        failures: 0,
        told_by: source.here.node.to_string(),
    };
    if tls == Tls::Auto {
        return match source.state.acme().hosts.get(host) {
            Some(row) => issued(source, nothing, row),
            None => Certificate { last_error: unasked(source), ..nothing },
        };
    }
    let held = &source.ingress.certificates;
    match held.iter().find(|it| it.host == host && it.tls == tls) {
        Some(held) => of_node(nothing, held),
        None => nothing,
    }
}

fn issued(source: &Source<'_>, nothing: Certificate, row: &HostCertificate) -> Certificate {
    let issued = row.issued.as_ref();
    let is_waiting = row.retry_at > source.here.now;
    Certificate {
        issuer: issued.map(|it| it.issuer.clone()),
        expires_at: issued.map(|it| Time(it.not_after)),
        renew_at: issued.map(|it| Time(renew_at(&nothing.host, it, source.policy))),
        retry_at: is_waiting.then_some(Time(row.retry_at)),
        last_error: row.failure.as_ref().map(|it| it.text.clone()),
        failures: row.failures,
        ..nothing
    }
}

fn unasked(source: &Source<'_>) -> Option<String> {
    let is_asked = source.state.acme().settings.is_some();
    let why = "the cell asks no ACME authority; start its servers with --acme-email";
    (!is_asked).then(|| why.to_owned())
}

fn of_node(nothing: Certificate, held: &HeldCertificate) -> Certificate {
    let facts = held.facts.as_ref();
    Certificate {
        issuer: facts.map(|it| it.issuer.clone()),
        expires_at: facts.map(|it| Time(it.not_after)),
        renew_at: held.renew_at.map(Time),
        last_error: held.error.clone(),
        failures: held.failures,
        ..nothing
    }
}
