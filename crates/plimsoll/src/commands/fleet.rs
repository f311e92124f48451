//! `plimsoll fleet`: on a coordinator who is in the fleet, what moves and why the rest does not; on a cell its place in a fleet.

use plimsoll_api::view::{FleetStatus, JoinFleet, NewFleetToken, SetFleet, SetFleetQuota};

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, data, note, print};
use crate::wait::now;

mod text;

const EXAMPLES: &str = "\
Examples:
  plimsoll fleet token create north         on the coordinator: one string, for one cell, within a day
  plimsoll fleet join STRING                on the cell
  plimsoll fleet status                     on either
  plimsoll fleet shortfalls                 what cells lack, and why it is not served
  plimsoll fleet explain SHORTFALL          the same of one, gate by gate
  plimsoll fleet quota set m5.large eu-1a north 20
  plimsoll fleet pause                      nothing is begun; what is under way is finished
  plimsoll fleet expel north                at once

Everything that changes something needs role admin.

Experimental. Nothing offers machines to a running cell yet, so none change hands.";

/// Show and manage a fleet of cells (experimental).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: FleetCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum FleetCommand {
    /// Show the fleet, or this cell's place in one
    Status(ShowArgs),
    /// List the cells of the fleet
    Shards(ShowArgs),
    /// List the machines that have changed hands; none yet
    Machines(ShowArgs),
    /// List what cells lack, and why it is not served
    Shortfalls(ShowArgs),
    /// Show or set the quota for machines that do not exist yet
    Quota(QuotaArgs),
    /// List the transfers under way; of machines there are none yet
    Transfers(ShowArgs),
    /// Show why a shortfall is not served, gate by gate
    Explain(ExplainArgs),
    /// Begin no transfers; those under way are finished
    Pause(ShowArgs),
    /// Begin transfers again
    Resume(ShowArgs),
    /// Let cells into the fleet
    Token(TokenArgs),
    /// Have this cell join a fleet
    Join(JoinArgs),
    /// Have this cell leave its fleet
    Leave(ShowArgs),
    /// Expel a cell from the fleet, at once
    Expel(ExpelArgs),
}

impl FleetCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        match self {
            Self::Status(args)
            | Self::Shards(args)
            | Self::Machines(args)
            | Self::Shortfalls(args)
            | Self::Transfers(args)
            | Self::Pause(args)
            | Self::Resume(args)
            | Self::Leave(args) => &mut args.host,
            Self::Quota(args) => match &mut args.what {
                Some(QuotaCommand::Set(args)) => &mut args.host,
                None => &mut args.host,
            },
            Self::Explain(args) => &mut args.host,
            Self::Token(args) => match &mut args.what {
                TokenCommand::Create(args) => &mut args.host,
            },
            Self::Join(args) => &mut args.host,
            Self::Expel(args) => &mut args.host,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct QuotaArgs {
    #[command(subcommand)]
    what: Option<QuotaCommand>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Subcommand)]
enum QuotaCommand {
    /// Set how many machines of a type in a zone a cell may have made
    Set(SetQuotaArgs),
}

#[derive(Debug, clap::Args)]
struct SetQuotaArgs {
    /// Machine type, as the provider calls it
    machine_type: String,
    /// Zone
    zone: String,
    /// Name of the cell in the fleet
    shard: String,
    /// Number of machines
    slice: u32,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The shortfall, as `plimsoll fleet shortfalls` names it
    shortfall: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    what: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    /// Print a single-use token for one cell, valid for 24 h
    Create(CreateTokenArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "On a node of the cell: plimsoll fleet join STRING")]
struct CreateTokenArgs {
    /// What the cell will be called in the fleet
    name: String,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct JoinArgs {
    /// What `plimsoll fleet token create` printed
    join: String,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExpelArgs {
    /// Name of the cell in the fleet
    shard: String,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn run(what: &FleetCommand) -> Result<(), CliError> {
    match what {
        FleetCommand::Status(args) => show(args, |it| text::status(it, now())),
        FleetCommand::Shards(args) => part(args, |it| &it.shards, |it| text::shards(it, now())),
        FleetCommand::Machines(args) => {
            part(args, |it| &it.machines, |it| text::machines(it, now()))
        }
        FleetCommand::Shortfalls(args) => {
            part(args, |it| &it.shortfalls, |it| text::shortfalls(it))
        }
        FleetCommand::Transfers(args) => {
            part(args, |it| &it.transfers, |it| text::transfers(it, now()))
        }
        FleetCommand::Quota(QuotaArgs { what: Some(QuotaCommand::Set(args)), .. }) => {
            set_quota(args)
        }
        FleetCommand::Quota(QuotaArgs { output, host, .. }) => {
            let client = host.client()?;
            live::block_on(async {
                let status = client.fleet().await?;
                print(*output, &status.quota, |quota| text::quota(quota))
            })
        }
        FleetCommand::Explain(args) => explain(args),
        FleetCommand::Pause(args) => pause(args, true),
        FleetCommand::Resume(args) => pause(args, false),
        FleetCommand::Token(TokenArgs { what: TokenCommand::Create(args) }) => create_token(args),
        FleetCommand::Join(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let status = client.join_fleet(&JoinFleet { join: args.join.clone() }).await?;
                data(&text::place(&status, now()))
            })
        }
        FleetCommand::Leave(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let status = client.leave_fleet().await?;
                print(args.output, &status, |_| "this cell is in no fleet any more\n".to_owned())?;
                note("the coordinator forgets it with `plimsoll fleet expel NAME`");
                Ok(())
            })
        }
        FleetCommand::Expel(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                client.expel_shard(&args.shard).await?;
                data(&format!("{} is expelled; the machines it has stay its own\n", args.shard))
            })
        }
    }
}

fn show(args: &ShowArgs, text: impl FnOnce(&FleetStatus) -> String) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = client.fleet().await?;
        print(args.output, &status, text)
    })
}

/// One list of it.
fn part<T: serde::Serialize>(
    args: &ShowArgs,
    part: impl Fn(&FleetStatus) -> &Vec<T>,
    text: impl FnOnce(&Vec<T>) -> String,
) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = client.fleet().await?;
        print(args.output, part(&status), text)
    })
}

fn pause(args: &ShowArgs, paused: bool) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = client.set_fleet(&SetFleet { paused }).await?;
        print(args.output, &status, |it| {
            let open = it.transfers.len();
            if it.is_paused {
                format!("the fleet is paused; {open} transfers under way are finished\n")
            } else {
                "the fleet is resumed\n".to_owned()
            }
        })
    })
}

fn set_quota(args: &SetQuotaArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    let asked = SetFleetQuota {
        machine_type: args.machine_type.clone(),
        zone: args.zone.clone(),
        shard: args.shard.clone(),
        slice: args.slice,
    };
    live::block_on(async {
        let status = client.set_fleet_quota(&asked).await?;
        data(&text::quota(&status.quota))
    })
}

fn create_token(args: &CreateTokenArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let asked = NewFleetToken { shard: args.name.clone() };
        let token = client.create_fleet_token(&asked).await?;
        data(&format!("{}\n", token.join))?;
        note("valid for 24 h, for one cell; on a node of it: plimsoll fleet join STRING");
        Ok(())
    })
}

fn explain(args: &ExplainArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = client.fleet().await?;
        let found = status.shortfalls.iter().find(|it| it.name == args.shortfall);
        let Some(found) = found else {
            let message = format!("no shard reports a shortfall {}", args.shortfall);
            return Err(CliError::refused(message).hint("`plimsoll fleet shortfalls` lists them"));
        };
        print(args.output, found, text::explained)
    })
}
