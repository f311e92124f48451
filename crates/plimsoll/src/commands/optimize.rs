//! `plimsoll optimize`: a better layout of what runs, under a budget of moves, in the running cell or in a described one. It is
//! carried out only where `--apply` says so.

use std::time::{Duration, Instant};

use plimsoll_api::view::{
    ApplyOptimize, DEFAULT_MOVES, LayoutFigures, Optimize, OptimizeMove, OptimizePlan,
};
use plimsoll_model::Millis;
use plimsoll_workbench::{Error, optimize};

use crate::age::length;
use crate::commands::decide::read_case;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, count, note, print};
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  plimsoll optimize                           the best plan of at most 20 moves that 10 seconds find
  plimsoll optimize --moves 5 --time 30s      fewer moves, and a longer search
  plimsoll optimize --apply                   carry it out
  plimsoll optimize --input case.json         in a cell that `plimsoll snapshot export` wrote down

Nothing is done without --apply, which needs role admin. What a layout is worth, and what is never moved, is in
docs/reference/optimize.md.";

/// Search for a better layout of what runs, and carry it out on request.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The most moves
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MOVES)]
    moves: u32,
    /// How long to search
    #[arg(long, value_name = "LENGTH", default_value = "10s", value_parser = length)]
    time: Millis,
    /// Random seed: equal seeds and equal steps give equal plans
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Carry the plan out
    #[arg(long, conflicts_with = "input")]
    apply: bool,
    /// A case instead of the running cell, as `plimsoll snapshot export` writes it; `-` for stdin
    #[arg(short, long, value_name = "CASE")]
    input: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let asked = Optimize { moves: args.moves, time_ms: args.time.0, seed: args.seed };
    if let Some(input) = &args.input {
        let limits = asked.limits().map_err(|problem| Error::from(Box::new(problem)))?;
        let case = read_case(input)?;
        let (begun, longest) = (Instant::now(), Duration::from_millis(args.time.0));
        let plan = optimize::plan(&case, limits, &mut |_| begun.elapsed() > longest);
        return print(args.output, &plan, text);
    }
    let client = args.host.client()?;
    live::block_on(async {
        let plan = client.optimize(&asked).await?;
        print(args.output, &plan, text)?;
        if args.apply && !plan.moves.is_empty() {
            let started = client.apply_optimize(&ApplyOptimize { moves: plan.moves }).await?;
            let moves = count(started.moves as usize, "move");
            note(&format!(
                "carrying out {moves}; `plimsoll audit --type optimize` says how it goes"
            ));
        }
        Ok::<_, CliError>(())
    })
}

fn text(plan: &OptimizePlan) -> String {
    let OptimizePlan { moves, gain, before, after, movable, steps, is_whole, .. } = plan;
    let searched = if *is_whole {
        format!("searched to the end in {steps} steps")
    } else {
        format!("the time was up after {steps} steps")
    };
    let of = count(*movable, "replica");
    if moves.is_empty() {
        return format!("no better layout found: {of} can be moved, {searched}\n");
    }
    let mut table = Table::new([">#", "REPLICA", "FROM", "TO", ">GAIN", "WHY"]);
    for (nth, moved) in moves.iter().enumerate() {
        table.row([
            (nth + 1).to_string(),
            moved.replica.clone(),
            moved.from.clone(),
            moved.to.clone(),
            format!("{:+}", moved.gain),
            why(moved),
        ]);
    }
    format!(
        "{}\n{} for {gain} points; {of} can be moved, {searched}\n{}\n",
        table.render(),
        count(moves.len(), "move"),
        figures(before, after)
    )
}

fn why(moved: &OptimizeMove) -> String {
    match &moved.makes_room_for {
        Some(other) => format!("{} for {other}", moved.why),
        None => moved.why.clone(),
    }
}

fn figures(before: &LayoutFigures, after: &LayoutFigures) -> String {
    format!(
        "nodes in use {} → {}, reserved on the fullest {} → {}",
        before.nodes_in_use, after.nodes_in_use, before.fullest, after.fullest
    )
}
