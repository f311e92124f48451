//! Which nodes hold the log, and whose votes count. Given the nodes and the servers as they are, one step nearer to as many
//! votes as the cell is large enough for; the leader takes it and asks again.

use std::collections::BTreeSet;

use plimsoll_model::{NodeId, NodeStatus, State};

pub use plimsoll_model::node::MAX_SERVERS;

/// A server as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoterCandidate {
    /// Its number, which its node has in the state as long as it is of the cell.
    pub id: u64,
    pub votes: bool,
    /// It has all of the log but for the last moment.
    pub is_caught_up: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipStep {
    /// The node is to hold the log, without a vote as yet.
    Add { id: u64, node: NodeId },
    /// The votes of these count from now on.
    SetVoters(BTreeSet<u64>),
    /// Its node is gone or is another server by now, or there are enough without it.
    Remove { id: u64 },
}

/// How many votes a cell of so many nodes has: odd, since an even number bears no more losses than one less.
pub fn wanted(nodes: usize) -> usize {
    match nodes {
        0..=2 => 1,
        3..=4 => 3,
        5..=6 => 5,
        _ => MAX_SERVERS,
    }
}

/// The next step, if there is one. `leader` is the server that asks: it never takes its own vote away.
pub fn next(state: &State, servers: &[VoterCandidate], leader: u64) -> Option<MembershipStep> {
    let ready: BTreeSet<u64> = numbers(state, true).map(|(id, _)| id).collect();
    let known: BTreeSet<u64> = numbers(state, false).map(|(id, _)| id).collect();
    let voters: BTreeSet<u64> = servers.iter().filter(|s| s.votes).map(|s| s.id).collect();

    let chosen = choose(state, servers, &ready, &known, leader);
    if chosen != voters {
        return Some(MembershipStep::SetVoters(chosen));
    }
    if let Some(gone) = servers.iter().find(|s| !s.votes && !known.contains(&s.id)) {
        return Some(MembershipStep::Remove { id: gone.id });
    }
    let held: BTreeSet<u64> = servers.iter().map(|server| server.id).collect();
    let live = held.intersection(&ready).count();
    if live >= MAX_SERVERS && held.len() > MAX_SERVERS {
        let spare = servers.iter().filter(|server| !server.votes);
        let spare = spare.max_by_key(|server| (!ready.contains(&server.id), server.id))?;
        return Some(MembershipStep::Remove { id: spare.id });
    }
    let (id, node) = numbers(state, true).find(|(id, _)| !held.contains(id))?;
    (live < MAX_SERVERS).then(|| MembershipStep::Add { id, node: node.clone() })
}

/// Those who vote stay voters while they can; who has fallen behind or away makes room for one who has not.
fn choose(
    state: &State,
    servers: &[VoterCandidate],
    ready: &BTreeSet<u64>,
    known: &BTreeSet<u64>,
    leader: u64,
) -> BTreeSet<u64> {
    let is_fit = |server: &VoterCandidate| ready.contains(&server.id) && server.is_caught_up;
    let mut candidates: Vec<&VoterCandidate> =
        servers.iter().filter(|s| s.id == leader || s.votes || is_fit(s)).collect();
    candidates.retain(|server| server.id == leader || known.contains(&server.id));
    // A voter that is down is kept before nobody, and given up for one who is fit.
    candidates.sort_by_key(|s| (s.id != leader, !ready.contains(&s.id), !s.votes, s.id));
    let fit = candidates.iter().filter(|s| s.votes || is_fit(s)).count();
    let most = wanted(state.nodes().len()).min(fit);
    let odd = if most % 2 == 0 { most - 1 } else { most };
    // Fewer votes than there are is a step back that only a smaller cell calls for.
    let voting = candidates.iter().filter(|s| s.votes).count().min(wanted(state.nodes().len()));
    candidates.into_iter().take(odd.max(voting).max(1)).map(|server| server.id).collect()
}

/// The nodes' numbers as servers, oldest first.
fn numbers(state: &State, ready_only: bool) -> impl Iterator<Item = (u64, &NodeId)> {
    let nodes = state
        .nodes()
        .iter()
        .filter(move |(_, node)| !ready_only || node.status == NodeStatus::Ready);
    let mut numbers: Vec<(u64, &NodeId)> =
        nodes.filter_map(|(id, node)| Some((node.server?, id))).collect();
    numbers.sort_unstable();
    numbers.into_iter()
}

#[cfg(test)]
mod tests {
    use plimsoll_model::access::{Authority, Digest};
    use plimsoll_model::testkit::{Cell, cell, cpus, node_id};
    use plimsoll_model::{Change, Writer};

    use super::*;

    const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

    /// A cell of so many nodes, numbered from 1.
    fn of(nodes: usize) -> Cell {
        let mut cell = cell().node("a", cpus(4));
        let (authority, key) = (Authority { certificate: vec![1], key: vec![1] }, Digest([0; 32]));
        let by = Writer::Operator;
        cell.change(by, Change::Found { authority, node: node_id("a"), key });
        for name in &NAMES[1..nodes] {
            join(&mut cell, name);
        }
        cell
    }

