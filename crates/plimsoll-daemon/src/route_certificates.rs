//! What a node shows for routes and cannot make by itself: certificates of an ACME authority, which are in the log, what
//! that authority asks every node for, and, on a node without the log, certificates of the cell's own authority. A server
//! reads them off the log; others are told by the leader, keep them in memory alone, and get keys only if they serve HTTPS.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::endpoints::Endpoints;
use plimsoll_model::acme::{AcmeChallenge, SecretKey};
use plimsoll_model::spec::{RouteSpec, Tls, bare_name};
use plimsoll_model::{Millis, State, Timestamp};
use plimsoll_peer::pki::Authority;
use rustls::crypto::ring::sign;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long one of our own is good for. It is in memory alone, and made anew with every start.
pub const LIFETIME: Millis = Millis::minutes(7 * 24 * 60);

/// How long before its end another takes its place: a node that cannot get one has days to be noticed.
pub const RENEWED: Millis = Millis::minutes(3 * 24 * 60);

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKey {
    /// As DER, the host's own first.
    pub chain: Vec<Vec<u8>>,
    pub key: SecretKey,
}

/// Both made ready, if they belong together.
pub fn certified(given: &HostKey) -> Result<CertifiedKey, rustls::Error> {
    let chain = given.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(given.key.expose().to_vec()));
    let certified = CertifiedKey::new(chain, sign::any_supported_type(&key)?);
    certified.keys_match()?;
    Ok(certified)
}

/// A certificate that this node holds, or should, as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCertificate {
    pub host: String,
    pub tls: Tls,
    /// Who signed it and when it runs out; none: there is none.
    pub facts: Option<CertificateFacts>,
    /// When this node sees to a new one by itself.
    pub renew_at: Option<Timestamp>,
    /// Why there is none, or no newer one.
    pub error: Option<String>,
    pub failures: u32,
}

/// What a certificate says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    pub issuer: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl CertificateFacts {
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let name = parsed.issuer().iter_common_name().next().and_then(|it| it.as_str().ok());
        let issuer = name.map_or_else(|| parsed.issuer().to_string(), str::to_owned);
        let millis = |seconds: i64| Timestamp(u64::try_from(seconds).unwrap_or(0) * 1_000);
        let validity = parsed.validity();
        let not_before = millis(validity.not_before.timestamp());
        Some(Self { issuer, not_before, not_after: millis(validity.not_after.timestamp()) })
    }
}

/// By host, in lower case and without a final dot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RouteCertificates {
    pub auto: BTreeMap<String, Arc<HostKey>>,
    pub internal: BTreeMap<String, Arc<HostKey>>,
    pub challenges: BTreeMap<String, AcmeChallenge>,
}

impl RouteCertificates {
    /// As the log has them. What is the same as before is shared with it.
    pub fn of(state: &State, before: Option<&Self>) -> Self {
        let issued = state.acme().hosts.iter();
        let issued = issued.filter_map(|(host, row)| Some((host, row.issued.as_ref()?)));
        let auto = issued.map(|(host, issued)| {
            let known = before.and_then(|before| before.auto.get(host));
            let is_same =
                |known: &&Arc<HostKey>| known.chain == issued.chain && known.key == issued.key;
            let fresh =
                || Arc::new(HostKey { chain: issued.chain.clone(), key: issued.key.clone() });
            (host.clone(), known.filter(is_same).map_or_else(fresh, Arc::clone))
        });
        let challenges = state.acme().challenges();
        let challenges = challenges.map(|(host, it)| (host.to_owned(), it.clone())).collect();
        Self { auto: auto.collect(), internal: BTreeMap::new(), challenges }
    }
}

/// Those of this node, as they change; none while nobody has told.
#[derive(Debug, Clone, Default)]
pub struct CertificateFeed(watch::Sender<Option<Arc<RouteCertificates>>>);

impl CertificateFeed {
    pub fn latest(&self) -> Option<Arc<RouteCertificates>> {
        self.0.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Option<Arc<RouteCertificates>>> {
        self.0.subscribe()
    }

    pub fn set(&self, certificates: RouteCertificates) {
        self.0.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&certificates);
            if is_new {
                *known = Some(Arc::new(certificates));
            }
            is_new
        });
    }
}

/// Where a node takes requests for routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HttpListeners {
    pub http: bool,
    pub https: bool,
}

impl HttpListeners {
    pub fn any(self) -> bool {
        self.http || self.https
    }
}

/// What a leader gives to one node without the log.
#[derive(Debug, Default)]
pub struct AgentCertificates {
    /// Issued by the cell's authority for this node, and until when each is used.
    internal: BTreeMap<String, (Arc<HostKey>, Timestamp)>,
}

