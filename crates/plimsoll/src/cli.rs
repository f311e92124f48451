//! What can be typed: the commands, how they are grouped, and what they share. Each command's own arguments are beside
//! its code.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use owo_colors::OwoColorize;

use crate::commands::{
    apply, audit, backup, cell, cell_file, completion, context, coordinator, dashboard, decide,
    delete, demo, doctor, exec, explain, fleet, get, history, login, logs, migrate, node, optimize,
    reasons, registry, reschedule, restart, restore, rollback, rollout, scale, sim, snapshot,
    status, support_bundle, token, top, up, validate, volume, what_if,
};
use crate::live::HostArgs;

const EXAMPLES: &str = "\
Examples:
  plimsoll up                                  run a node on this machine
  plimsoll apply -f compose.yaml               deploy a compose file and wait until it runs
  plimsoll status -w                           watch it
  plimsoll logs shop/web -f                    follow its logs
  plimsoll sim run scenarios/lost-node.yaml    what if a node is lost?
  plimsoll demo                                a demonstration, without any file

Exit codes: 0 done, 1 refused (the input is at fault), 2 failed.";

/// Every command that is shown, in the order people meet them.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Running a node",
        &["up", "node", "reschedule", "token", "cell", "backup", "restore", "migrate"],
    ),
    ("Running a fleet of cells", &["coordinator", "fleet"]),
    ("Connecting", &["login", "context"]),
    (
        "Deployments",
        &[
            "apply", "scale", "restart", "rollout", "rollback", "delete", "secret", "config",
            "registry", "volume",
        ],
    ),
    (
        "Inspecting",
        &[
            "status",
            "top",
            "dashboard",
            "get",
            "logs",
            "exec",
            "history",
            "audit",
            "explain",
            "what-if",
            "optimize",
            "snapshot",
            "doctor",
            "support-bundle",
        ],
    ),
    ("Without a daemon", &["validate", "decide", "sim", "demo", "reasons", "completion"]),
];

/// A container orchestrator that keeps every node above its line.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version = plimsoll_model::level::VERSION, after_help = EXAMPLES)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(Box<up::Args>),
    Coordinator(coordinator::Args),
    Fleet(fleet::Args),
    Apply(apply::Args),
    Status(status::Args),
    Top(top::Args),
    Dashboard(dashboard::Args),
    Get(get::Args),
    Logs(logs::Args),
    Exec(exec::Args),
    Restart(restart::Args),
    Scale(scale::Args),
    Delete(delete::Args),
    Rollback(rollback::Args),
    Rollout(rollout::Args),
    History(history::Args),
    Node(node::Args),
    Reschedule(reschedule::Args),
    Token(token::Args),
    Login(login::Args),
    Context(context::Args),
    Secret(cell_file::SecretArgs),
    Config(cell_file::ConfigArgs),
    Registry(registry::Args),
    Volume(volume::Args),
    #[command(alias = "cluster")]
    Cell(cell::Args),
    Audit(audit::Args),
    Explain(explain::Args),
    WhatIf(what_if::Args),
    Optimize(optimize::Args),
    Snapshot(snapshot::Args),
    Doctor(doctor::Args),
    SupportBundle(support_bundle::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Migrate(Box<migrate::Args>),
    Validate(validate::Args),
    Decide(decide::Args),
    Sim(sim::Args),
    Demo(demo::Args),
    Reasons(reasons::Args),
    Completion(completion::Args),
}

impl Cli {
    /// What was typed. Which daemon is meant can stand before the command as well as after it.
    pub(crate) fn typed() -> Result<Self, clap::Error> {
        let matches = grouped().try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        if let Some(host) = cli.command.host() {
            *host = host.or(&cli.host);
        }
        Ok(cli)
    }
}

impl Command {
    /// Which daemon it is for; none for a command that needs none.
    fn host(&mut self) -> Option<&mut HostArgs> {
        match self {
            Self::Apply(args) => Some(&mut args.host),
            Self::Status(args) => Some(&mut args.host),
            Self::Top(args) => Some(&mut args.host),
            Self::Dashboard(args) => Some(&mut args.host),
            Self::Get(args) => Some(&mut args.host),
            Self::Logs(args) => Some(&mut args.host),
            Self::Exec(args) => Some(&mut args.host),
            Self::Restart(args) => Some(&mut args.host),
            Self::Scale(args) => Some(&mut args.host),
            Self::Delete(args) => Some(&mut args.host),
            Self::Rollback(args) => Some(&mut args.host),
            Self::Rollout(args) => Some(args.what.host()),
            Self::Snapshot(args) => Some(args.what.host()),
            Self::History(args) => Some(&mut args.host),
            Self::Doctor(args) => Some(&mut args.host),
            Self::SupportBundle(args) => Some(&mut args.host),
            Self::Audit(args) => Some(&mut args.host),
            Self::Explain(args) => Some(&mut args.host),
            Self::WhatIf(args) => Some(args.what.host()),
            Self::Optimize(args) => Some(&mut args.host),
            Self::Backup(args) => Some(&mut args.host),
            Self::Node(args) => Some(args.what.host()),
            Self::Reschedule(args) => Some(args.what.host()),
            Self::Token(args) => Some(args.what.host()),
            Self::Fleet(args) => Some(args.what.host()),
            Self::Secret(args) => Some(args.what.host()),
            Self::Config(args) => Some(args.what.host()),
            Self::Registry(args) => Some(args.what.host()),
            Self::Volume(args) => Some(args.what.host()),
            Self::Cell(args) => match &mut args.what {
                cell::CellCommand::Status(args) => Some(&mut args.host),
                cell::CellCommand::Recover(args) => Some(&mut args.host),
                cell::CellCommand::Authority(args) => Some(&mut args.host),
                cell::CellCommand::RotateAuthority(args) => Some(&mut args.host),
                cell::CellCommand::BackupKey(args) => Some(&mut args.host),
                cell::CellCommand::UnlockKey(_)
                | cell::CellCommand::EtcdSealKey(_)
                | cell::CellCommand::ChangeLock(_) => None,
            },
            Self::Up(_)
            | Self::Coordinator(_)
            | Self::Login(_)
            | Self::Context(_)
            | Self::Restore(_)
            | Self::Migrate(_)
            | Self::Validate(_)
            | Self::Decide(_)
            | Self::Sim(_)
            | Self::Demo(_)
            | Self::Reasons(_)
            | Self::Completion(_) => None,
        }
    }
}

/// The command line with its commands in groups; clap itself has only one list of them.
pub(crate) fn grouped() -> clap::Command {
    let command = Cli::command();
    let title = |title: &str| format!("{title}:").bold().underline().to_string();
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max();
    let width = width.unwrap_or(0);
    let mut list = String::new();
    for (name, commands) in GROUPS {
        list.extend([&title(name), "\n"]);
        for name in commands {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let blanks = " ".repeat(width - name.len());
            list.extend(["  ", &name.bold().to_string(), &blanks, "  ", &about, "\n"]);
        }
        list.push('\n');
    }
    let options = title("Options");
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{options}\n{{options}}{{after-help}}"
    ))
}
