//! `plimsoll token`: what lets nodes into the cell and people at its API.

use clap::ValueEnum;
use plimsoll_api::view::{NewJoinToken, NewOperator, Operator};
use plimsoll_model::Timestamp;

use crate::age::age;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, data, note, print};
use crate::table::Table;
use crate::wait::now;

const EXAMPLES: &str = "\
Examples:
  plimsoll token create-join                  one string, for one node, within a day
  plimsoll token create ann --role deploy     a token for a person or a program
  plimsoll token create ci --role deploy --deployments 'shop-*'
  plimsoll token revoke ann";

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
    /// Validity in minutes, at most 24 h
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
    #[command(flatten)]
    host: HostArgs,
}

/// Create an API token; it is printed once.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Name of the token, as shown in the audit log
    name: String,
    /// Role of the token; each includes the previous ones
    #[arg(long, value_enum, default_value_t = RoleWord::Deploy)]
    role: RoleWord,
    /// Bind the token to these deployments, by name or prefix: shop, 'shop-*' [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    deployments: Vec<String>,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RoleWord {
    Read,
    Deploy,
    Admin,
}

/// List API tokens.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

/// Revoke an API token on all nodes.
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// Name of the token
    name: String,
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
        let asked = NewJoinToken { minutes: args.minutes };
        let made = client.create_join_token(&asked).await?;
        data(&format!("{}\n", made.join))?;
        note(&format!(
            "good for one node until {}; on it: plimsoll up --join STRING",
            made.expires_at
        ));
        Ok(())
    })
}

fn create(args: &CreateArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let role = args.role.to_possible_value().map(|value| value.get_name().to_owned());
        let (name, deployments) = (args.name.clone(), args.deployments.clone());
        let asked = NewOperator { name, role: role.unwrap_or_default(), deployments };
        let made = client.add_operator(&asked).await?;
        data(&format!("{}\n", made.token))?;
        let bound = match args.deployments.as_slice() {
            [] => String::new(),
            bound => format!(" in {}", bound.join(", ")),
        };
        note(&format!("token {} has role {}{bound}; it is shown only once", made.name, made.role));
        Ok(())
    })
}

fn list(args: &ListArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let operators = client.operators().await?;
        print(args.output, &operators, |operators| text(operators, now()))
    })
}

fn revoke(args: &RevokeArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let gone = client.revoke_operator(&args.name).await?;
        note(&format!("the token of {} is revoked", gone.name));
        Ok(())
    })
}

fn text(operators: &[Operator], now: Timestamp) -> String {
    if operators.is_empty() {
        return "Nobody has a token. Make one with: plimsoll token create NAME\n".to_owned();
    }
    let mut table = Table::new(["NAME", "ROLE", "DEPLOYMENTS", ">AGE"]);
    for operator in operators {
        let bound = match operator.deployments.as_slice() {
            [] => "*".to_owned(),
            bound => bound.join(","),
        };
        let age = age(operator.created_at, now);
        table.row([operator.name.clone(), operator.role.clone(), bound, age]);
    }
    table.within(None)
}
