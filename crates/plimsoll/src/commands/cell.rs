//! `plimsoll cell`: the servers that hold the cell's log.

use std::fmt::Write as _;

use plimsoll_api::view::{Cell, LeadershipInfo};
use plimsoll_model::Millis;

use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, note, print};
use crate::table::Table;
use plimsoll_workbench::text::elapsed;

const EXAMPLES: &str = "\
Examples:
  plimsoll cell status            who leads, and whose votes count
  plimsoll cell status -o json
  plimsoll cell recover           go on with one server when most are lost for good
  plimsoll cell authority > ca.pem    the certificate to check nodes with
  plimsoll cell rotate-authority  replace the certificate authority, without downtime
  plimsoll cell unlock-key        a key to lock the store of a server with
  plimsoll cell backup-key        the key that backups are encrypted with";

mod backup_key;
mod lock;
mod recover;
mod recover_etcd;
mod rotate;
mod seal_key;

/// Show the servers of the cell, recover it after losing the quorum, manage its authority and its keys.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: CellCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum CellCommand {
    Status(StatusArgs),
    Authority(AuthorityArgs),
    Recover(Box<recover::Args>),
    RotateAuthority(rotate::Args),
    BackupKey(backup_key::BackupKeyArgs),
    EtcdSealKey(seal_key::SealKeyArgs),
    UnlockKey(lock::UnlockKeyArgs),
    ChangeLock(lock::ChangeArgs),
}

/// Show the leader and the servers.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Print the CA certificate of the cell, for other tools to check its nodes with.
#[derive(Debug, clap::Args)]
pub(crate) struct AuthorityArgs {
    /// Output format; a table is PEM alone
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let args = match &args.what {
        CellCommand::Status(args) => args,
        CellCommand::Authority(args) => return authority(args),
        CellCommand::Recover(args) => return recover::run(args),
        CellCommand::RotateAuthority(args) => return rotate::run(args),
        CellCommand::BackupKey(args) => return backup_key::run(args),
        CellCommand::EtcdSealKey(args) => return seal_key::run(args),
        CellCommand::UnlockKey(_) => return lock::create(),
        CellCommand::ChangeLock(args) => return lock::change(args),
    };
    let client = args.host.client()?;
    live::block_on(async {
        let cell = client.cell().await?;
        print(args.output, &cell, text)
    })
}

fn authority(args: &AuthorityArgs) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let authorities = client.authorities().await?;
        print(args.output, &authorities, |all| {
            all.iter().map(|authority| authority.certificate.as_str()).collect()
        })?;
        for authority in &authorities {
            note(&format!("fingerprint {}", authority.fingerprint));
            note(&format!("every node's certificate is for {}", authority.server_name));
        }
        Ok(())
    })
}

fn text(cell: &Cell) -> String {
    let leader = match &cell.leader {
        Some(leader) => format!("{leader} leads in term {}", cell.term),
        None => "no leader".to_owned(),
    };
    let trouble = match &cell.trouble {
        Some(problem) => format!("{}: {}\n", problem.code, problem.message),
        None => String::new(),
    };
    let upgrade = cell.upgrade.as_ref().map(|said| format!("{said}\n")).unwrap_or_default();
    let rotation = cell.authority.as_ref().and_then(|authority| authority.rotation.as_ref());
    let rotation = rotation.map(|it| format!("authority: {}\n", rotate::progress(it)));
    let rotation = rotation.unwrap_or_default();
    let mut text = format!(
        "cell {}: {leader}; {} has applied entry {}; level {}\n{}{trouble}{upgrade}{rotation}\n",
        cell.name,
        cell.node,
        cell.applied,
        cell.level,
        tenure(cell)
    );
    let mut table =
        Table::new(["SERVER", "NODE", "ADDRESS", "VOTES", "ROLE", "APPLIED", "LAG", "VERSION"]);
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    for server in &cell.servers {
        let role = server.role.as_deref().unwrap_or("does not answer");
        let votes = if server.votes { "yes" } else { "no" };
        table.row([
            server.id.to_string(),
            server.node.clone(),
            server.address.clone(),
            votes.to_owned(),
            role.to_owned(),
            number(server.applied),
            number(server.lag),
            server.version.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    text.push_str(&table.within(None));
    text
}

/// What the log is kept in, and what the leadership rests on; nothing where a daemon does not say.
fn tenure(cell: &Cell) -> String {
    let LeadershipInfo { engine, led_ms, elections, lease_left_ms, .. } = &cell.tenure;
    let Some(engine) = engine else { return String::new() };
    let plural = if *elections == 1 { "" } else { "s" };
    let mut text = format!("log: {engine}; {elections} election{plural} seen");
    if let (Some(leader), Some(led)) = (&cell.leader, led_ms) {
        let _ = write!(text, "; {leader} leads for {}", elapsed(Millis(*led)));
    }
    if let Some(left) = lease_left_ms {
        let (whole, tenths) = (left / 1_000, left / 100 % 10);
        let _ = write!(text, "; {}'s lease has {whole}.{tenths}s left", cell.node);
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::{Problem, ProblemCode, Server};

    use super::*;

    #[test]
    fn the_servers_say_who_leads_and_who_votes() {
        let server = |id: u64, node: &str, votes: bool| Server {
            id,
            node: node.to_owned(),
            address: format!("10.0.0.{id}:7117"),
            votes,
            is_leader: id == 1,
            role: (id < 3).then(|| if id == 1 { "leader" } else { "learner" }.to_owned()),
            applied: (id < 3).then_some(122 - id),
            lag: (id < 3).then_some(id - 1),
            version: Some("0.1.0".to_owned()),
        };
        let cell = Cell {
            name: "shop".into(),
            node: "birch".into(),
            leader: Some("ash".into()),
            term: 3,
            applied: 120,
            joinable: true,
            trouble: None,
            level: 1,
            upgrade: Some("an upgrade is half done".to_owned()),
            is_changing: false,
            authority: None,
            tenure: LeadershipInfo::default(),
            servers: vec![
                server(1, "ash", true),
                server(2, "birch", false),
                server(3, "cedar", true),
            ],
        };
        expect![[r#"
            cell shop: ash leads in term 3; birch has applied entry 120; level 1
            an upgrade is half done

            [2mSERVER  NODE   ADDRESS        VOTES  ROLE             APPLIED  LAG  VERSION[0m
            1       ash    10.0.0.1:7117  yes    leader           121      0    0.1.0
            2       birch  10.0.0.2:7117  no     learner          120      1    0.1.0
            3       cedar  10.0.0.3:7117  yes    does not answer  -        -    0.1.0
        "#]]
        .assert_eq(&text(&cell));
        let on_etcd = LeadershipInfo {
            engine: Some("etcd".into()),
            led_ms: Some(75_000),
            elections: 1,
            lease_left_ms: Some(12_340),
            hindrance: None,
        };
        let said = text(&Cell { tenure: on_etcd, ..cell.clone() });
        let line = "log: etcd; 1 election seen; ash leads for 1m 15s; birch's lease has 12.3s left";
        assert_eq!(said.lines().nth(1), Some(line));
        let trouble =
            Some(Problem::new(ProblemCode::QuorumLost, "1 of 3 servers answers; 2 are needed"));
        let said = text(&Cell { leader: None, trouble, ..cell });
        let beginning = "cell shop: no leader; birch has applied entry 120; level 1\n\
            quorum_lost: 1 of 3 servers answers; 2 are needed\nan upgrade is half done\n\n";
        assert!(said.starts_with(beginning), "{said}");
    }
}
