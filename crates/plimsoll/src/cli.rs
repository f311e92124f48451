//! What can be typed: the commands and what they share. Each command's own arguments are beside its code.

use clap::{Parser, Subcommand};

use crate::commands::{completion, decide, demo, explain, sim, validate};

const EXAMPLES: &str = "\
Examples:
  plimsoll validate -f compose.yaml                         is it good, and what does it ask for?
  plimsoll decide place --input examples/cell.yaml          where would its replicas go?
  plimsoll explain shop-web-2 --input examples/cell.yaml    why there?
  plimsoll sim run scenarios/lost-node.yaml                 what if a node is lost?
  plimsoll demo                                             all of that as a story, without any file

Exit codes: 0 done, 1 refused (the input is at fault), 2 failed.";

/// A container orchestrator that keeps every node above its line.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = EXAMPLES)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Validate(validate::Args),
    Decide(decide::Args),
    Explain(explain::Args),
    Sim(sim::Args),
    Demo(demo::Args),
    Completion(completion::Args),
}
