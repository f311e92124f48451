//! docs/reference/cli.md, written from what can be typed, so that it lacks nothing and claims nothing.

use std::fmt::Write as _;

use clap::Arg;
use expect_test::expect_file;

use crate::cli::{GROUPS, grouped};

const HEAD: &str = "\
# Commands

Everything that can be typed. `plimsoll <command> --help` says the same, with examples. This page is written by a test:
`UPDATE_EXPECT=1 cargo test -p plimsoll reference` after a change.

Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 refused (the input is at fault), 2 failed (the world
is). Colour is only added on a terminal, and never with `NO_COLOR`.

Commands that talk to a node find it by `--host` (a socket, or `https://address:port` with `--authority` and `--token`), else `--context`,
else `PLIMSOLL_HOST`, else `PLIMSOLL_CONTEXT`, else a login string in `--token` or `PLIMSOLL_TOKEN`, else the current context (`plimsoll login`),
else the socket of your own node, else that of the machine's. An error of connecting says which it was. A node that holds no log takes a
token on its socket as well, for all but reading how things are.
";

fn page() -> String {
    let command = grouped();
    let mut page = String::from(HEAD);
    for (group, names) in GROUPS {
        let _ = write!(page, "\n## {group}\n");
        for name in names {
            let command = command.find_subcommand(name).expect("every group lists commands");
            section(&mut page, &format!("plimsoll {name}"), command);
        }
    }
    page
}

fn section(page: &mut String, name: &str, command: &clap::Command) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut subcommands = command.get_subcommands().filter(|it| it.get_name() != "help").peekable();
    if subcommands.peek().is_some() {
        for subcommand in subcommands {
            section(page, &format!("{name} {}", subcommand.get_name()), subcommand);
        }
        return;
    }
    let mut usage = String::new();
    for place in command.get_positionals() {
        let value = value(place);
        let many = place.get_num_args().is_some_and(|range| range.max_values() > 1);
        let many = if many { "..." } else { "" };
        let _ = if place.is_required_set() {
            write!(usage, " <{value}>{many}")
        } else {
            write!(usage, " [{value}]{many}")
        };
    }
    let _ = write!(page, "\n### {name}\n\n{about}. `{name}{usage}`\n\n");
    let is_shown = |arg: &&Arg| {
        let is_shared = arg.get_help_heading() == Some("Connection") || arg.get_id() == "help";
        !arg.is_hide_set() && !is_shared && !meaning(arg).is_empty()
    };
    let args: Vec<&Arg> = command.get_arguments().filter(is_shown).collect();
    if args.is_empty() {
        page.truncate(page.trim_end().len());
        page.push('\n');
        return;
    }
    page.push_str("| | |\n|---|---|\n");
    for arg in args {
        let _ = writeln!(page, "| {} | {} |", typed(arg), meaning(arg).replace('|', "\\|"));
    }
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.first().map_or_else(|| arg.get_id().to_string().to_uppercase(), ToString::to_string)
}

/// `-f`, `--file FILE`
fn typed(arg: &Arg) -> String {
    let mut words = Vec::new();
    words.extend(arg.get_short().map(|short| format!("`-{short}`")));
    let takes = arg.get_action().takes_values().then(|| format!(" {}", value(arg)));
    let takes = takes.unwrap_or_default();
    match arg.get_long() {
        Some(long) => words.push(format!("`--{long}{takes}`")),
        None if arg.is_positional() => words.push(format!("`{}`", value(arg))),
        None => {}
    }
    words.join(", ").replace('|', "\\|")
}

fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() {
        let _ = write!(text, ": {}", values.join(", "));
    }
    let default: Vec<_> = arg.get_default_values().iter().filter_map(|it| it.to_str()).collect();
    if !default.is_empty() && arg.get_action().takes_values() {
        let _ = write!(text, " [default: {}]", default.join(" "));
    }
    text
}

#[test]
fn the_reference_lists_all_that_can_be_typed() {
    expect_file!["../../../docs/reference/cli.md"].assert_eq(&page());
}
