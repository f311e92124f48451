//! What a handler is told of whoever asks. Every request has an `Option<Caller>` and a [`Remote`] among its extensions.

use std::net::SocketAddr;

use axum::extract::{FromRequestParts, Request};
use hyper::StatusCode;
use hyper::http::request::Parts;
use plimsoll_model::access::Digest;

use crate::pki::Caller;

/// For whoever shows no certificate.
const UNKNOWN: (StatusCode, &str) =
    (StatusCode::UNAUTHORIZED, "a node's certificate is needed here");

/// Where a request comes from, for the audit and nothing else: it is no proof of anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote(pub SocketAddr);

/// The key that the caller's certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(pub Digest);

impl Key {
    /// The key of whoever sent this, where that is a node.
    pub fn of(request: &Request) -> Option<Self> {
        request.extensions().get::<Option<Self>>().copied().flatten()
    }
}

impl<S: Sync> FromRequestParts<S> for Key {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Option<Self>>().copied().flatten().ok_or(UNKNOWN)
    }
}

/// A shard of the fleet that this cell coordinates, by its certificate and the key that it is for. It is no node, and has neither a
/// [`KnownCaller`] nor a [`Key`]: what takes one of those is closed to it.
///
/// That it is of the fleet still, and that its key is the one enrolled for its name, is for the handler to see to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownShard {
    /// As its certificate names it.
    pub name: String,
    pub key: Digest,
}

impl<S: Sync> FromRequestParts<S> for KnownShard {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let shard = parts.extensions.get::<Option<Self>>().cloned().flatten();
        shard.ok_or((StatusCode::UNAUTHORIZED, "a shard's certificate is needed here"))
    }
}

/// A caller with a certificate of this cell. A handler that takes this is closed to all others.
///
/// That the node is of the cell still, and that its [`Key`] is the one enrolled for its name, is for the handler to see to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCaller(pub Caller);

impl<S: Sync> FromRequestParts<S> for KnownCaller {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let caller = parts.extensions.get::<Option<Caller>>().cloned().flatten();
        caller.map(Self).ok_or(UNKNOWN)
    }
}
