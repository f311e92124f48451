//! What can be wrong with what the workbench is given, and with what it is asked for.

use plimsoll_compose::Diagnostics;
use plimsoll_kernel::lint::Violation;
use plimsoll_model::Rejection;

use crate::input::{InputError, errors_in};
use crate::mistake::LocatedMistake;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Input(#[from] InputError),
    /// One thing is wrong with a case or scenario file.
    #[error("{}", .0.mistake.message)]
    Mistake(Box<LocatedMistake>),
    /// Something is wrong with compose files.
    #[error("{}", errors_in(.diagnostics.list.len() + .diagnostics.more, .files))]
    Compose { diagnostics: Box<Diagnostics>, files: Vec<String> },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Name(#[from] crate::explain::NameError),
    #[error(transparent)]
    Trace(#[from] crate::trace::TraceError),
    #[error(transparent)]
    Instance(#[from] crate::reassignment::InstanceError),
    /// What is asked about cannot be, as a running cell would say it.
    #[error("{}", .0.message)]
    Problem(Box<plimsoll_api::view::Problem>),
    #[error("cannot draw the report: {0}")]
    Draw(String),
}

/// A plan that must not be shown as if it were good.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the plan breaks its own rules:{}", listed(.0))]
    Broken(Vec<Violation>),
    #[error("the state refuses its own scheduler's plan: {0}")]
    Rejected(Box<Rejection>),
}

impl From<Box<plimsoll_api::view::Problem>> for Error {
    fn from(problem: Box<plimsoll_api::view::Problem>) -> Self {
        Self::Problem(problem)
    }
}

fn listed(broken: &[Violation]) -> String {
    let lines: Vec<String> = broken.iter().map(|violation| format!("\n  {violation}")).collect();
    lines.concat()
}

impl Error {
    /// Whether the person who asked can put it right; else the world, or plimsoll itself, is at fault.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Input(error) => error.is_refusal(),
            Self::Name(error) => error.is_refusal(),
            Self::Trace(error) => error.is_refusal(),
            Self::Instance(error) => error.is_refusal(),
            Self::Problem(problem) => problem.is_refusal,
            Self::Mistake(_) | Self::Compose { .. } => true,
            Self::Plan(_) | Self::Draw(_) => false,
        }
    }

    /// What to do about it, where the message does not say so.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Input(error) => error.hint(),
            Self::Name(error) => error.hint(),
            Self::Trace(error) => error.hint(),
            Self::Instance(error) => error.hint(),
            Self::Mistake(located) => located.mistake.hint.clone(),
            Self::Problem(problem) => problem.hint.clone(),
            Self::Plan(_) => {
                Some("this is a bug in plimsoll: please report it with the case file".to_owned())
            }
            Self::Compose { .. } | Self::Draw(_) => None,
        }
    }
}
