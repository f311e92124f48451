//! The `plimsoll` command: reads what it is given, asks the kernel, prints the answer. What is decided is settled in
//! `plimsoll-kernel`, what a compose file means in `plimsoll-compose`; here are only words, tables and exit codes.

use std::process::ExitCode;

use clap::Parser;

mod case;
mod cli;
mod commands;
mod decided;
mod elapsed;
mod entries;
mod input;
mod near;
mod output;
mod project;
mod scenario;
mod snippet;
mod table;
mod trouble;

use cli::{Cli, Command};

// Placing is many small allocations of names and maps; this one is faster at them than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let done = match cli.command {
        Command::Validate(args) => commands::validate::run(&args),
        Command::Decide(args) => commands::decide::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Sim(args) => commands::sim::run(&args),
        Command::Completion(args) => commands::completion::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(),
    }
}

/// Help and the version are answers; anything else clap has to say is a refusal, so not its own code 2.
fn usage(error: &clap::Error) -> ExitCode {
    // Nothing is left to tell anyone if even this cannot be written.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(trouble::REFUSED) } else { ExitCode::SUCCESS }
}
