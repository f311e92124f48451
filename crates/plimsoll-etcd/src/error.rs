//! What can go wrong with etcd, told apart as far as somebody would act differently.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tonic::{Code, ConnectError, Status};

/// Why a call failed. Each names what was asked of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    #[error("cannot use {what} for etcd: {why}")]
    Config { what: String, why: String },
    #[error(
        "cannot {action}: etcd is unreachable at {endpoints} ({why}); check that it runs and that the endpoints are right"
    )]
    Unreachable {
        action: &'static str,
        endpoints: Arc<str>,
        why: String,
        /// Whether the request had been sent.
        sent: bool,
    },
    #[error("cannot {action}: etcd did not answer within {after:?}")]
    TimedOut { action: &'static str, after: Duration },
    #[error("cannot {action}: {}", refused_user(.user.as_deref()))]
    AuthFailed { action: &'static str, user: Option<String> },
    #[error(
        "cannot {action}: etcd denied permission; grant the user's role readwrite on the prefix"
    )]
    Denied { action: &'static str },
    #[error(
        "cannot {action}: etcd is out of space and takes no writes; compact and defragment it, or raise its quota, \
         then disarm its NOSPACE alarm"
    )]
    NoSpace { action: &'static str },
    #[error("cannot {action}: etcd has compacted that part of its history")]
    Compacted { action: &'static str },
    #[error("cannot {action}: the request is too large for etcd ({why})")]
    TooLarge { action: &'static str, why: String },
    #[error("cannot {action}: lease not found in etcd; it expired or was revoked")]
    NoSuchLease { action: &'static str },
    #[error("cannot {action}: etcd refused: {why}")]
    Refused { action: &'static str, why: String },
}

fn refused_user(user: Option<&str>) -> String {
    match user {
        Some(user) => format!("etcd rejected user {user} or its password"),
        None => "etcd requires a user name and a password".to_owned(),
    }
}

impl Error {
    /// Whether the request may have had its effect all the same.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Unreachable { sent, .. } => *sent,
            // Also what etcd's own words do not tell apart.
            Self::TimedOut { .. } | Self::Refused { .. } => true,
            Self::Config { .. }
            | Self::AuthFailed { .. }
            | Self::Denied { .. }
            | Self::NoSpace { .. }
            | Self::Compacted { .. }
            | Self::TooLarge { .. }
            | Self::NoSuchLease { .. } => false,
        }
    }

    /// Whether it may well work a moment later, with nobody doing anything.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. })
    }
}

/// What an answer that is not a result means for the one who asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallFault {
    /// No connection: nothing was sent.
    NotSent,
    /// Turned away before it was looked at: it had no effect.
    Busy,
    /// The member had no answer; it may have passed the request on.
    Unanswered,
    /// The token is missing, expired or outdated: it had no effect.
    Token,
    Credentials,
    NoAuth,
    Denied,
    NoSpace,
    Compacted,
    TooLarge,
    NoSuchLease,
    Other,
}

pub(crate) fn fault(status: &Status) -> CallFault {
    if never_connected(status) {
        return CallFault::NotSent;
    }
    judge(status.code(), status.message())
}

fn never_connected(status: &Status) -> bool {
    let mut next = status.source();
    while let Some(cause) = next {
        if cause.is::<ConnectError>() {
            return true;
        }
        next = cause.source();
    }
    false
}

/// Etcd's codes are coarse; what tells its errors apart are their words, which its own client compares as well.
pub(crate) fn judge(code: Code, message: &str) -> CallFault {
    let says = |words: &str| message.contains(words);
    match code {
        Code::Unauthenticated => CallFault::Token,
        Code::InvalidArgument
            if says("user name is empty") || says("revision of auth store is old") =>
        {
            CallFault::Token
        }
        Code::InvalidArgument if says("authentication failed") => CallFault::Credentials,
        Code::InvalidArgument if says("too large") || says("too many operations") => {
            CallFault::TooLarge
        }
        Code::FailedPrecondition if says("authentication is not enabled") => CallFault::NoAuth,
        Code::PermissionDenied => CallFault::Denied,
        Code::ResourceExhausted if says("database space exceeded") => CallFault::NoSpace,
        Code::ResourceExhausted if says("too many requests") => CallFault::Busy,
        Code::ResourceExhausted if says("larger than max") => CallFault::TooLarge,
        Code::OutOfRange if says("has been compacted") => CallFault::Compacted,
        Code::NotFound if says("lease not found") => CallFault::NoSuchLease,
        // The last two are how a connection that broke reaches us.
        Code::Unavailable
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Unknown
        | Code::Internal => CallFault::Unanswered,
        _ => CallFault::Other,
    }
}

/// A status and what caused it, in one line, each thing once.
pub(crate) fn words(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut next = status.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = if text.is_empty() { more } else { format!("{text}: {more}") };
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcds_words_are_told_apart() {
        for (code, message, expected) in [
            (Code::Unauthenticated, "etcdserver: invalid auth token", CallFault::Token),
            (Code::InvalidArgument, "etcdserver: user name is empty", CallFault::Token),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", CallFault::Token),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                CallFault::Credentials,
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
                CallFault::NoAuth,
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", CallFault::Denied),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                CallFault::NoSpace,
            ),
            (Code::ResourceExhausted, "etcdserver: too many requests", CallFault::Busy),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3 vs. 2)",
                CallFault::TooLarge,
            ),
            (Code::InvalidArgument, "etcdserver: request is too large", CallFault::TooLarge),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                CallFault::TooLarge,
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                CallFault::Compacted,
            ),
            (Code::NotFound, "etcdserver: requested lease not found", CallFault::NoSuchLease),
            (Code::Unavailable, "etcdserver: request timed out", CallFault::Unanswered),
            (Code::InvalidArgument, "etcdserver: key is not provided", CallFault::Other),
        ] {
            assert_eq!(judge(code, message), expected, "{message}");
        }
    }
}
