//! `plimsoll decide`: what plimsoll would decide on a case, printed instead of done.

use plimsoll_kernel::place::Score;
use plimsoll_model::{MoveCause, NodeId};
use serde::Serialize;
use serde_json::Value;

use crate::case;
use crate::decided::{Decided, Fate, Outcome};
use crate::output::{Format, note, print};
use crate::table::Table;
use crate::trouble::Trouble;

mod rebalance;

const EXAMPLES: &str = "\
Examples:
  plimsoll decide place --input examples/cell.yaml
  plimsoll decide place --input examples/cell.yaml -o json
  cat case.yaml | plimsoll decide place --input -

The words of a case file are in docs/reference/case-format.md.
What finds no place is part of the answer: the exit code is 0 whenever there is one.";

/// Show what plimsoll would decide on a described cell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Place(PlaceArgs),
    Rebalance(rebalance::RebalanceArgs),
}

/// Show what one scheduler pass would place, move and leave alone.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct PlaceArgs {
    /// The case: nodes, deployments and what runs now, as YAML or JSON; `-` for stdin
    #[arg(short, long, value_name = "CASE")]
    input: String,
    /// How to print the decision
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    match &args.what {
        What::Place(args) => place(args),
        What::Rebalance(args) => rebalance::run(args),
    }
}

fn place(args: &PlaceArgs) -> Result<(), Trouble> {
    let decided = Decided::new(case::read(&args.input)?)?;
    let plan = Plan::of(&decided);
    print(args.output, &plan, table)?;
    note(&plan.summary());
    Ok(())
}

/// The decision, sorted by replica.
#[derive(Debug, Serialize)]
struct Plan {
    cluster: String,
    placed: Vec<Placed>,
    moved: Vec<Moved>,
    retired: Vec<Retired>,
    stays: Vec<Stays>,
    unplaced: Vec<Unplaced>,
}

#[derive(Debug, Serialize)]
struct Placed {
    replica: String,
    service: String,
    node: NodeId,
    /// None for `global`, which takes every node it may.
    score: Option<u16>,
    parts: Option<Score>,
}

#[derive(Debug, Serialize)]
struct Moved {
    replica: String,
    service: String,
    from: NodeId,
    to: NodeId,
    cause: MoveCause,
    score: Option<u16>,
    parts: Option<Score>,
}

#[derive(Debug, Serialize)]
struct Retired {
    replica: String,
    service: String,
    node: NodeId,
}

#[derive(Debug, Serialize)]
struct Stays {
    replica: String,
    service: String,
    node: NodeId,
    reason: &'static str,
    detail: String,
}

#[derive(Debug, Serialize)]
struct Unplaced {
    service: String,
    missing: u32,
    reason: &'static str,
    detail: String,
    /// The reason with its numbers.
    why: Value,
}

impl Plan {
    fn of(decided: &Decided) -> Self {
        let mut plan = Self {
            cluster: decided.after.cluster().to_string(),
            placed: Vec::new(),
            moved: Vec::new(),
            retired: Vec::new(),
            stays: Vec::new(),
            unplaced: Vec::new(),
        };
        for outcome in &decided.outcomes {
            plan.add(outcome);
        }
        for (key, unplaced) in decided.unplaced() {
            plan.unplaced.push(Unplaced {
                service: key.to_string(),
                missing: unplaced.missing,
                reason: unplaced.why.word(),
                detail: unplaced.why.to_string(),
                why: serde_json::to_value(&unplaced.why).unwrap_or_default(),
            });
        }
        plan
    }

    fn add(&mut self, outcome: &Outcome) {
        let Outcome { id, node, fate, .. } = outcome;
        let (replica, service, node) = (id.to_string(), id.service.to_string(), node.clone());
        match fate {
            Fate::Placed { score: parts } => {
                let (score, parts) = (parts.map(Score::total), *parts);
                self.placed.push(Placed { replica, service, node, score, parts });
            }
            Fate::Moved { from, cause, score: parts } => {
                let (from, cause) = (from.clone(), *cause);
                let (score, parts, to) = (parts.map(Score::total), *parts, node);
                self.moved.push(Moved { replica, service, from, to, cause, score, parts });
            }
            Fate::Retired => self.retired.push(Retired { replica, service, node }),
            Fate::Stays(stay) => {
                let (reason, detail) = stay.words();
                self.stays.push(Stays { replica, service, node, reason, detail });
            }
        }
    }

    /// `5 placed, 1 moved, 2 stay, 1 unplaced`
    fn summary(&self) -> String {
        let missing: u32 = self.unplaced.iter().map(|unplaced| unplaced.missing).sum();
        let mut parts = vec![
            format!("{} placed", self.placed.len()),
            format!("{} moved", self.moved.len()),
            format!("{} stay", self.stays.len()),
        ];
        if !self.retired.is_empty() {
            parts.push(format!("{} retired", self.retired.len()));
        }
        parts.push(format!("{missing} unplaced"));
        parts.join(", ")
    }
}

fn table(plan: &Plan) -> String {
    let mut placed = Table::new(["PLACED", "NODE", ">SCORE", "WHY"]);
    for one in &plan.placed {
        placed.row([one.replica.clone(), one.node.to_string(), number(one.score), why(one.parts)]);
    }
    let mut moved = Table::new(["MOVED", "FROM", "TO", "CAUSE", ">SCORE", "WHY"]);
    for one in &plan.moved {
        moved.row([
            one.replica.clone(),
            one.from.to_string(),
            one.to.to_string(),
            one.cause.word().to_owned(),
            number(one.score),
            one.parts.map_or_else(|| "renewed in its own place".to_owned(), parts),
        ]);
    }
    let mut retired = Table::new(["RETIRED", "NODE"]);
    for one in &plan.retired {
        retired.row([one.replica.clone(), one.node.to_string()]);
    }
    let mut stays = Table::new(["STAYS", "NODE", "REASON", "DETAIL"]);
    for one in &plan.stays {
        stays.row([
            one.replica.clone(),
            one.node.to_string(),
            one.reason.to_owned(),
            one.detail.clone(),
        ]);
    }
    let mut unplaced = Table::new(["UNPLACED", ">MISSING", "REASON", "DETAIL"]);
    for one in &plan.unplaced {
        unplaced.row([
            one.service.clone(),
            one.missing.to_string(),
            one.reason.to_owned(),
            one.detail.clone(),
        ]);
    }
    let tables = [placed, moved, retired, stays, unplaced];
    let full = tables.iter().filter(|table| !table.is_empty());
    full.map(Table::render).collect::<Vec<_>>().join("\n")
}

fn number(score: Option<u16>) -> String {
    score.map_or_else(|| "-".to_owned(), |score| score.to_string())
}

fn why(score: Option<Score>) -> String {
    score.map_or_else(|| "one on every node that may hold it".to_owned(), parts)
}

/// The named parts of a score.
pub(crate) fn parts(score: Score) -> String {
    let Score { zone, node, headroom, preferred } = score;
    format!("zone {zone}, node {node}, headroom {headroom}, preferred {preferred}")
}
