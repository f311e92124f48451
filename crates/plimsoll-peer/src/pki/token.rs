//! What people paste. A join token lets one node into a cell, and makes it sure which cell that is; an operator token
//! lets a person or a program in. Both are random, so a plain hash of them can be kept and looked up: there is nothing
//! to guess, and nothing to learn from how long a lookup takes.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use plimsoll_model::access::Digest;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::authority::Fingerprint;
use super::base32::{self, Garbled};
use super::{DEFAULT_PORT, random};

const JOIN: &str = "plj_";
const OPERATOR: &str = "plo_";
const FLEET: &str = "plf_";

/// 160 bits: nobody tries them all in the day that a join token is good for, nor in any other.
const SECRET: usize = 20;
const JOIN_BYTES: usize = SECRET + 32;
pub(super) const OPERATOR_BYTES: usize = 32;

/// Why a text is not a token. It never repeats the text, which may be all but one letter of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidToken {
    #[error("there is no token")]
    Empty,
    #[error("this is an operator token; a join token begins with {JOIN}")]
    IsOperator,
    #[error("this is a join token; an operator token begins with {OPERATOR}")]
    IsJoin,
    #[error("this is not {what} token: those begin with {prefix}")]
    Prefix { what: &'static str, prefix: &'static str },
    #[error(
        "the token has {found} characters after {prefix}, it should have {expected}: part of it is missing or doubled"
    )]
    Length { prefix: &'static str, found: usize, expected: usize },
    #[error("the token has {found:?} as its character {at}, which no token has")]
    Character { found: char, at: usize },
    #[error("the token is mistyped: its check does not fit")]
    Mistyped,
}

/// Why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{address:?} is not an address: {why}")]
pub struct InvalidAddress {
    pub address: String,
    pub why: &'static str,
}

/// Why a text is not a token with an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidJoin {
    #[error(
        "an address is missing: write TOKEN@ADDRESS, as `plimsoll token create-join` prints it"
    )]
    NoAddress,
    #[error(transparent)]
    Token(#[from] InvalidToken),
    #[error(transparent)]
    Address(#[from] InvalidAddress),
}

/// What the cell keeps of a token.
pub(super) fn kept(domain: &str, secret: &[u8]) -> Digest {
    let hash = Sha256::new().chain_update(domain).chain_update([0]).chain_update(secret);
    Digest(hash.finalize().into())
}

/// Lets a node into the cell whose authority has this fingerprint.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    secret: [u8; SECRET],
    fingerprint: Fingerprint,
}

impl JoinToken {
    pub fn new(fingerprint: Fingerprint) -> Result<Self, super::Error> {
        Ok(Self { secret: random::bytes()?, fingerprint })
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub fn secret_hash(&self) -> Digest {
        kept(JOIN, &self.secret)
    }

    fn bytes(&self) -> Vec<u8> {
        [&self.secret[..], self.fingerprint.as_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8; JOIN_BYTES]) -> Self {
        let (secret, fingerprint) = bytes.split_at(SECRET);
        Self {
            secret: secret.try_into().expect("it was split there"),
            fingerprint: Fingerprint::from_bytes(fingerprint.try_into().expect("the rest")),
        }
    }
}

/// The whole token: whoever prints it means to.
impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{JOIN}{}", base32::encode(JOIN, &self.bytes()))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl FromStr for JoinToken {
    type Err = InvalidToken;
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        parse(text, JOIN).map(|bytes| Self::from_bytes(&bytes))
    }
}

/// Lets a cell into the fleet of the coordinator whose authority has this fingerprint.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetToken(JoinToken);

impl FleetToken {
    pub fn new(fingerprint: Fingerprint) -> Result<Self, super::Error> {
        JoinToken::new(fingerprint).map(Self)
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    pub fn secret_hash(&self) -> Digest {
        kept(FLEET, &self.0.secret)
    }
}

impl fmt::Display for FleetToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FLEET}{}", base32::encode(FLEET, &self.0.bytes()))
    }
}

impl fmt::Debug for FleetToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FleetToken").field(&self.0).finish()
    }
}

impl FromStr for FleetToken {
    type Err = InvalidToken;
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        parse(text, FLEET).map(|bytes| Self(JoinToken::from_bytes(&bytes)))
    }
}

/// A token for a fleet, and the node of its coordinator to bring it to: `TOKEN@ADDRESS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetAddress {
    pub token: FleetToken,
    /// A name or an IP address, with its port.
    pub address: String,
}

