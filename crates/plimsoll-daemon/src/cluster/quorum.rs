//! Whether enough servers answer for the cell to have a leader. While nobody leads, this node asks the voters; what it finds
//! tells the short time of an election from a cell that has lost too many servers. While somebody leads it asks nobody.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::Method;
use plimsoll_store::Member;
use tokio::sync::watch;
use tokio::time::sleep;

use super::target;
use crate::cell::Cell;
use crate::peer::Client;
use crate::view::Problem;

/// How long a server may take to say that it lives.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the servers are asked.
const EVERY: Duration = Duration::from_millis(500);

/// What every node answers to, whoever leads.
const PATH: &str = "/healthz";

/// How many of those who vote could be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quorum {
    pub voters: usize,
    /// This node among them, if it votes.
    pub answering: usize,
    /// The nodes that did not answer.
    pub silent: Vec<String>,
}

impl Quorum {
    pub fn needed(&self) -> usize {
        self.voters / 2 + 1
    }

    pub fn is_lost(&self) -> bool {
        self.voters > 0 && self.answering < self.needed()
    }

    /// `1 of 3 servers answers; 2 are needed (birch and cedar do not)`
    pub fn sentence(&self) -> String {
        let Self { voters, answering, silent } = self;
        let (answer, are) = (if *answering == 1 { "answers" } else { "answer" }, self.needed());
        let verb = if are == 1 { "is" } else { "are" };
        let silent = match silent.as_slice() {
            [] => String::new(),
            [one] => format!(" ({one} does not)"),
            [most @ .., last] => format!(" ({} and {last} do not)", most.join(", ")),
        };
        format!("{answering} of {voters} servers {answer}; {are} {verb} needed{silent}")
    }
}

/// Why nobody leads, from what was last found.
pub fn problem(found: Option<&Quorum>) -> Problem {
    match found.filter(|quorum| quorum.is_lost()) {
        Some(quorum) => Problem::failure("quorum_lost", quorum.sentence()).hint(
            "bring servers back; if they are lost for good, stop this daemon and see `plimsoll cluster recover --help`",
        ),
        None => Problem::failure("no_leader", "no server leads at the moment").hint(
            "it takes about a second to elect one; try again, and `plimsoll cluster status` shows the servers",
        ),
    }
}

/// What is said while this server knows no leader because something keeps it from taking part.
pub fn hindered(why: &str) -> Problem {
    Problem::failure("no_leader", format!("no server leads as far as this one can tell: {why}"))
        .hint("replicas run on, and it goes on by itself once that is over")
}

/// What a server is told whose cell goes on without it.
pub fn superseded() -> Problem {
    Problem::failure("superseded", "the cell was recovered without this server, which is no longer of it")
        .hint(
            "make a token with `plimsoll token create-join` where the cell is, stop this daemon, and start it with \
             `plimsoll up --join TOKEN@ADDRESS`",
        )
}

/// Asks while nobody leads, until told to stop. What is found is in the soft facts as long as it holds.
pub async fn run(cell: Cell, client: Client, mut shutdown: watch::Receiver<bool>) {
    let mut leadership = cell.engine.leadership();
    let mut was_told = false;
    let watching = async {
        while leadership.wait_for(|now| now.leader.is_none()).await.is_ok() {
            note(&cell, Some(ask(&cell, &client).await));
            if cell.engine.standing().is_superseded && !was_told {
                let Problem { message, hint, .. } = superseded();
                tracing::error!("{message}; {}", hint.unwrap_or_default());
                was_told = true;
            }
            tokio::select! {
                () = sleep(EVERY) => {}
                led = leadership.wait_for(|now| now.leader.is_some()) => {
                    note(&cell, None);
                    if led.is_err() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = watching => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
}

fn note(cell: &Cell, found: Option<Quorum>) {
    let before = std::mem::replace(&mut cell.soft.facts().quorum, found.clone());
    let was_lost = before.is_some_and(|quorum| quorum.is_lost());
    match found.filter(Quorum::is_lost) {
        Some(quorum) if !was_lost => {
            tracing::error!("the quorum is lost: {}; replicas run on", quorum.sentence());
        }
        None if was_lost => tracing::info!("enough servers answer again"),
        _ => {}
    }
}

/// Asks every voter at once.
pub async fn ask(cell: &Cell, client: &Client) -> Quorum {
    let members = cell.engine.members();
    let voters: Vec<&Member> = members.iter().filter(|member| member.votes).collect();
    let answers = voters.iter().map(|voter| answers(cell, client, voter));
    let answers = join_all(answers).await;
    let mut quorum = Quorum { voters: voters.len(), ..Quorum::default() };
    for (voter, answered) in voters.iter().zip(answers) {
        if answered {
            quorum.answering += 1;
        } else {
            quorum.silent.push(voter.peer.name.clone());
        }
    }
    quorum
}

async fn answers(cell: &Cell, client: &Client, voter: &Member) -> bool {
    if voter.peer.name == cell.node.as_str() {
        return true;
    }
    let Some(to) = target(&voter.peer) else { return false };
    let asked = client.call(&to, Method::GET, PATH, Bytes::new(), PATIENCE).await;
    asked.is_ok_and(|answer| answer.status.is_success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_is_told_from_a_cell_that_lost_too_many() {
        let quorum = |voters, silent: &[&str]| Quorum {
            voters,
            answering: voters - silent.len(),
            silent: silent.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (found, code, message) in [
            (None, "no_leader", "no server leads at the moment"),
            (Some(quorum(3, &["ash"])), "no_leader", "no server leads at the moment"),
            (
                Some(quorum(3, &["ash", "birch"])),
                "quorum_lost",
                "1 of 3 servers answers; 2 are needed (ash and birch do not)",
            ),
            (
                Some(quorum(1, &["ash"])),
                "quorum_lost",
                "0 of 1 servers answer; 1 is needed (ash does not)",
            ),
            (
                Some(quorum(5, &["a", "b", "c"])),
                "quorum_lost",
                "2 of 5 servers answer; 3 are needed (a, b and c do not)",
            ),
        ] {
            let problem = problem(found.as_ref());
            assert_eq!((problem.code.as_str(), problem.message.as_str()), (code, message));
            assert!(problem.hint.is_some());
        }
        assert!(!Quorum::default().is_lost(), "who is of no cell yet has lost nothing");
    }
}
