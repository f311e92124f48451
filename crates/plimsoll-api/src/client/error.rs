//! Why a request came to nothing.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::endpoint::{ChosenEndpoint, Endpoint};
use crate::view::{Problem, ProblemCode};

#[derive(Debug, Error)]
pub enum Error {
    /// The daemon said no, or that it could not.
    #[error("{}", .0.message)]
    Problem(Problem),
    #[error("cannot reach the daemon at {endpoint}")]
    Unreachable { endpoint: ChosenEndpoint, source: io::Error },
    /// Whoever answers is not of the cell that was meant. It was told nothing.
    #[error("{endpoint} is not a node of the expected cell: {why}; nothing was sent to it")]
    Untrusted { endpoint: ChosenEndpoint, why: String },
    /// It is connected and says nothing.
    #[error("the daemon at {endpoint} has not answered within {} s", within.as_secs())]
    TimedOut {
        endpoint: ChosenEndpoint,
        within: Duration,
        /// Whether it may have done what it was asked all the same.
        is_write: bool,
    },
    #[error("the daemon at {endpoint} gave an answer that cannot be understood: {what}")]
    Protocol { endpoint: ChosenEndpoint, what: String },
    #[error("cannot write what the daemon sent")]
    Local(#[source] io::Error),
}

impl Error {
    /// The next step.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Problem(problem) => return problem.hint.clone(),
            Self::Unreachable {
                endpoint: ChosenEndpoint { endpoint: Endpoint::Unix(path), .. },
                source,
            } => match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    let path = path.display();
                    return Some(format!(
                        "only its owner and group may use {path}; join that group, or use sudo"
                    ));
                }
                _ => "is the daemon running? start it with `plimsoll up`",
            },
            Self::Unreachable { .. } => {
                "is the daemon running there, and does it listen on TCP? start it with `plimsoll up --listen`"
            }
            Self::Untrusted { .. } => {
                "another machine may answer in its place, or the cell was founded anew: if you know that it was, ask an admin \
                 for a new login string"
            }
            Self::TimedOut { is_write: true, .. } => {
                "whether it was done is not known: look before you ask again; the daemon may be stopped or overloaded"
            }
            Self::TimedOut { .. } => {
                "it may be stopped or overloaded: look at its process and its log, or ask another node with `--host`"
            }
            Self::Protocol { .. } => {
                "something else may answer there, or a plimsoll of another version"
            }
            Self::Local(_) => return None,
        };
        Some(text.to_owned())
    }

    /// Whether the request is at fault; else the world is.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.is_refusal)
    }

    /// The daemon's own word for it.
    pub fn code(&self) -> Option<ProblemCode> {
        match self {
            Self::Problem(problem) => Some(problem.code),
            Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::TimedOut { .. }
            | Self::Protocol { .. }
            | Self::Local(_) => None,
        }
    }
}
