//! `plimsoll completion`: what a shell needs to complete plimsoll's words.

use clap_complete::Shell;

use crate::cli::grouped;
use crate::error::CliError;
use crate::output::data;

const EXAMPLES: &str = "\
Examples:
  plimsoll completion bash > ~/.local/share/bash-completion/completions/plimsoll
  plimsoll completion zsh > ~/.zfunc/_plimsoll
  plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish";

/// Print the completion script of a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut grouped(), "plimsoll", &mut script);
    data(&String::from_utf8_lossy(&script))
}
