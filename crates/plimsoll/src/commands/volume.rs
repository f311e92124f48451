//! `plimsoll volume`: where named volumes are and who uses them; removes a copy, moves one to another node, copies one to a file
//! and back.

use std::time::{Duration, Instant};

use plimsoll_api::client::Client;
use plimsoll_api::view::{MoveVolume, ProblemCode, Volume, VolumeMoving, VolumeSize};
use plimsoll_model::{Bytes, Millis, Timestamp};
use tokio::time::sleep;

use crate::age::{age, took};
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, count, note, print};
use crate::table::Table;
use crate::wait::now;

mod backup;
mod hold;
mod restore;

/// How often a volume is looked at while something is done with it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How often a move says how far it is.
const SAY_AGAIN: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  plimsoll volume list
  plimsoll volume inspect shop_db
  plimsoll volume move shop_db birch          copies it to birch, with all that uses it
  plimsoll volume rm shop_db --node ash       removes the copy that ash keeps
  plimsoll volume backup shop_db -o db.volume
  plimsoll volume restore shop_db -i db.volume

A volume goes by the name that the container engine has: DEPLOYMENT_VOLUME, unless the compose file names it otherwise.";

/// List, inspect, move, back up, restore and remove named volumes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: VolumeCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum VolumeCommand {
    /// List the named volumes of all deployments, and the nodes that have them
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show where a volume is, how large it is, and who uses it
    Inspect(InspectArgs),
    /// Move a volume to another node, with the services that use it
    Move(MoveArgs),
    /// Remove a copy of a volume that nothing uses
    Rm(RemoveArgs),
    /// Copy what is in a volume to a file; what uses it is stopped meanwhile
    Backup(backup::BackupArgs),
    /// Replace what is in a volume by a backup; what uses it is stopped meanwhile
    Restore(restore::RestoreArgs),
}

impl VolumeCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        match self {
            Self::List(args) => &mut args.host,
            Self::Inspect(args) => &mut args.host,
            Self::Move(args) => &mut args.host,
            Self::Rm(args) => &mut args.host,
            Self::Backup(args) => &mut args.host,
            Self::Restore(args) => &mut args.host,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    volume: VolumeName,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
struct VolumeName {
    /// Name of the volume, as the container engine has it
    #[arg(value_name = "VOLUME")]
    name: String,
    /// Deployment that uses it, where several do
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    volume: VolumeName,
    /// Node to move it to
    node: String,
    /// Return without waiting
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    volume: VolumeName,
    /// Node whose copy is removed, where several have one
    #[arg(long)]
    node: Option<String>,
    /// Forget the copy of a node that is down
    #[arg(long, requires = "node")]
    force: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn run(what: &VolumeCommand) -> Result<(), CliError> {
    match what {
        VolumeCommand::List(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let volumes = client.volumes().await?;
                print(args.output, &volumes, |volumes| table(volumes))
            })
        }
        VolumeCommand::Inspect(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let found = find(&client, &args.volume).await?;
                let volume = client.volume(&found.deployment, &found.name).await?;
                print(args.output, &volume, |volume| page(volume, now()))
            })
        }
        VolumeCommand::Move(args) => {
            let client = args.host.client()?;
            live::block_on(move_to(&client, args))
        }
        VolumeCommand::Rm(args) => {
            let client = args.host.client()?;
            live::block_on(remove(&client, args))
        }
        VolumeCommand::Backup(args) => {
            let client = args.host.client()?;
            live::block_on(backup::run(&client, args))
        }
        VolumeCommand::Restore(args) => {
            let client = args.host.client()?;
            live::block_on(restore::run(&client, args))
        }
    }
}

/// The volume of this name, of whichever deployment has one.
async fn find(client: &Client, asked: &VolumeName) -> Result<Volume, CliError> {
    let is_meant = |volume: &Volume| {
        volume.name == asked.name
            && asked.deployment.as_ref().is_none_or(|name| *name == volume.deployment)
    };
    let mut found: Vec<Volume> = client.volumes().await?.into_iter().filter(is_meant).collect();
    match found.len() {
        0 => Err(CliError::refused(format!("there is no volume {}", asked.name))
            .hint("`plimsoll volume list` lists them")),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<&str> = found.iter().map(|volume| volume.deployment.as_str()).collect();
            let text = format!("{} is a volume of {}", asked.name, names.join(", "));
            Err(CliError::refused(text).hint("name one of them with `--deployment`"))
        }
    }
}

