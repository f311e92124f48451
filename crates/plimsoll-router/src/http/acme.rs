//! What an ACME authority asks a host for, to see that it is ours: a path in the clear (HTTP-01), or a certificate of a
//! certain kind (TLS-ALPN-01, RFC 8737). Both are looked up by the host and nothing else is read, so whoever else asks
//! learns what the authority would.

use std::sync::Arc;

use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;

use crate::table::{AcmeProof, RouteTls, RoutingTable};

/// The protocol that an authority negotiates, and no client.
pub(super) const PROTOCOL: &[u8] = b"acme-tls/1";

/// Where an authority asks in the clear.
const PREFIX: &str = "/.well-known/acme-challenge/";

/// What is to be said of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AcmeAnswer {
    /// It is the one that the authority asks for.
    Proof(String),
    /// It is of a host whose certificates are ours to get, and nobody asks for it.
    Unknown,
    /// It is a path like any other: of a host that sees to itself, perhaps.
    NotOurs,
}

/// What a request in the clear for this host and path is answered, before any route is looked at.
pub(super) fn answer(table: &RoutingTable, host: &str, path: &str) -> AcmeAnswer {
    let Some(token) = path.strip_prefix(PREFIX) else { return AcmeAnswer::NotOurs };
    match table.challenge(host) {
        Some(AcmeProof::Http { token: asked, proof }) if asked == token => {
            AcmeAnswer::Proof(proof.clone())
        }
        _ if table.has_tls(host, RouteTls::Auto) => AcmeAnswer::Unknown,
        _ => AcmeAnswer::NotOurs,
    }
}

/// Whether this is an authority that asks for its certificate: it offers this protocol and no other.
pub(super) fn is_asking(hello: &ClientHello<'_>) -> bool {
    let Some(mut offered) = hello.alpn() else { return false };
    offered.next() == Some(PROTOCOL) && offered.next().is_none()
}

/// The certificate that the authority asks this host for.
pub(super) fn certificate(table: &RoutingTable, host: &str) -> Option<Arc<CertifiedKey>> {
    match table.challenge(host) {
        Some(AcmeProof::Tls(certificate)) => Some(Arc::clone(certificate)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{PoolKey, RouteConfig, RouterConfig};

    fn table() -> RoutingTable {
        let route = |host: &str, tls| RouteConfig {
            host: Some(host.to_owned()),
            path: "/".to_owned(),
            strip_path: false,
            pool: PoolKey::new("shop/web", 80),
            tls,
        };
        let proof = |token: &str| AcmeProof::Http {
            token: token.to_owned(),
            proof: format!("{token}.thumb"),
        };
        let config = RouterConfig {
            routes: vec![
                route("shop.example", RouteTls::Auto),
                route("own.example", RouteTls::Off),
                route("files.example", RouteTls::Files),
            ],
            challenges: [("shop.example".to_owned(), proof("abc"))].into(),
            ..RouterConfig::default()
        };
        RoutingTable::default().next(&config)
    }

    #[test]
    fn only_the_token_that_is_asked_for_is_answered_and_only_for_its_host() {
        let table = table();
        for (host, path, expected) in [
            ("shop.example", "abc", AcmeAnswer::Proof("abc.thumb".to_owned())),
            ("SHOP.example", "abc", AcmeAnswer::Proof("abc.thumb".to_owned())),
            ("shop.example", "abcd", AcmeAnswer::Unknown),
            ("shop.example", "", AcmeAnswer::Unknown),
            ("shop.example", "abc/", AcmeAnswer::Unknown),
            ("shop.example", "../abc", AcmeAnswer::Unknown),
            ("shop.example", "%61bc", AcmeAnswer::Unknown),
            ("own.example", "abc", AcmeAnswer::NotOurs),
            ("files.example", "abc", AcmeAnswer::NotOurs),
            ("nobody.example", "abc", AcmeAnswer::NotOurs),
        ] {
            assert_eq!(answer(&table, host, &format!("{PREFIX}{path}")), expected, "{host} {path}");
        }
        for path in ["/", "/.well-known/acme-challenge", "/.well-known/acme-challengeabc", "/abc"] {
            assert_eq!(answer(&table, "shop.example", path), AcmeAnswer::NotOurs, "{path}");
        }
    }
}
