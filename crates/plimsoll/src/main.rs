//! The `plimsoll` command: reads what it is given, asks a daemon or the workbench, prints the answer. What is decided is
//! settled in `plimsoll-kernel`, what a compose file means in `plimsoll-compose`, what a node does in `plimsoll-daemon`,
//! what can be asked without one in `plimsoll-workbench`; here are only words, tables and exit codes.

// The expectations of tests are written by their tool.
#![cfg_attr(test, allow(clippy::needless_raw_string_hashes))]

use std::process::ExitCode;

mod age;
mod backup_key;
mod cli;
mod commands;
mod consistency;
mod contexts;
mod default_paths;
mod error;
mod live;
mod output;
mod pins_table;
mod plan_table;
mod project;
#[cfg(test)]
mod reference;
mod replica_line;
mod rotation_follower;
#[cfg(test)]
mod sample;
mod schedule_lines;
mod screen;
mod subject;
mod table;
mod terminal;
mod unlock;
mod wait;

use plimsoll_model::cell_files::CellFileKind;
use rustix::fs::Mode;
use rustix::process::umask;

use cli::{Cli, Command};

// Placing is many small allocations of names and maps; this one is faster at them than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The word after which this program is the supervisor of one service. It is for plimsoll itself, so no help has it.
const SUPERVISE: &str = "supervise";

/// What other users of the host may do with a file or directory that a command makes: nothing.
const UMASK: u32 = 0o077;

fn main() -> ExitCode {
    // While there is one thread: a log, a backup and a service's files are nobody else's to read.
    let given = umask(Mode::from_raw_mode(UMASK));
    // Before anything else: there is one of these for every service of the process runtime, and each should be small.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == SUPERVISE) {
        return plimsoll_runtime::process::supervisor::main(words);
    }
    let cli = match Cli::typed() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if matches!(cli.command, Command::Sim(_) | Command::WhatIf(_)) {
        // It writes reports, which are for showing around.
        umask(given);
    }
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(),
    }
}

fn run(command: &Command) -> Result<(), error::CliError> {
    match command {
        Command::Up(args) => commands::up::run(args),
        Command::Coordinator(args) => commands::coordinator::run(args),
        Command::Fleet(args) => commands::fleet::run(&args.what),
        Command::Apply(args) => commands::apply::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Top(args) => commands::top::run(args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::SupportBundle(args) => commands::support_bundle::run(args),
        Command::Dashboard(args) => commands::dashboard::run(args),
        Command::Get(args) => commands::get::run(args),
        Command::Logs(args) => commands::logs::run(args),
        Command::Exec(args) => commands::exec::run(args),
        Command::Restart(args) => commands::restart::run(args),
        Command::Scale(args) => commands::scale::run(args),
        Command::Delete(args) => commands::delete::run(args),
        Command::Rollback(args) => commands::rollback::run(args),
        Command::Rollout(args) => commands::rollout::run(args),
        Command::History(args) => commands::history::run(args),
        Command::Node(args) => commands::node::run(args),
        Command::Token(args) => commands::token::run(args),
        Command::Login(args) => commands::login::run(args),
        Command::Context(args) => commands::context::run(args),
        Command::Registry(args) => commands::registry::run(&args.what),
        Command::Reschedule(args) => commands::reschedule::run(&args.what),
        Command::Volume(args) => commands::volume::run(&args.what),
        Command::Secret(args) => commands::cell_file::run(CellFileKind::Secret, &args.what),
        Command::Config(args) => commands::cell_file::run(CellFileKind::Config, &args.what),
        Command::Cell(args) => commands::cell::run(args),
        Command::Audit(args) => commands::audit::run(args),
        Command::Explain(args) => commands::explain::run(args),
        Command::WhatIf(args) => commands::what_if::run(args),
        Command::Optimize(args) => commands::optimize::run(args),
        Command::Snapshot(args) => commands::snapshot::run(args),
        Command::Backup(args) => commands::backup::run(args),
        Command::Restore(args) => commands::restore::run(args),
        Command::Migrate(args) => commands::migrate::run(args),
        Command::Validate(args) => commands::validate::run(args),
        Command::Decide(args) => commands::decide::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::Sim(args) => commands::sim::run(args),
        Command::Reasons(args) => commands::reasons::run(args),
        Command::Completion(args) => commands::completion::run(args),
    }
}

/// Help and the version are answers; anything else clap has to say is a refusal, so not its own code 2.
fn usage(error: &clap::Error) -> ExitCode {
    // Nothing is left to tell anyone if even this cannot be written.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(error::REFUSED) } else { ExitCode::SUCCESS }
}