async fn remove(client: &Client, args: &RemoveArgs) -> Result<(), CliError> {
    let RemoveArgs { volume, node, force, .. } = args;
    let found = find(client, volume).await?;
    let (deployment, name) = (&found.deployment, &found.name);
    let asked = client.remove_volume(deployment, name, node.as_deref(), *force).await?;
    if *force {
        note(&format!("the cell has forgotten {name} on {}", asked.node));
        return Ok(());
    }
    loop {
        let is_there = match client.volume(deployment, name).await {
            Ok(volume) => volume.copies.iter().any(|copy| copy.node == asked.node),
            Err(error) if error.code() == Some(ProblemCode::NoSuchVolume) => false,
            Err(error) => return Err(error.into()),
        };
        if !is_there {
            note(&format!("{name} removed from {}", asked.node));
            return Ok(());
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn move_to(client: &Client, args: &MoveArgs) -> Result<(), CliError> {
    let found = find(client, &args.volume).await?;
    let asked = MoveVolume { node: args.node.clone() };
    let begun = client.move_volume(&found.deployment, &found.name, &asked).await?;
    let what = begun.volumes.join(", ");
    match begun.services.as_slice() {
        [] => note(&format!("moving {what} to {}", begun.node)),
        services => {
            note(&format!("moving {what} to {}: stopping {}", begun.node, services.join(", ")));
        }
    }
    if args.detach {
        return Ok(());
    }
    follow(client, &found.deployment, &found.name, &begun.node).await
}

/// Says how far a move is, until it is over.
pub(crate) async fn follow(
    client: &Client,
    deployment: &str,
    volume: &str,
    to: &str,
) -> Result<(), CliError> {
    let begun = Instant::now();
    let mut said: Option<Instant> = None;
    loop {
        let seen = client.volume(deployment, volume).await?;
        let is_at = |state: &str| {
            let mut copies = seen.copies.iter();
            copies.any(|copy| copy.node == to && copy.state == state)
        };
        match &seen.moving {
            Some(moving) => {
                if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
                    note(&progress(&seen, moving));
                    said = Some(Instant::now());
                }
            }
            None if is_at("data") => {
                let after = Millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
                note(&format!("{volume} is on {to} after {}", took(after)));
                if let Some(old) = seen.copies.iter().find(|copy| copy.state == "old") {
                    let node = &old.node;
                    note(&format!(
                        "hint: {node} keeps an old copy; `plimsoll volume rm {volume} --node {node}` removes it"
                    ));
                }
                return Ok(());
            }
            None => {
                let why = seen.move_failed.as_deref().unwrap_or("it was given up");
                let text = format!("{volume} stays where it is: {why}");
                return Err(CliError::failed(text)
                    .hint("the services that use it start again where they were"));
            }
        }
        sleep(LOOK_AGAIN).await;
    }
}

fn progress(volume: &Volume, moving: &VolumeMoving) -> String {
    let source = volume.copies.iter().find(|copy| copy.node == moving.from);
    let of = source.and_then(|copy| copy.size);
    match (moving.phase.as_str(), moving.copied, of) {
        ("copying", Some(copied), Some(of)) => {
            format!("copying: {} of {}", Bytes(copied.bytes), Bytes(of.bytes))
        }
        (phase, ..) => phase.to_owned(),
    }
}

fn table(volumes: &[Volume]) -> String {
    if volumes.is_empty() {
        return "No deployment has named volumes.\n".to_owned();
    }
    let mut table = Table::new(["VOLUME", "DEPLOYMENT", "SERVICES", "NODES", "IN USE", "STATE"]);
    for it in volumes {
        let nodes = it.copies.iter().map(|copy| match copy.state.as_str() {
            "data" => copy.node.clone(),
            state => format!("{} ({state})", copy.node),
        });
        let nodes: Vec<String> = nodes.collect();
        let in_use = if it.used_by.is_empty() { "no" } else { "yes" };
        table.row([
            it.name.clone(),
            it.deployment.clone(),
            listed(&it.services),
            listed(&nodes),
            in_use.to_owned(),
            state(it),
        ]);
    }
    table.within(None)
}

fn state(volume: &Volume) -> String {
    if let Some(moving) = &volume.moving {
        return format!("moving to {}", moving.to);
    }
    if let Some(held) = &volume.held {
        return hold::noun(held.purpose).to_owned();
    }
    match (volume.is_split, volume.is_external) {
        (true, _) => "split".to_owned(),
        (_, true) => "external".to_owned(),
        _ => String::new(),
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

pub(super) fn size(size: Option<VolumeSize>) -> String {
    match size {
        Some(VolumeSize { files, bytes }) => {
            format!(
                "{}, {}",
                Bytes(bytes),
                count(usize::try_from(files).unwrap_or(usize::MAX), "file")
            )
        }
        None => "size unknown".to_owned(),
    }
}

fn page(volume: &Volume, now: Timestamp) -> String {
    let mut text = format!("{} of {}\n", volume.name, volume.deployment);
    let mut say = |line: String| text.extend(["  ", &line, "\n"]);
    for copy in &volume.copies {
        let what = match copy.state.as_str() {
            "old" => "keeps an old copy, which nothing uses",
            "removing" => "is removing its copy",
            _ => "has the data",
        };
        say(format!("{} {what} ({})", copy.node, size(copy.size)));
    }
    match volume.services.as_slice() {
        [] => say("mounted by no service".to_owned()),
        services => say(format!("mounted by {}", services.join(", "))),
    }
    for user in &volume.used_by {
        say(format!("used by {} on {}", user.replica, user.node));
    }
    if volume.is_split {
        say("split: several nodes have it, and nothing chooses between them".to_owned());
    }
    if let Some(moving) = &volume.moving {
        let since = age(moving.since, now);
        say(format!("moving {} → {}, {} since {since}", moving.from, moving.to, moving.phase));
    }
    if let Some(held) = &volume.held {
        let since = age(held.since, now);
        say(format!("{} under way, {} since {since}", hold::noun(held.purpose), held.phase));
    }
    if let Some(why) = &volume.move_failed {
        say(format!("the last move failed: {why}"));
    }
    for reason in &volume.reasons {
        say(format!("{} waits: {}", reason.subject, reason.text));
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::{Reason, ReasonCode, Time, VolumeCopy, VolumeUser};

    use super::*;

    fn volume(name: &str, copies: &[(&str, &str)]) -> Volume {
        let copy = |(node, state): &(&str, &str)| VolumeCopy {
            node: (*node).to_owned(),
            state: (*state).to_owned(),
            size: Some(VolumeSize { files: 2, bytes: 3 << 20 }),
        };
        Volume {
            name: name.to_owned(),
            deployment: "shop".to_owned(),
            is_external: false,
            copies: copies.iter().map(copy).collect(),
            services: vec!["db".to_owned()],
            used_by: Vec::new(),
            is_split: false,
            moving: None,
            move_failed: None,
            held: None,
            reasons: Vec::new(),
        }
    }

    #[test]
    fn a_list_says_where_volumes_are_and_what_is_the_matter_with_them() {
        let replica = "shop-db-1".to_owned();
        let used = VolumeUser { replica, node: "ash".to_owned() };
        let to = VolumeMoving {
            from: "ash".to_owned(),
            to: "birch".to_owned(),
            phase: "copying".to_owned(),
            since: Time(Timestamp(60_000)),
            volumes: vec!["shop_moving".to_owned()],
            copied: None,
        };
        let all = [
            Volume { used_by: vec![used], ..volume("shop_db", &[("ash", "data"), ("oak", "old")]) },
            Volume { is_split: true, ..volume("shop_split", &[("ash", "data"), ("oak", "data")]) },
            Volume { moving: Some(to.clone()), ..volume("shop_moving", &[("ash", "data")]) },
            Volume { services: Vec::new(), ..volume("shop_left", &[("ash", "removing")]) },
        ];
        expect![[r#"
            VOLUME       DEPLOYMENT  SERVICES  NODES           IN USE  STATE
            shop_db      shop        db        ash, oak (old)  yes
            shop_split   shop        db        ash, oak        no      split
            shop_moving  shop        db        ash             no      moving to birch
            shop_left    shop        -         ash (removing)  no
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&table(&all)).to_string());
        assert_eq!(table(&[]), "No deployment has named volumes.\n");

        let mut one = Volume { moving: Some(to), ..volume("shop_db", &[("ash", "data")]) };
        let text = "stopped while its volumes move to birch";
        one.reasons = vec![Reason::new("shop/db", ReasonCode::VolumeMoving, text)];
        expect![[r#"
            shop_db of shop
              ash has the data (3 MiB, 2 files)
              mounted by db
              moving ash → birch, copying since 1m
              shop/db waits: stopped while its volumes move to birch
        "#]]
        .assert_eq(&page(&one, Timestamp(120_000)));
    }
}
