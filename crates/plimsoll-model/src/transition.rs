//! Who may take a state where. Each state enum keeps its table of [`Edge`]s beside it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The component that writes a change. Every edge of every table belongs to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writer {
    /// A person or a program with a token, through the API.
    Operator,
    /// The leader's watch over silent and returning nodes.
    Liveness,
    /// The leader's scheduler pass.
    Scheduler,
    /// A node, about what runs on it.
    Agent,
    /// The leader's relief of hot nodes.
    Rebalancer,
    /// The leader's background look for better places.
    Rescheduler,
    /// The leader's look at the machines of the cell.
    Shard,
    /// What a provider of machines says of one.
    Provider,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operator => "operator",
            Self::Liveness => "liveness",
            Self::Scheduler => "scheduler",
            Self::Agent => "agent",
            Self::Rebalancer => "rebalancer",
            Self::Rescheduler => "rescheduler",
            Self::Shard => "shard",
            Self::Provider => "provider",
        })
    }
}

/// A legal step from one state to another, and who takes it.
#[derive(Debug)]
pub struct Edge<S: 'static> {
    pub from: S,
    pub to: &'static [S],
    pub by: Writer,
}

/// Whether the table has this step for this writer.
pub fn allows<S: PartialEq>(table: &[Edge<S>], from: &S, to: &S, by: Writer) -> bool {
    table.iter().any(|edge| edge.from == *from && edge.by == by && edge.to.contains(to))
}
