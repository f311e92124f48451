//! What case and scenario files have in common: nodes, deployments and quantities as they are written, and how text
//! becomes them. What a cell makes of them is settled in [`case`](crate::case) and [`scenario`](crate::scenario).

pub(crate) mod deployment;
pub(crate) mod node;
mod parse;
mod short;
pub(crate) mod values;

pub(crate) use parse::{FileKind, parse};
