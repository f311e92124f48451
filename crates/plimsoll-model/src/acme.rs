//! Certificates that an ACME authority issues for hosts of routes with `tls: auto`: whom the cell asks and as whom, the
//! orders under way, and what was issued. One node asks and every node serves, so all of it is replicated. What is due is
//! settled in the kernel; how an authority is asked, at the edges.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{Millis, Timestamp};

/// How many hosts may have certificates of this kind: each costs some five kilobytes of state.
pub const MAX_HOSTS: usize = 1_000;

/// The most orders for one host within [`ORDER_WINDOW`]. Public authorities count five failed validations of a host and
/// hour before they refuse more.
pub const MAX_HOST_ORDERS: usize = 5;

/// The most orders of the whole cell within [`ORDER_WINDOW`]: public authorities allow three hundred in three hours.
pub const MAX_CELL_ORDERS: usize = 60;

/// How long an order counts.
pub const ORDER_WINDOW: Millis = Millis::minutes(60);

/// The most bytes of an error that are kept.
pub const MAX_ERROR: usize = 500;

/// The most bytes a chain, a key, or anything else that an authority sends may have.
pub const MAX_CHAIN: usize = 64 << 10;
pub const MAX_TEXT: usize = 2 << 10;

/// A private key as PKCS #8. It is in no message, log or answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKey(Vec<u8>);

impl SecretKey {
    pub fn new(pkcs8: Vec<u8>) -> Self {
        Self(pkcs8)
    }

    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

/// All that the cell knows of ACME.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Acme {
    /// None: nobody is asked, and what was issued is served until it expires.
    pub settings: Option<AcmeSettings>,
    pub account: Option<AcmeAccount>,
    /// By host, in lower case and without a final dot.
    pub hosts: BTreeMap<String, HostCertificate>,
}

/// Whom the cell asks for certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeSettings {
    /// The URL of the authority's directory.
    pub directory: String,
    pub email: String,
    /// What the authority's own server is checked against, as PEM; none: what this machine trusts.
    pub ca: Option<String>,
}

/// The cell's account at an authority. Its key is kept before the authority hears of it: asking again with the same key
/// gives the same account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeAccount {
    pub directory: String,
    pub key: SecretKey,
    /// What the authority calls it; none until it has answered.
    pub url: Option<String>,
}

/// How an authority finds out that a host is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChallengeKind {
    /// It asks for a path in the clear.
    Http01,
    /// It asks for a certificate of a certain kind.
    TlsAlpn01,
}

impl ChallengeKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

/// What an authority is going to ask every node for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeChallenge {
    pub kind: ChallengeKind,
    pub token: String,
    /// What proves it: the token and the fingerprint of the account's key, nothing secret.
    pub key_authorization: String,
}

impl AcmeChallenge {
    /// Whether a token is of the alphabet it must be of: it becomes part of a path.
    pub fn is_token(token: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !token.is_empty() && token.len() <= 256 && token.bytes().all(fits)
    }
}

/// An order that an authority has taken and that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeOrder {
    /// Where it is asked after; whoever leads next goes on with it.
    pub url: String,
    pub directory: String,
    /// The key of the certificate to come.
    pub key: SecretKey,
    /// None where the authority has believed us before.
    pub challenge: Option<AcmeChallenge>,
    pub begun_at: Timestamp,
}

/// A certificate that was issued, with its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// As DER, the host's own first.
    pub chain: Vec<Vec<u8>>,
    pub key: SecretKey,
    /// Who signed it, as people read it.
    pub issuer: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub directory: String,
}

impl IssuedCertificate {
    pub fn lifetime(&self) -> Millis {
        self.not_after.since(self.not_before)
    }
}

/// Why an order came to nothing, and so how long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcmeFailureKind {
    /// The authority could not be asked, or had a failure of its own: the order goes on.
    Unavailable,
    /// It does not believe that the host is ours: the order is over.
    Validation,
    /// It says that we ask too much.
    RateLimited,
    /// It refuses the order, or knows nothing of it: the order is over.
    Refused,
}

impl AcmeFailureKind {
    pub const ALL: [Self; 4] =
        [Self::Unavailable, Self::Validation, Self::RateLimited, Self::Refused];

    /// Whether the order is asked after again.
    pub fn keeps_order(self) -> bool {
        matches!(self, Self::Unavailable | Self::RateLimited)
    }
}

/// What last went wrong for a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeFailure {
    pub at: Timestamp,
    pub kind: AcmeFailureKind,
    pub text: String,
}

/// One host's certificate, the order for the next, and what is remembered of earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostCertificate {
    pub issued: Option<IssuedCertificate>,
    pub order: Option<AcmeOrder>,
    /// When orders were begun within the last [`ORDER_WINDOW`], oldest first.
    pub ordered_at: Vec<Timestamp>,
    /// How many tries have failed since the last that did not.
    pub failures: u32,
    pub failure: Option<AcmeFailure>,
    /// Nothing is asked before this.
    pub retry_at: Timestamp,
}

impl HostCertificate {
    /// How many orders count at this time.
    pub fn recent_orders(&self, now: Timestamp) -> usize {
        self.ordered_at.iter().filter(|at| is_recent(**at, now)).count()
    }
}

/// Whether an order of this time counts. One of the future was begun by a clock that has been put back since: it counts.
pub fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    now.since(at) < ORDER_WINDOW
}

impl Acme {
    /// The orders of all hosts that count at this time.
    pub fn recent_orders(&self, now: Timestamp) -> usize {
        self.hosts.values().map(|host| host.recent_orders(now)).sum()
    }

    /// The challenges that nodes answer now, each with its host.
    pub fn challenges(&self) -> impl Iterator<Item = (&str, &AcmeChallenge)> {
        let open = self.hosts.iter().filter_map(|(host, it)| Some((host, it.order.as_ref()?)));
        open.filter_map(|(host, order)| Some((host.as_str(), order.challenge.as_ref()?)))
    }
}

/// A step of getting certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcmeChange {
    /// Whom the cell asks from now on.
    Configure { settings: Option<AcmeSettings> },
    /// The account to use, first without its URL.
    SetAccount { account: AcmeAccount },
    /// An order is about to be asked for: it counts from here, whatever becomes of it.
    Begin { host: String },
    /// The authority has taken the order: its challenge is answered from here on.
    SetOrder { host: String, order: AcmeOrder },
    /// The order with this URL has ended well.
    Issue { host: String, order: String, certificate: IssuedCertificate },
    /// A try has failed; the next is not before `retry_at`.
    Fail { host: String, kind: AcmeFailureKind, text: String, retry_at: Timestamp },
    /// No route names the host any more.
    Forget { host: String },
}

impl AcmeChange {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Configure { .. } => "configure_acme",
            Self::SetAccount { .. } => "set_acme_account",
            Self::Begin { .. } => "begin_acme_order",
            Self::SetOrder { .. } => "set_acme_order",
            Self::Issue { .. } => "issue_certificate",
            Self::Fail { .. } => "fail_acme_order",
            Self::Forget { .. } => "forget_certificate",
        }
    }
}