impl AgentCertificates {
    /// What the node needs for these routes: keys if it serves HTTPS, proofs if it serves anything.
    pub fn of(
        &mut self,
        endpoints: &Endpoints,
        own: &RouteCertificates,
        listeners: HttpListeners,
        authority: impl FnOnce() -> Option<Authority>,
        now: Timestamp,
    ) -> RouteCertificates {
        let routes = endpoints.routes.values().flat_map(|routes| routes.iter());
        let routes: Vec<&RouteSpec> = routes.collect();
        let hosts = |tls: Tls| {
            let of = routes.iter().filter(move |route| route.tls == tls);
            of.filter_map(|route| route.host.as_deref().map(bare_name))
        };
        let mut given = RouteCertificates::default();
        if listeners.any() {
            let open = own.challenges.iter();
            let open = open.filter(|(host, _)| hosts(Tls::Auto).any(|wanted| wanted == **host));
            given.challenges = open.map(|(host, it)| (host.clone(), it.clone())).collect();
        }
        if listeners.https {
            let issued = hosts(Tls::Auto);
            let issued =
                issued.filter_map(|host| Some((host.clone(), Arc::clone(own.auto.get(&host)?))));
            given.auto = issued.collect();
            self.issue(hosts(Tls::Internal).collect(), authority, now);
            let internal = self.internal.iter();
            given.internal =
                internal.map(|(host, (key, _))| (host.clone(), Arc::clone(key))).collect();
        }
        given
    }

    /// When one of them is to be replaced.
    pub fn due(&self) -> Option<Timestamp> {
        self.internal.values().map(|(_, until)| *until).min()
    }

    fn issue(
        &mut self,
        wanted: BTreeSet<String>,
        authority: impl FnOnce() -> Option<Authority>,
        now: Timestamp,
    ) {
        self.internal.retain(|host, (_, until)| wanted.contains(host) && *until > now);
        let mut missing =
            wanted.into_iter().filter(|host| !self.internal.contains_key(host)).peekable();
        if missing.peek().is_none() {
            return;
        }
        let Some(authority) = authority() else { return };
        let missing: Vec<String> = missing.collect();
        for host in missing {
            match authority.issue_host_parts(&host, now, LIFETIME) {
                Ok((chain, key)) => {
                    let key = Arc::new(HostKey { chain, key: SecretKey::new(key) });
                    let until = now.plus(Millis(LIFETIME.0 - RENEWED.0));
                    self.internal.insert(host, (key, until));
                }
                Err(error) => {
                    tracing::warn!(host, %error, "cannot issue a certificate for another node")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::acme::ChallengeKind;
    use plimsoll_model::{DeploymentName, ServiceName};
    use plimsoll_peer::pki::testkit;

    use super::*;

    fn endpoints() -> Endpoints {
        let route = |host: &str, tls| RouteSpec {
            host: Some(host.to_owned()),
            path: "/".to_owned(),
            strip_path: false,
            service: ServiceName::new("web").unwrap(),
            port: 80,
            tls,
        };
        let routes = vec![
            route("Auto.example", Tls::Auto),
            route("inside.example", Tls::Internal),
            route("files.example", Tls::Files),
        ];
        let shop = DeploymentName::new("shop").unwrap();
        Endpoints { routes: [(shop, Arc::new(routes))].into(), ..Endpoints::default() }
    }

    fn own() -> RouteCertificates {
        let key = || Arc::new(HostKey { chain: vec![vec![1]], key: SecretKey::new(vec![2]) });
        let challenge = AcmeChallenge {
            kind: ChallengeKind::Http01,
            token: "abc".to_owned(),
            key_authorization: "abc.thumb".to_owned(),
        };
        RouteCertificates {
            auto: [("auto.example".to_owned(), key()), ("other.example".to_owned(), key())].into(),
            internal: BTreeMap::new(),
            challenges: [("auto.example".to_owned(), challenge)].into(),
        }
    }

    #[test]
    fn a_node_gets_keys_of_the_routes_it_serves_and_of_no_others() {
        let authority = || Some(testkit::cell("blue"));
        let given = |http, https| {
            let listeners = HttpListeners { http, https };
            AgentCertificates::default().of(
                &endpoints(),
                &own(),
                listeners,
                authority,
                testkit::now(),
            )
        };
        let names = |map: &BTreeMap<String, Arc<HostKey>>| -> BTreeSet<String> {
            map.keys().cloned().collect()
        };
        assert_eq!(given(false, false), RouteCertificates::default());
        let plain = given(true, false);
        assert!(plain.auto.is_empty() && plain.internal.is_empty());
        assert_eq!(plain.challenges.len(), 1);
        let secure = given(false, true);
        assert_eq!(names(&secure.auto), ["auto.example".to_owned()].into());
        assert_eq!(names(&secure.internal), ["inside.example".to_owned()].into());
    }

    #[test]
    fn what_the_cell_issues_for_a_node_is_kept_until_it_is_replaced_in_good_time() {
        let (mut agent, now) = (AgentCertificates::default(), testkit::now());
        let listeners = HttpListeners { http: true, https: true };
        let mut of = |now| {
            let authority = || Some(testkit::cell("blue"));
            let given = agent.of(&endpoints(), &own(), listeners, authority, now);
            (given.internal["inside.example"].clone(), agent.due())
        };
        let (first, due) = of(now);
        assert_eq!(due, Some(now.plus(Millis(LIFETIME.0 - RENEWED.0))));
        assert_eq!(of(now.plus(Millis::minutes(5))).0, first);
        assert_ne!(of(due.unwrap()).0, first);
    }
}
