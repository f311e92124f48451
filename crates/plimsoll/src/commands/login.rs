//! `plimsoll login`: makes a context of what `plimsoll token create` printed, once the cell has said who its bearer is.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

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
  plimsoll login https://ash:7654 --authority FILE --certificate me.pem
                                       with a certificate that an admin has enrolled

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
    /// Login string, or https://address:port with a certificate; - or nothing reads it from standard input
    #[arg(value_name = "STRING")]
    login: Option<String>,
    /// PEM file with your certificate and its key
    #[arg(long, value_name = "FILE", requires = "authority")]
    certificate: Option<PathBuf>,
    /// Fingerprint or CA file of the cell, as `plimsoll cell authority` prints it
    #[arg(long, value_name = "PRINT|FILE", requires = "certificate")]
    authority: Option<String>,
    /// Name of the context [default: the name of the cell]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let way = LoginWay::of(args)?;
    if let Some(name) = &args.name {
        check_name(name)?;
    }
    if way.addresses.is_empty() {
        return Err(CliError::refused(
            "the login string names no address: no node of the cell listens on TCP",
        )
        .hint("start one with `plimsoll up --listen ADDRESS:PORT`, and create another token"));
    }
    let store = ContextStore::of(&Who::of_process())?;
    let client = way.client()?;
    live::block_on(async {
        let who = client.who_am_i().await?;
        let context = way.context(args.name.as_deref(), &who);
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

/// Where the cell is found, how it is recognised, and what one is known by there.
struct LoginWay {
    addresses: Vec<String>,
    authorities: Vec<Fingerprint>,
    token: Option<String>,
    certificate: Option<PathBuf>,
}

impl LoginWay {
    fn of(args: &Args) -> Result<Self, CliError> {
        let (Some(certificate), Some(authority)) = (&args.certificate, &args.authority) else {
            let login: Login =
                typed(args)?.parse().map_err(|error| CliError::refused(format!("{error}")))?;
            return Ok(Self {
                addresses: login.addresses,
                authorities: login.fingerprints,
                token: Some(login.token.to_string()),
                certificate: None,
            });
        };
        let authorities = live::fingerprints(authority, "--authority")?;
        let endpoint = typed(args)?.trim().parse::<Endpoint>();
        let endpoint = endpoint.map_err(|error| CliError::refused(error.to_string()))?;
        let Endpoint::Https { addresses, .. } = endpoint else {
            return Err(CliError::refused("a certificate is shown over TLS only")
                .hint("name a node as https://address:port"));
        };
        // The context is used from other directories too.
        let certificate = std::path::absolute(certificate)
            .map_err(|error| CliError::failed(format!("--certificate: {error}")))?;
        Ok(Self { addresses, authorities, token: None, certificate: Some(certificate) })
    }

    fn client(&self) -> Result<Client, CliError> {
        let shown = self.certificate.as_ref();
        let shown = shown.map(|path| live::certificate_in(path, "--certificate")).transpose()?;
        let endpoint = Endpoint::Https { addresses: self.addresses.clone(), tls: None };
        let client = Client::new(endpoint.with_tls(live::tls(&self.authorities, shown.as_ref())?));
        Ok(match &self.token {
            Some(token) => client.with_token(token.clone()).chosen_by("the login string"),
            None => client.chosen_by("the address to log in at"),
        })
    }

    /// What was given and what the cell adds to it.
    fn context(&self, name: Option<&str>, who: &WhoAmI) -> Context {
        let mut context = Context {
            name: name.unwrap_or(&who.cell).to_owned(),
            cell: String::new(),
            identity: String::new(),
            role: String::new(),
            expires_at: None,
            addresses: self.addresses.clone(),
            authorities: self.authorities.iter().map(Fingerprint::to_string).collect(),
            authority_epoch: None,
            token: self.token.clone().unwrap_or_default(),
            certificate: self.certificate.clone(),
        };
        learn(&mut context, who);
        context
    }
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
