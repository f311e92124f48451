//! `plimsoll cluster`: the servers that hold the cell's log.

use std::fmt::Write as _;

use plimsoll_daemon::view::{Cluster, Tenure};
use plimsoll_model::Millis;

use crate::elapsed::elapsed;
use crate::live::{self, Host};
use crate::output::{Format, print};
use crate::table::Table;
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll cluster status            who leads, and whose votes count
  plimsoll cluster status -o json
  plimsoll cluster recover           go on with one server when most are lost for good";

mod recover;

/// See the servers of the cell, or go on without those that are lost.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum What {
    Status(StatusArgs),
    Recover(recover::Args),
}

/// Show who leads, and which servers vote.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: Host,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let args = match &args.what {
        What::Status(args) => args,
        What::Recover(args) => return recover::run(args),
    };
    let client = args.host.client()?;
    live::block_on(async {
        let cluster = client.cluster().await?;
        print(args.output, &cluster, text)
    })
}

fn text(cluster: &Cluster) -> String {
    let leader = match &cluster.leader {
        Some(leader) => format!("{leader} leads in term {}", cluster.term),
        None => "nobody leads".to_owned(),
    };
    let trouble = match &cluster.trouble {
        Some(problem) => format!("{}: {}\n", problem.code, problem.message),
        None => String::new(),
    };
    let upgrade = cluster.upgrade.as_ref().map(|said| format!("{said}\n")).unwrap_or_default();
    let mut text = format!(
        "cell {}: {leader}; {} has applied entry {}; level {}\n{}{trouble}{upgrade}\n",
        cluster.cluster,
        cluster.node,
        cluster.applied,
        cluster.level,
        tenure(cluster)
    );
    let mut table =
        Table::new(["SERVER", "NODE", "ADDRESS", "VOTES", "ROLE", "APPLIED", "LAG", "VERSION"]);
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    for server in &cluster.servers {
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
fn tenure(cluster: &Cluster) -> String {
    let Tenure { engine, led_ms, elections, lease_left_ms, .. } = &cluster.tenure;
    let Some(engine) = engine else { return String::new() };
    let plural = if *elections == 1 { "" } else { "s" };
    let mut text = format!("log: {engine}; {elections} election{plural} seen");
    if let (Some(leader), Some(led)) = (&cluster.leader, led_ms) {
        let _ = write!(text, "; {leader} leads for {}", elapsed(Millis(*led)));
    }
    if let Some(left) = lease_left_ms {
        let (whole, tenths) = (left / 1_000, left / 100 % 10);
        let _ = write!(text, "; {}'s lease has {whole}.{tenths}s left", cluster.node);
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_daemon::view::{Problem, Server};

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
        let cluster = Cluster {
            cluster: "shop".into(),
            node: "birch".into(),
            leader: Some("ash".into()),
            term: 3,
            applied: 120,
            joinable: true,
            trouble: None,
            level: 1,
            upgrade: Some("an upgrade is half done".to_owned()),
            is_changing: false,
            tenure: Tenure::default(),
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
        .assert_eq(&text(&cluster));
        let on_etcd = Tenure {
            engine: Some("etcd".into()),
            led_ms: Some(75_000),
            elections: 1,
            lease_left_ms: Some(12_340),
            hindrance: None,
        };
        let said = text(&Cluster { tenure: on_etcd, ..cluster.clone() });
        let line = "log: etcd; 1 election seen; ash leads for 1m 15s; birch's lease has 12.3s left";
        assert_eq!(said.lines().nth(1), Some(line));
        let trouble = Some(Problem::failure("quorum_lost", "1 of 3 servers answers; 2 are needed"));
        let said = text(&Cluster { leader: None, trouble, ..cluster });
        let beginning = "cell shop: nobody leads; birch has applied entry 120; level 1\n\
            quorum_lost: 1 of 3 servers answers; 2 are needed\nan upgrade is half done\n\n";
        assert!(said.starts_with(beginning), "{said}");
    }
}
