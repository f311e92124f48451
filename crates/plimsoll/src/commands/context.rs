//! `plimsoll context`: the cells that one is logged in to, and which of them commands are for.

use std::path::Path;

use plimsoll_api::view::Time;
use plimsoll_model::Timestamp;
use serde::Serialize;

use crate::age::until;
use crate::commands::login;
use crate::contexts::{Context, ContextStore, DEFAULT};
use crate::default_paths::Who;
use crate::error::CliError;
use crate::live;
use crate::output::{Format, count, note, print};
use crate::table::Table;
use crate::wait::now;

const EXAMPLES: &str = "\
Examples:
  plimsoll context list
  plimsoll context use prod          commands go there from now on
  plimsoll --context prod status     this one alone
  plimsoll context use default       back to the socket of this machine

Where a command goes: --host, else --context, else PLIMSOLL_HOST, else PLIMSOLL_CONTEXT, else a login string in --token or
PLIMSOLL_TOKEN, else the current context, else the socket of this machine's daemon.";

/// Manage the cells you are logged in to.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: ContextCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ContextCommand {
    #[command(visible_alias = "ls")]
    List(ListArgs),
    Use(UseArgs),
    Show(ShowArgs),
    Refresh(RefreshArgs),
    Rm(RmArgs),
}

/// List contexts; * marks the current one.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Make a context the current one; default is the socket of this machine.
#[derive(Debug, clap::Args)]
struct UseArgs {
    /// Name of the context
    name: String,
}

/// Show a context, without its token.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Name of the context [default: the current one]
    name: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Learn the cell's present addresses and authorities, as before its authority is rotated.
#[derive(Debug, clap::Args)]
struct RefreshArgs {
    /// Name of the context [default: the current one]
    name: Option<String>,
}

/// Remove a context; its token stays good until it is revoked.
#[derive(Debug, clap::Args)]
struct RmArgs {
    /// Name of the context
    name: String,
    /// Remove it also if it is the current one
    #[arg(short, long)]
    force: bool,
}

/// A context as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    is_current: bool,
    cell: Option<String>,
    identity: Option<String>,
    role: Option<String>,
    expires_at: Option<Time>,
    addresses: Vec<String>,
    authorities: Vec<String>,
}

impl Shown {
    fn of(context: Context, current: Option<&str>) -> Self {
        Self {
            is_current: current == Some(&context.name),
            name: context.name,
            cell: Some(context.cell),
            identity: Some(context.identity),
            role: Some(context.role),
            expires_at: context.expires_at,
            addresses: context.addresses,
            authorities: context.authorities,
        }
    }

