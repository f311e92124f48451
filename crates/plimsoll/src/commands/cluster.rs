//! `plimsoll cluster`: the servers that hold the cell's log.

use plimsoll_daemon::view::Cluster;

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
        "cell {}: {leader}; {} has applied entry {}; level {}\n{trouble}{upgrade}\n",
        cluster.cluster, cluster.node, cluster.applied, cluster.level
    );
    let mut table = Table::new(["SERVER", "NODE", "ADDRESS", "VOTES", "ROLE", "VERSION"]);
    for server in &cluster.servers {
        let role = if server.is_leader { "leader" } else { "follower" };
        let votes = if server.votes { "yes" } else { "no" };
        table.row([
            server.id.to_string(),
            server.node.clone(),
            server.address.clone(),
            votes.to_owned(),
            role.to_owned(),
            server.version.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    text.push_str(&table.within(None));
    text
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
            servers: vec![server(1, "ash", true), server(2, "birch", false)],
        };
        expect![[r#"
            cell shop: ash leads in term 3; birch has applied entry 120; level 1
            an upgrade is half done

            [2mSERVER  NODE   ADDRESS        VOTES  ROLE      VERSION[0m
            1       ash    10.0.0.1:7117  yes    leader    0.1.0
            2       birch  10.0.0.2:7117  no     follower  0.1.0
        "#]]
        .assert_eq(&text(&cluster));
        let trouble = Some(Problem::failure("quorum_lost", "1 of 3 servers answers; 2 are needed"));
        let said = text(&Cluster { leader: None, trouble, ..cluster });
        let beginning = "cell shop: nobody leads; birch has applied entry 120; level 1\n\
            quorum_lost: 1 of 3 servers answers; 2 are needed\nan upgrade is half done\n\n";
        assert!(said.starts_with(beginning), "{said}");
    }
}