    fn join(cell: &mut Cell, name: &str) {
        let by = Writer::Operator;
        let serial = u8::try_from(cell.state.access().join_tokens.len()).unwrap();
        let token = Digest([serial + 1; 32]);
        let expires_at = cell.now.plus(plimsoll_model::Millis::minutes(60));
        let token_name = format!("for-{name}");
        cell.change(by, Change::CreateJoinToken { name: token_name, token, expires_at });
        let node = node_id(name);
        cell.change(by, Change::Join { token, node, facts: cpus(4), key: token });
    }

    /// Takes steps until there are none, as if every server caught up at once. Returns what was done and who votes.
    fn settle(cell: &Cell, mut servers: Vec<VoterCandidate>) -> (usize, Vec<u64>, Vec<u64>) {
        for steps in 0..100 {
            let voters: BTreeSet<u64> = servers.iter().filter(|s| s.votes).map(|s| s.id).collect();
            match next(&cell.state, &servers, 1) {
                None => {
                    let held = servers.iter().map(|server| server.id).collect();
                    return (steps, voters.into_iter().collect(), held);
                }
                Some(MembershipStep::Add { id, .. }) => {
                    servers.push(VoterCandidate { id, votes: false, is_caught_up: true });
                }
                Some(MembershipStep::Remove { id }) => {
                    assert!(!voters.contains(&id), "a vote is taken away before its server is");
                    servers.retain(|server| server.id != id);
                }
                Some(MembershipStep::SetVoters(new)) => {
                    assert!(new.contains(&1), "the leader keeps its vote");
                    for server in &mut servers {
                        server.votes = new.contains(&server.id);
                    }
                }
            }
        }
        panic!("no end of steps");
    }

    fn alone() -> Vec<VoterCandidate> {
        vec![VoterCandidate { id: 1, votes: true, is_caught_up: true }]
    }

    #[test]
    fn a_cell_has_as_many_votes_as_its_size_calls_for() {
        for (nodes, votes) in
            [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (6, 5), (7, 7), (8, 7), (9, 7)]
        {
            let cell = of(nodes);
            let (_, voters, held) = settle(&cell, alone());
            assert_eq!(voters.len(), votes, "of {nodes} nodes");
            assert_eq!(held.len(), nodes.min(MAX_SERVERS), "of {nodes} nodes");
        }
    }

    #[test]
    fn only_a_server_that_has_the_log_gets_a_vote_and_never_to_an_even_number() {
        let cell = of(3);
        let mut servers = alone();
        for id in [2, 3] {
            servers.push(VoterCandidate { id, votes: false, is_caught_up: false });
        }
        assert_eq!(next(&cell.state, &servers, 1), None, "both lag");
        servers[1].is_caught_up = true;
        assert_eq!(next(&cell.state, &servers, 1), None, "two votes bear no loss");
        servers[2].is_caught_up = true;
        let all = BTreeSet::from([1, 2, 3]);
        assert_eq!(next(&cell.state, &servers, 1), Some(MembershipStep::SetVoters(all)));
    }

    #[test]
    fn a_voter_that_is_down_makes_room_for_one_that_is_not() {
        let voting = |votes: bool, id: u64| VoterCandidate { id, votes, is_caught_up: true };
        let cell = of(4).down("b");
        let servers = vec![voting(true, 1), voting(true, 2), voting(true, 3), voting(false, 4)];
        let (_, voters, _) = settle(&cell, servers.clone());
        assert_eq!(voters, [1, 3, 4]);
        let cell = of(3).down("b");
        let (steps, voters, _) = settle(&cell, servers[..3].to_vec());
        assert_eq!((steps, voters), (0, vec![1, 2, 3]), "with nobody to take its place it stays");
    }

    #[test]
    fn a_server_beyond_the_seventh_is_let_go_when_it_is_not_missed() {
        let voting = |id: u64| VoterCandidate { id, votes: true, is_caught_up: true };
        let cell = of(8).down("c");
        let (_, voters, held) = settle(&cell, (1..=7).map(voting).collect());
        assert_eq!((voters, held), (vec![1, 2, 4, 5, 6, 7, 8], vec![1, 2, 4, 5, 6, 7, 8]));
        let mut returned: Vec<VoterCandidate> = [1, 2, 4, 5, 6, 7, 8].map(voting).to_vec();
        assert_eq!(next(&of(8).state, &returned, 1), None, "it comes back as an agent");
        returned.push(VoterCandidate { id: 3, votes: false, is_caught_up: true });
        assert_eq!(next(&of(8).state, &returned, 1), Some(MembershipStep::Remove { id: 3 }));
    }

    #[test]
    fn a_node_that_left_or_came_back_empty_is_no_longer_the_server_it_was() {
        let voting = |id: u64| VoterCandidate { id, votes: true, is_caught_up: true };
        let mut cell = of(3).down("b");
        join(&mut cell, "b");
        let (_, voters, held) = settle(&cell, vec![voting(1), voting(2), voting(3)]);
        assert_eq!((voters, held), (vec![1, 3, 4], vec![1, 3, 4]));
        let mut cell = of(3).down("b");
        cell.change(Writer::Operator, Change::RemoveNode { node: node_id("b") });
        let (_, voters, held) = settle(&cell, vec![voting(1), voting(2), voting(3)]);
        assert_eq!((voters, held), (vec![1], vec![1, 3]));
    }
}