    /// The socket of this machine.
    fn local(socket: &Path, current: Option<&str>) -> Self {
        Self {
            name: DEFAULT.to_owned(),
            is_current: current.is_none(),
            cell: None,
            identity: None,
            role: None,
            expires_at: None,
            addresses: vec![format!("unix://{}", socket.display())],
            authorities: Vec::new(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let who = Who::of_process();
    let store = ContextStore::of(&who)?;
    let socket = who.nearest_socket(|path| path.exists());
    match &args.what {
        ContextCommand::List(args) => {
            let current = store.current()?;
            let known = store.list()?.into_iter();
            let mut all = vec![Shown::local(&socket, current.as_deref())];
            all.extend(known.map(|context| Shown::of(context, current.as_deref())));
            print(args.output, &all, |all| text(all, now()))
        }
        ContextCommand::Use(args) => {
            let name = Some(args.name.as_str()).filter(|name| *name != DEFAULT);
            if let Some(name) = name {
                store.load(name)?.ok_or_else(|| ContextStore::unknown(name))?;
            }
            store.set_current(name)?;
            note(&format!("context {} is current", args.name));
            Ok(())
        }
        ContextCommand::Show(args) => {
            let current = store.current()?;
            let name = args.name.clone().or_else(|| current.clone());
            let shown = match name.filter(|name| name != DEFAULT) {
                None => Shown::local(&socket, current.as_deref()),
                Some(name) => {
                    let context = store.load(&name)?.ok_or_else(|| ContextStore::unknown(&name))?;
                    Shown::of(context, current.as_deref())
                }
            };
            print(args.output, &shown, |shown| details(shown, now()))
        }
        ContextCommand::Refresh(args) => refresh(&store, args),
        ContextCommand::Rm(args) => {
            let is_current = store.current()?.as_deref() == Some(&args.name);
            if is_current && !args.force {
                let message = format!("context {} is the current one", args.name);
                return Err(CliError::refused(message)
                    .hint("`plimsoll context use NAME` first, or remove it with --force"));
            }
            store.remove(&args.name)?;
            if is_current {
                store.set_current(None)?;
            }
            note(&format!("context {} removed; its token is good until it is revoked", args.name));
            Ok(())
        }
    }
}

fn refresh(store: &ContextStore, args: &RefreshArgs) -> Result<(), CliError> {
    let name = args.name.clone().map_or_else(|| store.current(), |name| Ok(Some(name)))?;
    let Some(name) = name.filter(|name| name != DEFAULT) else {
        return Err(CliError::refused("the socket of this machine needs no refreshing")
            .hint("name a context: `plimsoll context list` lists them"));
    };
    let mut context = store.load(&name)?.ok_or_else(|| ContextStore::unknown(&name))?;
    let client = live::of_context(&context)?;
    live::block_on(async {
        login::learn(&mut context, &client.who_am_i().await?);
        store.save(&context)?;
        let authorities = count(context.authorities.len(), "authority");
        note(&format!("context {name}: {authorities}, at {}", context.addresses.join(", ")));
        Ok(())
    })
}

fn expiry(shown: &Shown, now: Timestamp) -> String {
    match shown.expires_at {
        None => "-".to_owned(),
        Some(at) if at.0 <= now => "expired".to_owned(),
        Some(at) => until(at, now),
    }
}

fn text(all: &[Shown], now: Timestamp) -> String {
    let mut table = Table::new(["NAME", "CELL", "TOKEN", "ROLE", "EXPIRES", "ADDRESSES"]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for shown in all {
        let mark = if shown.is_current { " *" } else { "" };
        let token = shown.identity.as_deref().and_then(|it| it.strip_prefix("token:"));
        table.row([
            format!("{}{mark}", shown.name),
            or_dash(&shown.cell),
            token.unwrap_or("-").to_owned(),
            or_dash(&shown.role),
            expiry(shown, now),
            shown.addresses.join(","),
        ]);
    }
    table.within(None)
}

fn details(shown: &Shown, now: Timestamp) -> String {
    let mut lines = vec![("name", shown.name.clone())];
    let said = [("cell", &shown.cell), ("identity", &shown.identity), ("role", &shown.role)];
    lines.extend(said.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    if shown.expires_at.is_some() {
        lines.push(("expires", expiry(shown, now)));
    }
    lines.extend(shown.addresses.iter().map(|address| ("address", address.clone())));
    lines.extend(shown.authorities.iter().map(|print| ("authority", print.clone())));
    let lines = lines.into_iter().map(|(name, value)| format!("{name:10}{value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;
    use expect_test::expect;

    #[test]
    fn contexts_are_listed_with_who_one_is_in_each() {
        let context = |name: &str, expires_at| Context {
            name: name.to_owned(),
            cell: "home".to_owned(),
            identity: "token:ci".to_owned(),
            certificate: None,
            role: "deploy".to_owned(),
            expires_at,
            addresses: vec!["10.0.0.1:7654".to_owned(), "10.0.0.2:7654".to_owned()],
            authorities: vec!["4f".repeat(32)],
            authority_epoch: None,
            token: "hush".to_owned(),
        };
        let at = |millis| Some(Time(Timestamp(millis)));
        let now = Timestamp(1_000_000);
        let all = [
            Shown::local(Path::new("/run/plimsoll.sock"), Some("prod")),
            Shown::of(context("old", at(5)), Some("prod")),
            Shown::of(context("prod", at(1_000_000 + 86_400_000)), Some("prod")),
        ];
        expect![[r"
            NAME     CELL  TOKEN  ROLE    EXPIRES  ADDRESSES
            default  -     -      -       -        unix:///run/plimsoll.sock
            old      home  ci     deploy  expired  10.0.0.1:7654,10.0.0.2:7654
            prod *   home  ci     deploy  in 1d    10.0.0.1:7654,10.0.0.2:7654
        "]]
        .assert_eq(&strip_str(&text(&all, now)).to_string());
        expect![[r"
            name      prod
            cell      home
            identity  token:ci
            role      deploy
            expires   in 1d
            address   10.0.0.1:7654
            address   10.0.0.2:7654
            authority 4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f
        "]]
        .assert_eq(&details(&all[2], now));
    }
}
