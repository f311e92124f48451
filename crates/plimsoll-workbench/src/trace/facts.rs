//! What replays found, in numbers: a line a day, and all of them together.

use std::fmt::Write as _;

use plimsoll_model::Pressure;
use plimsoll_model::review::MovingLoop;
use plimsoll_sim::trace::{Measured, Move};
use serde::Serialize;

use super::TraceRun;

#[derive(Debug, Serialize)]
pub struct TraceFacts {
    traces: &'static str,
    days: Vec<TraceRow>,
    all: TraceRow,
}

/// Shares are in percent.
#[derive(Debug, Serialize)]
struct TraceRow {
    day: String,
    seed: String,
    nodes: usize,
    tasks: usize,
    without: HotShares,
    moves: usize,
    /// Moves taken back within an hour.
    undone: usize,
    /// Of the moves, those that the rescheduler chose.
    rescheduled: usize,
    /// Moves of the rebalancer that were judged ten minutes later, and those that brought half of what was predicted or more.
    judged: u64,
    held: u64,
    #[serde(flatten)]
    with: HotShares,
}

#[derive(Debug, Serialize)]
struct HotShares {
    #[serde(rename = "hot_percent")]
    hot: f64,
    #[serde(rename = "saturated_percent")]
    saturated: f64,
    #[serde(rename = "unmet_percent")]
    unmet: f64,
}

impl HotShares {
    fn of(measured: &Measured) -> Self {
        let percent = |share: Pressure| f64::from(share.millionths()) / 1e4;
        let [hot, saturated, unmet] = measured.shares().map(percent);
        Self { hot, saturated, unmet }
    }

    /// Every day counts alike, however many nodes it has: so the protocol has it.
    #[expect(clippy::cast_precision_loss, reason = "a number of days")]
    fn mean(days: &[TraceRow], of: fn(&TraceRow) -> &Self) -> Self {
        let mean = |share: fn(&Self) -> f64| {
            days.iter().map(|row| share(of(row))).sum::<f64>() / days.len().max(1) as f64
        };
        Self {
            hot: mean(|it| it.hot),
            saturated: mean(|it| it.saturated),
            unmet: mean(|it| it.unmet),
        }
    }
}

impl TraceFacts {
    pub fn of(traces: &'static str, runs: &[TraceRun]) -> Self {
        let days: Vec<TraceRow> = runs
            .iter()
            .map(|run| TraceRow {
                day: run.trace.name.clone(),
                seed: run.seed.clone(),
                nodes: run.trace.nodes,
                tasks: run.trace.tasks.len(),
                without: HotShares::of(&run.without.measured),
                moves: run.with.moves.len(),
                undone: run.with.undone(),
                rescheduled: {
                    let is_its = |it: &&Move| it.by == MovingLoop::Rescheduler;
                    run.with.moves.iter().filter(is_its).count()
                },
                judged: run.with.record.held + run.with.record.failed,
                held: run.with.record.held,
                with: HotShares::of(&run.with.measured),
            })
            .collect();
        let sum = |count: fn(&TraceRow) -> usize| days.iter().map(count).sum();
        let mut seeds: Vec<String> = days.iter().map(|row| row.seed.clone()).collect();
        seeds.dedup();
        let all = TraceRow {
            day: "all".to_owned(),
            seed: seeds.join(","),
            nodes: sum(|row| row.nodes),
            tasks: sum(|row| row.tasks),
            without: HotShares::mean(&days, |row| &row.without),
            moves: sum(|row| row.moves),
            undone: sum(|row| row.undone),
            rescheduled: sum(|row| row.rescheduled),
            judged: days.iter().map(|row| row.judged).sum(),
            held: days.iter().map(|row| row.held).sum(),
            with: HotShares::mean(&days, |row| &row.with),
        };
        Self { traces, days, all }
    }

    /// The cells of a table, under the heads that [`TraceFacts::cells`] begins with.
    pub fn rows(&self) -> impl Iterator<Item = [String; 9]> {
        self.days.iter().chain([&self.all]).map(|row| {
            let share = |percent: f64| format!("{percent:.2} %");
            [
                row.day.clone(),
                row.seed.clone(),
                row.nodes.to_string(),
                row.tasks.to_string(),
                share(row.without.hot),
                row.moves.to_string(),
                share(row.with.hot),
                format!("{:.2} % / {:.3} %", row.with.saturated, row.with.unmet),
                row.undone.to_string(),
            ]
        })
    }

    pub fn markdown(&self) -> String {
        let mut text =
            "| day | seed | nodes | tasks | hot without | moves | hot | saturated / unmet | \
                        undone |\n|---|---|---|---|---|---|---|---|---|\n"
                .to_owned();
        for row in self.rows() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }

    /// For a page in a browser: the heads of the columns, then the rows.
    pub fn cells(&self) -> Vec<[String; 9]> {
        let heads = [
            "day",
            "seed",
            "nodes",
            "tasks",
            "hot without",
            "moves",
            "hot",
            "saturated / unmet",
            "undone",
        ];
        [heads.map(str::to_owned)].into_iter().chain(self.rows()).collect()
    }
}
