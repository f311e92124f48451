//! `plimsoll token`: what lets nodes into the cell and people at its API.

use clap::ValueEnum;
use plimsoll_daemon::view::{NewJoinToken, NewOperator, Operator};
use plimsoll_model::Timestamp;

use crate::age::age;
use crate::live::{self, Host};
use crate::output::{Format, data, note, print};
use crate::settle::now;
use crate::table::Table;
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll token create-join                  one string, for one node, within a day
  plimsoll token create ann --role deploy     a token for a person or a program
  plimsoll token revoke ann";

/// Let nodes join the cell, and people use it over the network.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum What {
    CreateJoin(JoinArgs),
    Create(CreateArgs),
    #[command(visible_alias = "ls")]
    List(ListArgs),
    Revoke(RevokeArgs),
}

impl What {
    pub(crate) fn host(&mut self) -> &mut Host {
        match self {
            Self::CreateJoin(args) => &mut args.host,
            Self::Create(args) => &mut args.host,
            Self::List(args) => &mut args.host,
            Self::Revoke(args) => &mut args.host,
        }
    }
}

/// Print one string that one node can join with, within a day.
#[derive(Debug, clap::Args)]
#[command(after_help = "On the other machine: plimsoll up --join STRING")]
pub(crate) struct JoinArgs {
    /// How many minutes it is good for; a day at most
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
    #[command(flatten)]
    host: Host,
}

/// Give somebody a token for the API; it is printed once.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Whose it is, as the audit will say
    name: String,
    /// What it allows; each includes the ones before
    #[arg(long, value_enum, default_value_t = RoleWord::Deploy)]
    role: RoleWord,
    #[command(flatten)]
    host: Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RoleWord {
    Read,
    Deploy,
    Admin,
}

/// List who has a token.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// How to print them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: Host,
}

/// Take somebody's token back, everywhere at once.
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// Whose
    name: String,
    #[command(flatten)]
    host: Host,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    match &args.what {
        What::CreateJoin(args) => create_join(args),
        What::Create(args) => create(args),
        What::List(args) => list(args),
        What::Revoke(args) => revoke(args),
    }
}

fn create_join(args: &JoinArgs) -> Result<(), Trouble> {
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

fn create(args: &CreateArgs) -> Result<(), Trouble> {
    let client = args.host.client()?;
    live::block_on(async {
        let role = args.role.to_possible_value().map(|value| value.get_name().to_owned());
        let asked = NewOperator { name: args.name.clone(), role: role.unwrap_or_default() };
        let made = client.add_operator(&asked).await?;
        data(&format!("{}\n", made.token))?;
        note(&format!("{} may {}; this is the only time it is shown", made.name, made.role));
        Ok(())
    })
}

fn list(args: &ListArgs) -> Result<(), Trouble> {
    let client = args.host.client()?;
    live::block_on(async {
        let operators = client.operators().await?;
        print(args.output, &operators, |operators| text(operators, now()))
    })
}

fn revoke(args: &RevokeArgs) -> Result<(), Trouble> {
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
    let mut table = Table::new(["NAME", "ROLE", ">AGE"]);
    for operator in operators {
        table.row([operator.name.clone(), operator.role.clone(), age(operator.created_at, now)]);
    }
    table.within(None)
}
