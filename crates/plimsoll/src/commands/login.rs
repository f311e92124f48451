//! `plimsoll login`: makes a context of what `plimsoll token create` printed, once the cell has said who its bearer is.

use std::io::{IsTerminal, Read};

use plimsoll_api::client::{Client, Endpoint};
use plimsoll_api::view::WhoAmI;
use plimsoll_peer::pki::{Fingerprint, Login};

use crate::contexts::{self, Context, ContextStore, DEFAULT};
use crate::default_paths::Who;
use crate::error::CliError;
use crate::live;
use crate::output::note;

const EXAMPLES: &str = "\
Examples:
  plimsoll login pll_04...             what `plimsoll token create NAME` printed on a node
  plimsoll login --name prod < FILE    without the string in the history of the shell

It connects, checks that the cell's authority is the expected one, and asks who the token is for. Then the context is saved
below $XDG_CONFIG_HOME/plimsoll, for you alone, and is the current one.";

/// How many addresses a context keeps: each that does not answer is waited for.
const MAX_KNOWN: usize = 8;

/// The most that is read of a string that is piped in.
const MAX_INPUT: u64 = 16 << 10;

/// Log in to a cell with the string printed by `plimsoll token create`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Login string; - or nothing reads it from standard input
    #[arg(value_name = "STRING")]
    login: Option<String>,
    /// Name of the context [default: the name of the cell]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let login: Login =
        typed(args)?.parse().map_err(|error| CliError::refused(format!("{error}")))?;
    if let Some(name) = &args.name {
        check_name(name)?;
    }
    if login.addresses.is_empty() {
        return Err(CliError::refused(
            "the login string names no address: no node of the cell listens on TCP",
        )
        .hint("start one with `plimsoll up --listen ADDRESS:PORT`, and create another token"));
    }
    let store = ContextStore::of(&Who::of_process())?;
    let endpoint = Endpoint::Https { addresses: login.addresses.clone(), tls: None };
    let client = Client::new(endpoint.with_tls(live::tls(&login.fingerprints)?))
        .with_token(login.token.to_string())
        .chosen_by("the login string");
    live::block_on(async {
        let who = client.who_am_i().await?;
        let context = context(args.name.as_deref(), &login, &who);
        check_name(&context.name)?;
        if let Some(known) = store.load(&context.name)?
            && !known.authorities.iter().any(|print| context.authorities.contains(print))
        {
            let message = format!("context {} is of another cell, {}", known.name, known.cell);
            return Err(CliError::refused(message).hint("choose another with --name"));
        }
        store.save(&context)?;
        store.set_current(Some(&context.name))?;
        note(&format!(
            "logged in to cell {} as {} with role {}; context {} is current",
            context.cell, context.identity, context.role, context.name
        ));
        Ok(())
    })
}

fn typed(args: &Args) -> Result<String, CliError> {
    if let Some(login) = args.login.as_ref().filter(|login| *login != "-") {
        return Ok(login.clone());
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        note("Paste the login string, then press Enter and Ctrl-D:");
    }
    let mut text = String::new();
    let read = stdin.lock().take(MAX_INPUT).read_to_string(&mut text);
    read.map_err(|error| CliError::failed(format!("cannot read the login string: {error}")))?;
    Ok(text)
}

fn check_name(name: &str) -> Result<(), CliError> {
    contexts::check_name(name)?;
    if name == DEFAULT {
        return Err(CliError::refused("default is the socket of this machine's daemon")
            .hint("choose another name with --name"));
    }
    Ok(())
}

/// What the string says and what the cell adds to it.
fn context(name: Option<&str>, login: &Login, who: &WhoAmI) -> Context {
    let mut context = Context {
        name: name.unwrap_or(&who.cell).to_owned(),
        cell: String::new(),
        identity: String::new(),
        role: String::new(),
        expires_at: None,
        addresses: login.addresses.clone(),
        authorities: login.fingerprints.iter().map(Fingerprint::to_string).collect(),
        authority_epoch: None,
        token: login.token.to_string(),
    };
    learn(&mut context, who);
    context
}

/// What the cell says of itself and of the token by now: it may have another authority, and more nodes.
pub(crate) fn learn(context: &mut Context, who: &WhoAmI) {
    context.cell.clone_from(&who.cell);
    // The node that was asked stands behind an @.
    who.identity.split('@').next().unwrap_or_default().clone_into(&mut context.identity);
    context.role.clone_from(&who.role);
    context.expires_at = who.expires_at;
    if !who.authorities.is_empty() {
        context.authorities.clone_from(&who.authorities);
    }
    // Those that were given stay first: the nodes may know themselves by others.
    let known = context.addresses.clone();
    let fresh = who.addresses.iter().filter(|address| !known.contains(address));
    context.addresses.extend(fresh.cloned());
    context.addresses.truncate(MAX_KNOWN);
}
