//! One host's order, from where it stands to its end: asked for, proven, finalized, fetched. Each step is in the log before
//! the next, and what the authority says of the order is believed over what is remembered, so that any leader can take it up
//! at any point.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder,
    Order, OrderStatus, Problem, RetryPolicy,
};
use plimsoll_kernel::certificates::{CertificateStep, challenge};
use plimsoll_model::acme::{
    AcmeAccount, AcmeChallenge, AcmeChange, AcmeFailureKind, AcmeOrder, ChallengeKind,
    IssuedCertificate, SecretKey,
};
use plimsoll_runtime::chain;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::client::AcmeHttp;
use super::{Asking, StepEnd, StepFailure, account, propagation};
use crate::context::now;
use crate::route_certificates::{CertificateFacts, HostKey, certified};
use plimsoll_api::view::Time;

/// How an order is asked after while the authority works on it: it says how often, and if not, ever more seldom.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));

/// How often a request is repeated that the authority refused for its nonce, beyond what the library does itself.
const NONCE_TRIES: usize = 5;

pub(super) async fn go_on(
    asking: &Asking,
    host: &str,
    step: CertificateStep,
) -> Result<(), StepEnd> {
    let Some((settings, Some(known))) = asking.settings() else { return Ok(()) };
    let http = AcmeHttp::new(&settings).map_err(|why| local(&why))?;
    let mut tries = 0;
    loop {
        let worked = async {
            let account = account::open(&settings, &known, &http).await?;
            let work = HostOrder { asking, host, http: &http, account: &account, known: &known };
            work.run(step).await
        };
        match worked.await {
            // A nonce that was refused says nothing of the order: what was asked is asked again.
            Err(StepEnd::Failed(failure)) if failure.is_nonce() && tries < NONCE_TRIES => {
                tries += 1
            }
            ended => return ended,
        }
    }
}

struct HostOrder<'a> {
    asking: &'a Asking,
    host: &'a str,
    http: &'a AcmeHttp,
    account: &'a Account,
    known: &'a AcmeAccount,
}

