//! `plimsoll what-if`: what would come of something, in the running cell or in a described one, without doing it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_api::view::{Forecast, NodeForecast, NodeUsage, WhatIf};
use plimsoll_model::{Bytes, MilliCpus, Millis, Pressure};
use plimsoll_workbench::report::of_forecast::{self, short};
use plimsoll_workbench::what_if;

use crate::age::took;
use crate::commands::decide::read_case;
use crate::commands::report_file::ReportFile;
use crate::commands::scale::count_of;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, count, note, print};
use crate::plan_table::{Scores, counts, summary, tables};
use crate::project;
use crate::table::Table;

/// How long a described cell may take; a running one has its own limit.
const LONGEST: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  plimsoll what-if drain n3                          what moves where if n3 is drained, and what cannot
  plimsoll what-if lose n3,n4                        if both are lost at once
  plimsoll what-if add 2 --cpus 8 --memory 32g       if two such nodes join
  plimsoll what-if apply -f new.yaml                 if this file is applied
  plimsoll what-if scale web=20 --html report.html   with pictures, for a browser
  plimsoll what-if rebalance                         what moves if nobody does anything
  plimsoll what-if drain n3 --input case.json        in a cell that `plimsoll snapshot export` wrote down

The leader answers with the code that would do it, and nothing is done. What finds no place is part of the answer: the exit
code is 0 whenever there is one. How it is worked out is in docs/reference/what-if.md.";

/// Show what would come of a drain, a loss, new nodes, a file or a scale, without doing it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: WhatIfCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum WhatIfCommand {
    /// Drain nodes
    Drain(NodesArgs),
    /// Lose nodes, all at once
    Lose(NodesArgs),
    /// Add nodes
    Add(AddArgs),
    /// Apply compose files
    Apply(ApplyArgs),
    /// Scale services
    Scale(ScaleArgs),
    /// Do nothing: what the rebalancer and the rescheduler do
    Rebalance(RebalanceArgs),
}

/// What every question takes.
#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// A case instead of the running cell, as `plimsoll snapshot export` writes it; `-` for stdin
    #[arg(short, long, value_name = "CASE")]
    input: Option<String>,
    /// Write an HTML report with pictures
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    /// The nodes, comma-separated
    #[arg(value_name = "NODE", value_delimiter = ',', required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// How many
    count: u32,
    /// Processors of each
    #[arg(long, value_name = "N")]
    cpus: MilliCpus,
    /// Memory of each, as 32g
    #[arg(long, value_name = "SIZE")]
    memory: Bytes,
    /// GPUs of each
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpus: u32,
    /// Zone they are in
    #[arg(long)]
    zone: Option<String>,
    #[command(flatten)]
    answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    project: project::Files,
    #[command(flatten)]
    answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// Service and its number of replicas: web=20, or shop/web=20
    #[arg(value_name = "SERVICE=N", required = true, value_parser = count_of)]
    counts: Vec<(String, u32)>,
    #[command(flatten)]
    answer: AnswerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RebalanceArgs {
    #[command(flatten)]
    answer: AnswerArgs,
}