impl FromStr for FleetAddress {
    type Err = InvalidJoin;
    fn from_str(text: &str) -> Result<Self, InvalidJoin> {
        let (token, address) = pasted(text)?;
        Ok(Self { token, address })
    }
}

/// A token and an address that stand together.
fn pasted<T: FromStr<Err = InvalidToken>>(text: &str) -> Result<(T, String), InvalidJoin> {
    let Some((token, address)) = text.trim().split_once('@') else {
        // A token that is none is the greater trouble.
        text.parse::<T>()?;
        return Err(InvalidJoin::NoAddress);
    };
    Ok((token.parse()?, with_port(address)?))
}

/// Lets a person or a program use the API.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorToken([u8; OPERATOR_BYTES]);

impl OperatorToken {
    pub fn new() -> Result<Self, super::Error> {
        Ok(Self(random::bytes()?))
    }

    pub fn hash(&self) -> Digest {
        kept(OPERATOR, &self.0)
    }

    pub(super) const fn from_bytes(bytes: [u8; OPERATOR_BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) const fn as_bytes(&self) -> &[u8; OPERATOR_BYTES] {
        &self.0
    }
}

/// The whole token: whoever prints it means to.
impl fmt::Display for OperatorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OPERATOR}{}", base32::encode(OPERATOR, &self.0))
    }
}

impl fmt::Debug for OperatorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorToken")
    }
}

impl FromStr for OperatorToken {
    type Err = InvalidToken;
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        parse(text, OPERATOR).map(Self)
    }
}

fn parse<const N: usize>(text: &str, prefix: &'static str) -> Result<[u8; N], InvalidToken> {
    let text = text.trim();
    if text.is_empty() {
        return Err(InvalidToken::Empty);
    }
    let starts =
        |with: &str| text.get(..with.len()).is_some_and(|it| it.eq_ignore_ascii_case(with));
    if !starts(prefix) {
        return Err(match prefix {
            JOIN if starts(OPERATOR) => InvalidToken::IsOperator,
            OPERATOR if starts(JOIN) => InvalidToken::IsJoin,
            JOIN => InvalidToken::Prefix { what: "a join", prefix },
            FLEET => InvalidToken::Prefix { what: "a fleet", prefix },
            _ => InvalidToken::Prefix { what: "an operator", prefix },
        });
    }
    base32::decode(prefix, &text[prefix.len()..]).map_err(|garbled| match garbled {
        Garbled::Length { found } => {
            InvalidToken::Length { prefix, found, expected: base32::chars_of(N) }
        }
        Garbled::Character { found, at } => {
            InvalidToken::Character { found, at: prefix.len() + at + 1 }
        }
        Garbled::Check => InvalidToken::Mistyped,
    })
}

/// A join token, and the node to bring it to: `TOKEN@ADDRESS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinAddress {
    pub token: JoinToken,
    /// A name or an IP address, with its port.
    pub address: String,
}

impl fmt::Display for JoinAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.token, self.address)
    }
}

impl FromStr for JoinAddress {
    type Err = InvalidJoin;
    fn from_str(text: &str) -> Result<Self, InvalidJoin> {
        let (token, address) = pasted(text)?;
        Ok(Self { token, address })
    }
}

/// The address with its port, the default one where it names none.
pub fn with_port(address: &str) -> Result<String, InvalidAddress> {
    let bad = |why| InvalidAddress { address: address.to_owned(), why };
    // Six groups and their colons are an address of version 6 without brackets, and no port.
    if address.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{address}]:{DEFAULT_PORT}"));
    }
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(|| bad("a bracket is open"))?;
            host.parse::<Ipv6Addr>().map_err(|_| bad("only IPv6 stands in brackets"))?;
            let port = match port.strip_prefix(':') {
                None if port.is_empty() => None,
                None => return Err(bad("a colon and a port come after the bracket")),
                Some(port) => Some(port),
            };
            (format!("[{host}]"), port)
        }
        None => match address.split_once(':') {
            None => (address.to_owned(), None),
            Some((host, port)) => (host.to_owned(), Some(port)),
        },
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if host.is_empty() {
        return Err(bad("it has no host"));
    }
    if !host.starts_with('[') && !host.chars().all(is_host) {
        return Err(bad("a host has letters, digits, '-', '_' and '.'"));
    }
    let port = match port.map(str::parse::<u16>) {
        None => DEFAULT_PORT,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => return Err(bad("a port is a number from 1 to 65535")),
    };
    Ok(format!("{host}:{port}"))
}
