//! `plimsoll coordinator`: runs a node of the cell that coordinates a fleet. It is a cell like any other, and runs nothing.

use super::up;
use crate::error::CliError;

const EXAMPLES: &str = "\
Examples:
  plimsoll coordinator up --data-dir ./hub             the first node of a coordinator
  plimsoll coordinator up --data-dir ./hub --join TOKEN@ADDRESS
                                                       another one: three tolerate the loss of any one
  plimsoll fleet token create north                    one string, with which one cell joins the fleet
  plimsoll fleet join STRING                           there, on a node of the cell

Experimental. Nothing offers machines to a running cell yet, so a coordinator moves none: it lets cells in, hands them
their slices of quota, hears what they lack and says why it is not served. With it gone, cells work on.";

/// Run a node of a coordinator of cells (experimental).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: CoordinatorCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CoordinatorCommand {
    /// Run a node of a coordinator on this machine (experimental)
    Up(Box<up::Args>),
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    match &args.what {
        CoordinatorCommand::Up(args) => up::run_coordinator(args),
    }
}