impl WhatIfCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        &mut self.answer_mut().host
    }

    fn answer_mut(&mut self) -> &mut AnswerArgs {
        match self {
            Self::Drain(args) | Self::Lose(args) => &mut args.answer,
            Self::Add(args) => &mut args.answer,
            Self::Apply(args) => &mut args.answer,
            Self::Scale(args) => &mut args.answer,
            Self::Rebalance(args) => &mut args.answer,
        }
    }

    fn answer(&self) -> &AnswerArgs {
        match self {
            Self::Drain(args) | Self::Lose(args) => &args.answer,
            Self::Add(args) => &args.answer,
            Self::Apply(args) => &args.answer,
            Self::Scale(args) => &args.answer,
            Self::Rebalance(args) => &args.answer,
        }
    }

    /// The question, as a cell is asked it.
    fn question(&self) -> Result<WhatIf, CliError> {
        Ok(match self {
            Self::Drain(args) => WhatIf::Drain { nodes: args.nodes.clone() },
            Self::Lose(args) => WhatIf::Lose { nodes: args.nodes.clone() },
            Self::Add(args) => WhatIf::Add {
                count: args.count,
                milli_cpus: args.cpus.0,
                memory: args.memory.0,
                gpus: args.gpus,
                zone: args.zone.clone(),
            },
            Self::Apply(args) => {
                let loaded = args.project.project()?.load()?;
                for warning in &loaded.warnings {
                    note(&warning.render(true));
                }
                let deployment = loaded.deployment;
                WhatIf::Apply {
                    deployment: deployment.name.to_string(),
                    services: deployment.services,
                    routes: deployment.routes,
                }
            }
            Self::Scale(args) => {
                let services: BTreeMap<String, u32> = args.counts.iter().cloned().collect();
                WhatIf::Scale { services }
            }
            Self::Rebalance(_) => WhatIf::Rebalance,
        })
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let AnswerArgs { input, html, output, host } = args.what.answer();
    let destination = html.as_deref().map(ReportFile::check).transpose()?;
    let asked = args.what.question()?;
    let forecast = if let Some(input) = input {
        let case = read_case(input)?;
        let begun = Instant::now();
        what_if::forecast(&case, &asked, &mut || begun.elapsed() > LONGEST)?
    } else {
        let client = host.client()?;
        live::block_on(async { Ok::<_, CliError>(client.what_if(&asked).await?) })?
    };
    print(*output, &forecast, text)?;
    if !forecast.is_whole {
        note("note: the time for it was up before its end; what is shown is the beginning");
    }
    if let Some(destination) = destination {
        destination.write(&of_forecast::page(&forecast))?;
        note(&format!("the report is in {}", destination.shown()));
    }
    Ok(())
}

fn text(forecast: &Forecast) -> String {
    let Forecast { plan, nodes, estimate_ms, stop_grace_ms, .. } = forecast;
    let nodes = nodes_table(nodes);
    if plan.is_empty() {
        return format!("nothing would move\n\n{nodes}");
    }
    let about = took(Millis(*estimate_ms));
    let grace = match stop_grace_ms {
        0 => String::new(),
        grace => format!(", and up to {} more for replicas to stop", took(Millis(*grace))),
    };
    format!(
        "{}\n{nodes}\n{}; it would take about {about}{grace}\n{}",
        tables(plan, Scores::Hidden),
        summary(plan),
        counts(plan)
    )
}

/// The nodes that bear something else than before; the others are counted.
fn nodes_table(nodes: &[NodeForecast]) -> String {
    let mut table =
        Table::new(["NODE", "CHANGE", ">REPLICAS", ">RESERVED", ">PEAK", ">PRESSURE", ">PEAK"]);
    let changed: Vec<&NodeForecast> = nodes.iter().filter(|node| !node.is_unchanged()).collect();
    for node in &changed {
        let reserved = |usage: &NodeUsage| Some(usage.reserved.top());
        let pressure = |usage: &NodeUsage| usage.pressure.map(plimsoll_api::view::NodeShares::top);
        table.row([
            node.node.clone(),
            node.change.clone().unwrap_or_else(|| "-".to_owned()),
            both(node, |usage| Some(usage.replicas.to_string())),
            both(node, |usage| reserved(usage).map(short)),
            most(node, reserved),
            both(node, |usage| pressure(usage).map(short)),
            most(node, pressure),
        ]);
    }
    let rest = nodes.len() - changed.len();
    match (changed.is_empty(), rest) {
        (true, _) => format!("{} as before\n", count(rest, "node")),
        (false, 0) => table.render(),
        (false, rest) => format!("{}{} as before\n", table.render(), count(rest, "other node")),
    }
}

/// `0.25 → 0.50`
fn both(node: &NodeForecast, of: impl Fn(&NodeUsage) -> Option<String>) -> String {
    let side = |usage: &Option<NodeUsage>| usage.as_ref().and_then(&of);
    match (side(&node.before), side(&node.after)) {
        (None, None) => "-".to_owned(),
        (before, after) => {
            let or_none = |side: Option<String>| side.unwrap_or_else(|| "-".to_owned());
            format!("{} → {}", or_none(before), or_none(after))
        }
    }
}

fn most(node: &NodeForecast, of: impl Fn(&NodeUsage) -> Option<Pressure>) -> String {
    let peak = node.peak.as_ref().and_then(of);
    peak.map_or_else(|| "-".to_owned(), short)
}