impl HostOrder<'_> {
    async fn run(&self, step: CertificateStep) -> Result<(), StepEnd> {
        let open = self
            .asking
            .cell
            .engine
            .machine()
            .read(|state| state.acme().hosts.get(self.host).and_then(|row| row.order.clone()));
        match (step, open) {
            (_, Some(kept)) => {
                let order = self.account.order(kept.url.clone()).await;
                let order = match order {
                    Ok(order) => order,
                    Err(error) => return Err(self.lost(&error).await),
                };
                self.finish(order, &kept).await
            }
            (CertificateStep::Order, None) => {
                let (order, kept) = self.begin().await?;
                self.finish(order, &kept).await
            }
            // Somebody has ended it meanwhile.
            (CertificateStep::Continue, None) => Ok(()),
        }
    }

    /// Asks for a new order, and has its challenge answered everywhere.
    async fn begin(&self) -> Result<(Order, AcmeOrder), StepEnd> {
        let host = self.host.to_owned();
        self.asking.write(AcmeChange::Begin { host: host.clone() }).await?;
        let identifiers = [Identifier::Dns(host.clone())];
        let mut order = match self.account.new_order(&NewOrder::new(&identifiers)).await {
            Ok(order) => order,
            Err(error) => return Err(self.lost(&error).await),
        };
        let challenge = self.challenge(&mut order).await?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| local(&error))?;
        let kept = AcmeOrder {
            url: order.url().to_owned(),
            directory: self.known.directory.clone(),
            key: SecretKey::new(key.serialize_der()),
            challenge,
            begun_at: now(),
        };
        self.asking.write(AcmeChange::SetOrder { host, order: kept.clone() }).await?;
        Ok((order, kept))
    }

    /// What the authority is to ask for; none where it has believed us before.
    async fn challenge(&self, order: &mut Order) -> Result<Option<AcmeChallenge>, StepEnd> {
        let listeners = self.asking.cell.ingress.lock().listeners();
        let wanted = self.asking.cell.engine.machine().read(|state| {
            let row = state.acme().hosts.get(self.host).cloned().unwrap_or_default();
            challenge(&row, listeners.http, listeners.https)
        });
        let mut all = order.authorizations();
        let Some(found) = all.next().await else { return Ok(None) };
        let mut found = found.map_err(|error| self.failed(&error))?;
        if found.status == AuthorizationStatus::Valid {
            return Ok(None);
        }
        let other = match wanted {
            ChallengeKind::Http01 => ChallengeKind::TlsAlpn01,
            ChallengeKind::TlsAlpn01 => ChallengeKind::Http01,
        };
        let offers = |kind: &ChallengeKind| {
            found.challenges.iter().any(|it| it.r#type == library_kind(*kind))
        };
        let Some(kind) = [wanted, other].into_iter().find(offers) else {
            let text = "the authority offers neither http-01 nor tls-alpn-01".to_owned();
            let kind = AcmeFailureKind::Refused;
            return Err(StepFailure { kind, text, retry_after: None }.into());
        };
        let Some(asked) = found.challenge(library_kind(kind)) else { return Ok(None) };
        let token = asked.token.clone();
        let key_authorization = asked.key_authorization().as_str().to_owned();
        Ok(Some(AcmeChallenge { kind, token, key_authorization }))
    }

    /// Takes an order from where it stands to the certificate.
    async fn finish(&self, mut order: Order, kept: &AcmeOrder) -> Result<(), StepEnd> {
        if order.state().status == OrderStatus::Pending {
            self.prove(&mut order, kept).await?;
            order.poll_ready(&POLLING).await.map_err(|error| self.failed(&error))?;
        }
        if order.state().status == OrderStatus::Ready {
            let csr = request(self.host, &kept.key).map_err(|error| local(&error))?;
            order.finalize_csr(&csr).await.map_err(|error| self.failed(&error))?;
        }
        if order.state().status == OrderStatus::Invalid {
            return Err(self.refusal(&mut order).await.into());
        }
        let pem = match order.state().status {
            OrderStatus::Valid => order.certificate().await.map(Option::unwrap_or_default),
            _ => order.poll_certificate(&POLLING).await,
        };
        let pem = match pem {
            Ok(pem) => pem,
            Err(_) if order.state().status == OrderStatus::Invalid => {
                return Err(self.refusal(&mut order).await.into());
            }
            Err(error) => return Err(self.failed(&error).into()),
        };
        let certificate = issued(&pem, kept).map_err(|why| local(&why))?;
        let (host, order) = (self.host.to_owned(), kept.url.clone());
        let expires = Time(certificate.not_after);
        tracing::info!(host, issuer = certificate.issuer, %expires, "a certificate was issued");
        self.asking.write(AcmeChange::Issue { host, order, certificate }).await?;
        Ok(())
    }

    /// Tells the authority to ask, once every node answers.
    async fn prove(&self, order: &mut Order, kept: &AcmeOrder) -> Result<(), StepEnd> {
        let Some(challenge) = &kept.challenge else { return Ok(()) };
        propagation::known_everywhere(self.asking, self.host, &challenge.token).await;
        let mut all = order.authorizations();
        let Some(found) = all.next().await else { return Ok(()) };
        let mut found = found.map_err(|error| self.failed(&error))?;
        if found.status != AuthorizationStatus::Pending {
            return Ok(());
        }
        let Some(mut asked) = found.challenge(library_kind(challenge.kind)) else { return Ok(()) };
        // An earlier leader may have told it already.
        if asked.status == ChallengeStatus::Pending {
            asked.set_ready().await.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// Why an order is over: what the authority found when it asked.
    async fn refusal(&self, order: &mut Order) -> StepFailure {
        let mut found = order.state().error.clone();
        let mut all = order.authorizations();
        while let Some(Ok(mut one)) = all.next().await {
            let _ = one.refresh().await;
            if let Some(error) = one.challenges.iter().find_map(|it| it.error.clone()) {
                found = Some(error);
            }
        }
        let text = found.map_or_else(|| "the authority gave no reason".to_owned(), |it| told(&it));
        let kind = AcmeFailureKind::Validation;
        StepFailure { kind, text, retry_after: self.http.retry_after() }
    }

    /// An authority that has lost the account or the order is asked anew.
    async fn lost(&self, error: &Error) -> StepEnd {
        let failure = self.failed(error);
        if let Error::Api(problem) = error
            && word(problem) == "accountDoesNotExist"
        {
            let account = AcmeAccount { url: None, ..self.known.clone() };
            if let Err(error) = self.asking.write(AcmeChange::SetAccount { account }).await {
                return error.into();
            }
            let kind = AcmeFailureKind::Unavailable;
            return StepFailure { kind, ..failure }.into();
        }
        failure.into()
    }

    fn failed(&self, error: &Error) -> StepFailure {
        failure(error, self.http)
    }
}

impl StepFailure {
    fn is_nonce(&self) -> bool {
        self.text.contains("badNonce")
    }
}

fn library_kind(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

/// The last word of a problem's type: `rateLimited`.
fn word(problem: &Problem) -> &str {
    problem.r#type.as_deref().and_then(|it| it.rsplit(':').next()).unwrap_or_default()
}

/// A problem as people read it.
fn told(problem: &Problem) -> String {
    let detail = problem.detail.as_deref().unwrap_or("no details");
    format!("{}: {detail}", word(problem))
}

/// What an error means for the order.
pub(super) fn failure(error: &Error, http: &AcmeHttp) -> StepFailure {
    let (kind, text) = match error {
        Error::Api(problem) => (kind(problem), told(problem)),
        Error::Timeout(_) => {
            (AcmeFailureKind::Unavailable, "the authority is not done yet".to_owned())
        }
        error => {
            (AcmeFailureKind::Unavailable, format!("cannot ask the authority: {}", chain(error)))
        }
    };
    StepFailure { kind, text, retry_after: http.retry_after() }
}

fn kind(problem: &Problem) -> AcmeFailureKind {
    match word(problem) {
        "rateLimited" => AcmeFailureKind::RateLimited,
        "badNonce" | "serverInternal" | "orderNotReady" => AcmeFailureKind::Unavailable,
        "unauthorized" | "dns" | "connection" | "incorrectResponse" | "caa" | "tls" => {
            AcmeFailureKind::Validation
        }
        _ if problem.status == Some(429) => AcmeFailureKind::RateLimited,
        _ if problem.status.is_some_and(|status| status >= 500) => AcmeFailureKind::Unavailable,
        _ => AcmeFailureKind::Refused,
    }
}

/// A failure of our own, which asking again soon does not mend.
pub(super) fn local(why: &impl std::fmt::Display) -> StepFailure {
    StepFailure { kind: AcmeFailureKind::Refused, text: why.to_string(), retry_after: None }
}

/// The request that an order is finalized with. Its subject is empty: the one name is the alternative one.
fn request(host: &str, key: &SecretKey) -> Result<Vec<u8>, rcgen::Error> {
    let key = PrivatePkcs8KeyDer::from(key.expose());
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(&key)?.der().to_vec())
}

/// The chain that an authority sent, checked against the key it is for.
fn issued(pem: &str, kept: &AcmeOrder) -> Result<IssuedCertificate, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.map_err(|_| "the authority sent what is no certificate".to_owned())?;
    let chain: Vec<Vec<u8>> = chain.iter().map(|der: &CertificateDer<'_>| der.to_vec()).collect();
    let facts = chain.first().and_then(|leaf| CertificateFacts::of(leaf));
    let Some(CertificateFacts { issuer, not_before, not_after }) = facts else {
        return Err("the authority sent what is no certificate".to_owned());
    };
    let key = kept.key.clone();
    certified(&HostKey { chain: chain.clone(), key: key.clone() })
        .map_err(|error| format!("the authority sent a certificate for another key: {error}"))?;
    let directory = kept.directory.clone();
    Ok(IssuedCertificate { chain, key, issuer, not_before, not_after, directory })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(word: &str, status: u16) -> Problem {
        let kind = format!("urn:ietf:params:acme:error:{word}");
        let json = serde_json::json!({"type": kind, "detail": "so it is", "status": status});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_an_authority_says_decides_how_long_is_waited() {
        use AcmeFailureKind::{RateLimited, Refused, Unavailable, Validation};
        for (word, status, expected) in [
            ("rateLimited", 429, RateLimited),
            ("somethingNew", 429, RateLimited),
            ("badNonce", 400, Unavailable),
            ("serverInternal", 500, Unavailable),
            ("somethingNew", 503, Unavailable),
            ("dns", 400, Validation),
            ("connection", 400, Validation),
            ("unauthorized", 403, Validation),
            ("rejectedIdentifier", 400, Refused),
            ("malformed", 404, Refused),
        ] {
            assert_eq!(kind(&problem(word, status)), expected, "{word} {status}");
        }
        assert_eq!(told(&problem("dns", 400)), "dns: so it is");
    }

    #[test]
    fn a_certificate_for_another_key_is_not_taken() {
        let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
        let pem = {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(made.cert.der());
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let order = |key: &KeyPair| AcmeOrder {
            url: String::new(),
            directory: String::new(),
            key: SecretKey::new(key.serialize_der()),
            challenge: None,
            begun_at: now(),
        };
        assert!(issued(&pem, &order(&made.signing_key)).is_ok());
        let refused = issued(&pem, &order(&other.signing_key)).unwrap_err();
        assert!(
            refused.starts_with("the authority sent a certificate for another key"),
            "{refused}"
        );
        assert!(issued("rubbish", &order(&made.signing_key)).is_err());
    }
}
