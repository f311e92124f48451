//! `plimsoll token`: what lets nodes into the cell and people at its API.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use plimsoll_api::client;
use plimsoll_api::view::{JoinTokenStatus, NewJoinToken, NewOperator, Operator, Time};
use plimsoll_model::{Millis, Timestamp};
use plimsoll_peer::pki::{Login, first_certificate_pem};

use crate::age::{age, length, until};
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, data, note, print};
use crate::table::Table;
use crate::wait::now;

const EXAMPLES: &str = "\
Examples:
  plimsoll token create-join                  one string, for one node, within a day
  plimsoll token create ann --role deploy     one string, for `plimsoll login` on another machine
  plimsoll token create ci --role deploy --deployments 'shop-*' --expires 90d
  plimsoll token revoke ann
  plimsoll token list --join                  join tokens; revoke one with `token revoke NAME --join`";

/// Manage join tokens and API tokens.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TokenCommand {
    CreateJoin(JoinArgs),
    Create(CreateArgs),
    #[command(visible_alias = "ls")]
    List(ListArgs),
    Revoke(RevokeArgs),
}

impl TokenCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        match self {
            Self::CreateJoin(args) => &mut args.host,
            Self::Create(args) => &mut args.host,
            Self::List(args) => &mut args.host,
            Self::Revoke(args) => &mut args.host,
        }
    }
}

/// Print a single-use join token, valid for 24 h.
#[derive(Debug, clap::Args)]
#[command(after_help = "On the other machine: plimsoll up --join STRING")]
pub(crate) struct JoinArgs {
    /// Name of the token, as shown in lists and the audit log [default: chosen]
    name: Option<String>,
    /// Validity, at most 24 h: 30m, 12h [default: 24h]
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    expires: Option<Millis>,
    #[command(flatten)]
    host: HostArgs,
}

/// Create an API token and print the string for `plimsoll login`, once.
#[derive(Debug, clap::Args)]
#[command(after_help = "On the other machine: plimsoll login STRING")]
pub(crate) struct CreateArgs {
    /// Name of the token, as shown in the audit log
    name: String,
    /// Role of the token; each includes the previous ones
    #[arg(long, value_enum, default_value_t = RoleWord::Deploy)]
    role: RoleWord,
    /// Bind the token to these deployments, by name or prefix: shop, 'shop-*' [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    deployments: Vec<String>,
    /// Validity: 12h, 30d [default: until it is revoked]
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    expires: Option<Millis>,
    /// Addresses to put into the string [default: where nodes listen]
    #[arg(long = "address", value_name = "HOST[:PORT],...", value_delimiter = ',', value_parser = address)]
    addresses: Vec<String>,
    /// PEM file with the certificate of whoever this is for: its key is what they are known by, and no token is made
    #[arg(long, value_name = "FILE", conflicts_with = "addresses")]
    for_certificate: Option<PathBuf>,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RoleWord {
    Read,
    Deploy,
    Admin,
}

/// List API tokens, or join tokens.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// List join tokens
    #[arg(long)]
    join: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

/// Revoke an API token or a join token on all nodes.
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// Name of the token
    name: String,
    /// It is a join token
    #[arg(long)]
    join: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    match &args.what {
        TokenCommand::CreateJoin(args) => create_join(args),
        TokenCommand::Create(args) => create(args),
        TokenCommand::List(args) => list(args),
        TokenCommand::Revoke(args) => revoke(args),
    }
}

fn create_join(args: &JoinArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let seconds = args.expires.map(seconds);
        let asked = NewJoinToken { name: args.name.clone(), seconds };
        let made = client.create_join_token(&asked).await?;
        data(&format!("{}\n", made.join))?;
        note(&format!(
            "{} is good for one node until {}; on it: plimsoll up --join STRING",
            made.name, made.expires_at
        ));
        Ok(())
    })
}

fn create(args: &CreateArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let role = args.role.to_possible_value().map(|value| value.get_name().to_owned());
        let (name, deployments) = (args.name.clone(), args.deployments.clone());
        let (role, seconds) = (role.unwrap_or_default(), args.expires.map(seconds));
        let certificate = args.for_certificate.as_deref().map(certificate).transpose()?;
        let asked = NewOperator { name, role, deployments, seconds, certificate };
        let made = client.add_operator(&asked).await?;
        if args.for_certificate.is_some() {
            let until = made.expires_at.map(|at| format!(" until {at}")).unwrap_or_default();
            note(&format!("the certificate of {} has role {}{until}", made.name, made.role));
            note("to use it: plimsoll login https://ADDRESS --authority FILE --certificate FILE");
            return Ok(());
        }
        let mut login: Login =
            made.login.parse().map_err(|error| CliError::failed(format!("{error}")))?;
        if !args.addresses.is_empty() {
            login = Login::new(login.token, login.fingerprints, args.addresses.iter().cloned());
        }
        data(&format!("{login}\n"))?;
        let bound = match args.deployments.as_slice() {
            [] => String::new(),
            bound => format!(" in {}", bound.join(", ")),
        };
        let until = match made.expires_at {
            Some(at) => format!("until {at}"),
            None => "until it is revoked".to_owned(),
        };
        note(&format!(
            "token {} has role {}{bound}, {until}; it is shown only once",
            made.name, made.role
        ));
        note(&if login.addresses.is_empty() {
            "no node listens on TCP: the string is of use as PLIMSOLL_TOKEN on a socket; for `plimsoll login`, start nodes \
             with --listen or name addresses with --address"
                .to_owned()
        } else {
            format!("to use it at {}: plimsoll login STRING", login.addresses.join(", "))
        });
        Ok(())
    })
}

