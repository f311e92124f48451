//! A better layout of what already runs, for an operator who asks: given a cell and how many moves may be made, the moves in
//! the order in which each of them fits, and what they bring. Nothing is written here.
//!
//! What a layout is worth is the sum of what placement's own score says of it ([`board`]), and a replica goes only where
//! placement's own filters let it go at that moment, with what it leaves behind still there. What may be moved at all, and
//! which nodes are sent anything, are the rescheduler's rules; and what it would move back is not part of a plan. How moves are
//! found is in [`search`], and how a plan is carried out, one move after another, in [`pursuit`].

use plimsoll_model::optimize::{OptimizeReason, OptimizedMove};
use plimsoll_model::{Pressure, ReplicaId};

use crate::place::Roster;
use crate::reschedule::is_mass_loss;
use crate::what_if::KnownCell;

mod board;
pub(crate) mod pursuit;
mod search;

#[cfg(test)]
mod tests;

use board::Board;
use search::Search;

/// The most moves of one plan: what a large cell carries out in an hour.
pub const MAX_MOVES: usize = 1_000;

/// What a move must bring, in points of the score: a quarter of a preference, or of a band of headroom for one replica.
pub const LEAST_GAIN: i64 = 50;

/// How much may be done, and by which chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptimizeLimits {
    pub moves: usize,
    pub seed: u64,
}

/// A better layout, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptimizePlan {
    /// In order: each fits once those before it are done.
    pub moves: Vec<OptimizedMove>,
    /// What they bring together, in points of the score.
    pub gain: i64,
    pub before: LayoutFigures,
    pub after: LayoutFigures,
    /// How many replicas could be moved at all.
    pub movable: usize,
    /// Looks at a replica and a node on the way.
    pub steps: u64,
    /// Nothing more was found; else the time was up.
    pub is_whole: bool,
}

/// A layout in numbers that people know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutFigures {
    /// Nodes that run anything but what runs on every node.
    pub nodes_in_use: usize,
    /// The share of the fullest node that is reserved.
    pub fullest: Pressure,
}

/// Why a plan that was found earlier is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanRefusal {
    Empty,
    TooMany {
        moves: usize,
    },
    /// It is gone, is elsewhere, is named twice, or may not be moved now.
    NotMovable {
        replica: ReplicaId,
    },
    /// Its node cannot take it at its turn.
    DoesNotFit {
        replica: ReplicaId,
    },
    /// All of it together brings nothing.
    NoGain {
        gain: i64,
    },
}

/// The best plan found until `is_late`, which is told how many steps were taken, says that the time is up.
pub fn optimize(
    cell: &KnownCell<'_>,
    limits: OptimizeLimits,
    is_late: &mut dyn FnMut(u64) -> bool,
) -> OptimizePlan {
    let board = board(cell);
    let before = board.figures();
    let moves = if is_mass_loss(cell.state) { 0 } else { limits.moves.min(MAX_MOVES) };
    let mut search = Search::new(board, moves, limits.seed, is_late);
    let is_whole = search.run();
    let (mut board, mut best, steps) = search.end();
    board.reset();
    // What the rescheduler would move on is no better layout: then less is.
    while !best.is_empty() && !board.is_settled_by(&best.moves()) {
        best.shorten();
    }
    let moves = carried_out(&mut board, best.moves());
    let gain = moves.iter().map(|moved| moved.gain).sum();
    let after = board.figures();
    OptimizePlan { gain, before, after, movable: board.movers(), steps, is_whole, moves }
}

/// A plan that was found earlier, looked at again: as it would go now, or why not.
pub fn check(
    cell: &KnownCell<'_>,
    asked: &[OptimizedMove],
) -> Result<Vec<OptimizedMove>, PlanRefusal> {
    if asked.is_empty() {
        return Err(PlanRefusal::Empty);
    }
    if asked.len() > MAX_MOVES {
        return Err(PlanRefusal::TooMany { moves: asked.len() });
    }
    let mut board = board(cell);
    let mut checked = Vec::with_capacity(asked.len());
    for moved in asked {
        let OptimizedMove { replica, src, dst, why, .. } = moved;
        let mover = board.find(replica, src);
        let mover = mover.ok_or_else(|| PlanRefusal::NotMovable { replica: replica.clone() })?;
        let to = board.place_of(dst).filter(|to| board.fits(mover, *to));
        let to = to.ok_or_else(|| PlanRefusal::DoesNotFit { replica: replica.clone() })?;
        let gain = board.delta(mover, to);
        board.shift(mover, to);
        checked.push(board.told(mover, src, why.clone(), gain));
    }
    let gain = checked.iter().map(|moved| moved.gain).sum();
    if gain > 0 { Ok(checked) } else { Err(PlanRefusal::NoGain { gain }) }
}

fn board<'s>(cell: &KnownCell<'s>) -> Board<'s> {
    let roster = Roster::new(cell.state, cell.signals, cell.policy);
    Board::new(cell, &roster)
}

/// The moves as they are told, on a board that has them done afterwards.
fn carried_out(
    board: &mut Board<'_>,
    moves: Vec<(usize, usize, OptimizeReason)>,
) -> Vec<OptimizedMove> {
    let told = moves.into_iter().map(|(mover, to, why)| {
        let (src, gain) = (board.node_of(mover).clone(), board.delta(mover, to));
        board.shift(mover, to);
        board.told(mover, &src, why, gain)
    });
    told.collect()
}
