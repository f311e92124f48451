//! A better layout: what is asked for, the plan that was found, and what is carried out of it.

use plimsoll_kernel::optimize;
use plimsoll_model::optimize::{OptimizeReason, OptimizedMove};
use plimsoll_model::{NodeId, Pressure, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Problem, ProblemCode};

/// How many moves a plan has at most where nobody says otherwise.
pub const DEFAULT_MOVES: u32 = 20;

/// How long it is searched where nobody says otherwise, and at most: whoever passed the question on waits so long for the
/// answer.
const DEFAULT_TIME_MS: u64 = 10_000;
pub const MAX_TIME_MS: u64 = 60_000;

/// How a better layout is to be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Optimize {
    /// The most moves, from 1 to 1000.
    pub moves: u32,
    /// How long to search, up to a minute.
    pub time_ms: u64,
    /// Equal seeds and equal steps give equal plans.
    pub seed: u64,
}

impl Default for Optimize {
    fn default() -> Self {
        Self { moves: DEFAULT_MOVES, time_ms: DEFAULT_TIME_MS, seed: 0 }
    }
}

/// The best plan that was found. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OptimizePlan {
    pub cell: String,
    /// In order: each fits once those before it are done.
    pub moves: Vec<OptimizeMove>,
    /// What they bring together, in points of placement's score.
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

/// One move of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OptimizeMove {
    pub replica: String,
    pub from: String,
    pub to: String,
    /// `better_place`, `makes_room` or `frees_node`.
    pub why: String,
    /// The replica that it makes room for.
    #[serde(default)]
    pub makes_room_for: Option<String>,
    /// What it alone brings, in points; below 0 where it only makes room.
    #[serde(default)]
    pub gain: i64,
}

/// A layout in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayoutFigures {
    /// Nodes that run anything but what runs on every node.
    pub nodes_in_use: usize,
    /// The share of the fullest node that is reserved, in millionths.
    #[schema(value_type = u32)]
    pub fullest: Pressure,
}

/// A plan that is to be carried out: as it was found, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyOptimize {
    pub moves: Vec<OptimizeMove>,
}

/// A plan that is carried out from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OptimizeStarted {
    pub moves: u32,
    pub gain: i64,
}

impl Optimize {
    /// What the kernel is asked, or what is wrong with the question.
    pub fn limits(self) -> Result<optimize::OptimizeLimits, Problem> {
        let most = optimize::MAX_MOVES;
        let moves = self.moves as usize;
        if !(1..=most).contains(&moves) {
            let message = format!("a plan of {moves} moves cannot be asked for");
            let hint = format!("say a number from 1 to {most}");
            return Err(Problem::new(ProblemCode::BadOptimize, message).hint(hint));
        }
        if !(1..=MAX_TIME_MS).contains(&self.time_ms) {
            let message = format!("a search of {} ms cannot be asked for", self.time_ms);
            let hint = format!("say a time up to {}s", MAX_TIME_MS / 1_000);
            return Err(Problem::new(ProblemCode::BadOptimize, message).hint(hint));
        }
        Ok(optimize::OptimizeLimits { moves, seed: self.seed })
    }
}

impl From<optimize::LayoutFigures> for LayoutFigures {
    fn from(optimize::LayoutFigures { nodes_in_use, fullest }: optimize::LayoutFigures) -> Self {
        Self { nodes_in_use, fullest }
    }
}

impl From<&OptimizedMove> for OptimizeMove {
    fn from(OptimizedMove { replica, src, dst, why, gain }: &OptimizedMove) -> Self {
        let makes_room_for = match why {
            OptimizeReason::MakesRoom { of } => Some(of.to_string()),
            OptimizeReason::BetterPlace | OptimizeReason::FreesNode => None,
        };
        Self {
            replica: replica.to_string(),
            from: src.to_string(),
            to: dst.to_string(),
            why: why.word().to_owned(),
            makes_room_for,
            gain: *gain,
        }
    }
}

impl OptimizePlan {
    pub fn of(state: &State, plan: &optimize::OptimizePlan) -> Self {
        Self {
            cell: state.cell_id().to_string(),
            moves: plan.moves.iter().map(Into::into).collect(),
            gain: plan.gain,
            before: plan.before.into(),
            after: plan.after.into(),
            movable: plan.movable,
            steps: plan.steps,
            is_whole: plan.is_whole,
        }
    }
}

impl ApplyOptimize {
    /// The moves by the names that this cell knows, or what is not clear.
    pub fn moves(&self, state: &State) -> Result<Vec<OptimizedMove>, Problem> {
        let replica = |name: &str| {
            state.find_replica(name).ok_or_else(|| {
                Problem::new(ProblemCode::NoSuchReplica, format!("there is no replica {name}"))
            })
        };
        let node = |name: &str| {
            let known =
                state.nodes().get_key_value(name).map(|(node, _): (&NodeId, _)| node.clone());
            known.ok_or_else(|| {
                Problem::new(ProblemCode::NoSuchNode, format!("there is no node {name}"))
            })
        };
        let one = |asked: &OptimizeMove| {
            let why = match (asked.why.as_str(), &asked.makes_room_for) {
                ("better_place", None) => OptimizeReason::BetterPlace,
                ("frees_node", None) => OptimizeReason::FreesNode,
                ("makes_room", Some(of)) => OptimizeReason::MakesRoom { of: replica(of)? },
                (why, _) => {
                    let message =
                        format!("{} is moved for no reason that is known: {why}", asked.replica);
                    let hint = "send the moves as `optimize` found them";
                    return Err(Problem::new(ProblemCode::BadOptimize, message).hint(hint));
                }
            };
            let (replica, src, dst) =
                (replica(&asked.replica)?, node(&asked.from)?, node(&asked.to)?);
            Ok(OptimizedMove { replica, src, dst, why, gain: asked.gain })
        };
        self.moves.iter().map(one).collect()
    }
}

/// Why a plan is not carried out.
pub fn refused(why: &optimize::PlanRefusal) -> Problem {
    use optimize::PlanRefusal;
    match why {
        PlanRefusal::Empty => Problem::new(ProblemCode::BadOptimize, "the plan has no moves"),
        PlanRefusal::TooMany { moves } => {
            let message = format!("the plan has {moves} moves, of at most {}", optimize::MAX_MOVES);
            Problem::new(ProblemCode::BadOptimize, message)
        }
        PlanRefusal::NotMovable { replica } => {
            let message = format!("{replica} is not there any more, or may not be moved now");
            Problem::new(ProblemCode::PlanOutdated, message)
        }
        PlanRefusal::DoesNotFit { replica } => {
            let message = format!("the node that {replica} is to go to cannot take it");
            Problem::new(ProblemCode::PlanOutdated, message)
        }
        PlanRefusal::NoGain { gain } => {
            let message = format!("the plan brings nothing any more: {gain} points");
            Problem::new(ProblemCode::PlanOutdated, message)
        }
    }
}