/// Of a file that may hold its key too, which is nobody else's business.
fn certificate(path: &Path) -> Result<String, CliError> {
    let wrong =
        |why: &str| CliError::refused(format!("--for-certificate {}: {why}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let certificate = first_certificate_pem(&pem);
    certificate.ok_or_else(|| wrong("no certificate in PEM is in it"))
}

fn list(args: &ListArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        if args.join {
            let tokens = client.join_tokens().await?;
            return print(args.output, &tokens, |tokens| join_text(tokens, now()));
        }
        let operators = client.operators().await?;
        print(args.output, &operators, |operators| text(operators, now()))
    })
}

fn revoke(args: &RevokeArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        if args.join {
            let gone = client.revoke_join_token(&args.name).await?;
            note(&format!("join token {} is revoked", gone.name));
            return Ok(());
        }
        let gone = client.revoke_operator(&args.name).await?;
        note(&format!("the token of {} is revoked", gone.name));
        Ok(())
    })
}

fn text(operators: &[Operator], now: Timestamp) -> String {
    if operators.is_empty() {
        return "Nobody has a token. Make one with: plimsoll token create NAME\n".to_owned();
    }
    let mut table = Table::new(["NAME", "ROLE", "DEPLOYMENTS", ">AGE", "EXPIRES", ">LAST USED"]);
    for operator in operators {
        let bound = match operator.deployments.as_slice() {
            [] => "*".to_owned(),
            bound => bound.join(","),
        };
        table.row([
            operator.name.clone(),
            operator.role.clone(),
            bound,
            age(operator.created_at, now),
            expiry(operator.expires_at, now),
            operator.last_used.map_or_else(|| "-".to_owned(), |at| age(at, now)),
        ]);
    }
    table.within(None)
}

fn join_text(tokens: &[JoinTokenStatus], now: Timestamp) -> String {
    if tokens.is_empty() {
        return "There are no join tokens. Make one with: plimsoll token create-join\n".to_owned();
    }
    let mut table = Table::new(["NAME", "STATE", ">AGE", "EXPIRES", "USED BY"]);
    for token in tokens {
        let expires = match token.state.as_str() {
            "good" => expiry(Some(token.expires_at), now),
            _ => "-".to_owned(),
        };
        table.row([
            token.name.clone(),
            token.state.clone(),
            age(token.created_at, now),
            expires,
            token.used_by.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.within(None)
}

fn expiry(at: Option<Time>, now: Timestamp) -> String {
    match at {
        None => "never".to_owned(),
        Some(at) if at.0 <= now => "expired".to_owned(),
        Some(at) => until(at, now),
    }
}

fn seconds(length: Millis) -> u64 {
    length.0.div_ceil(1_000)
}

fn address(text: &str) -> Result<String, String> {
    client::address(text).ok_or_else(|| format!("{text:?} is not an address; write host:port"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;
    use expect_test::expect;

    #[test]
    fn tokens_are_listed_with_what_becomes_of_them() {
        let (now, at) = (Timestamp(10_000_000), |millis| Time(Timestamp(millis)));
        let operator = |name: &str, deployments: &[&str], expires_at, last_used| Operator {
            name: name.to_owned(),
            role: "deploy".to_owned(),
            created_at: at(1_000_000),
            deployments: deployments.iter().map(|&it| it.to_owned()).collect(),
            expires_at,
            last_used,
        };
        let all = [
            operator("ann", &[], None, None),
            operator("ci", &["shop-*"], Some(at(96_400_000)), Some(at(9_940_000))),
            operator("old", &[], Some(at(9_000_000)), None),
        ];
        expect![[r"
            NAME  ROLE    DEPLOYMENTS  AGE  EXPIRES  LAST USED
            ann   deploy  *             2h  never            -
            ci    deploy  shop-*        2h  in 1d           1m
            old   deploy  *             2h  expired          -
        "]]
        .assert_eq(&strip_str(&text(&all, now)).to_string());
        let token = |name: &str, state: &str, used_by: Option<&str>| JoinTokenStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            created_at: at(1_000_000),
            expires_at: at(13_600_000),
            used_by: used_by.map(str::to_owned),
        };
        let all = [
            token("birch", "used", Some("birch")),
            token("cedar", "good", None),
            token("elm", "revoked", None),
        ];
        expect![[r"
            NAME   STATE    AGE  EXPIRES  USED BY
            birch  used      2h  -        birch
            cedar  good      2h  in 1h    -
            elm    revoked   2h  -        -
        "]]
        .assert_eq(&strip_str(&join_text(&all, now)).to_string());
    }
}
