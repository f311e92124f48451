//! What a cell of several servers promises: how soon it goes on when one is lost, how much it commits, and what ten thousand
//! agents cost the one that leads.

mod agents;
mod commits;
pub(super) mod daemons;
mod deleting;
mod failover;
mod loss;
mod wire;

pub(super) use agents::agents;
pub(super) use commits::commits;
pub(super) use deleting::deleting;
pub(super) use failover::failover;
pub(super) use loss::loss;
pub(super) use wire::wire;

/// This program is also the other processes that some parts need: what a word makes of it, if it is one of theirs.
pub(super) fn other(word: &str) -> Option<fn(&[String])> {
    match word {
        agents::WORD => Some(agents::be_agents),
        commits::WORD => Some(commits::be_server),
        _ => None,
    }
}
