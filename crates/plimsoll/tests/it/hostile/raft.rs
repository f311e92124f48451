//! The raft door of a server, at which only servers have anything to say, and each for itself alone. Knocked at with the
//! certificate of a node without the log, with that of a node that was removed, and with that of one server in the name of
//! another. What is sent ends terms, servers and processes where it is believed; here it must change nothing.

use std::path::Path;
use std::time::Duration;

use plimsoll_daemon::cell::join;
use plimsoll_lab::NAMES;
use plimsoll_model::testkit::{cpus, node_id};
use plimsoll_peer::pki::{Credentials, Identity};
use plimsoll_peer::{PeerClient, RaftNetwork};
use plimsoll_store::embedded::network::Network as _;
use plimsoll_store::{Peer, ServerId};
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::harness::{Cell, SHOP, Site};
use crate::quorum::ready;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The form of messages, and the kinds of answers that begin with these numbers.
const FORM: u8 = 4;
const VOTE_ANSWER: u8 = 1;
const REFUSED: u8 = 5;

/// Kinds of messages.
const APPEND: u32 = 0;
const VOTE: u32 = 1;
const PRE_VOTE: u32 = 2;
const SNAPSHOT: u32 = 3;
const TAKE_OVER: u32 = 4;

/// The most that one message may have.
const MAX_MESSAGE: usize = 64 << 20;

/// Term, server, and whether it has won.
type Ballot = (u64, u64, bool);

/// Whom a message is for, of which incarnation (since, salt, whether it is an heir, line), at which level, with which seat.
type Envelope = (u64, (u64, u64, bool, u64), u32, Option<()>);

const FOUNDED: (u64, u64, bool, u64) = (0, 0, false, 0);

fn message(envelope: Envelope, kind: u32, body: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(&(envelope, kind, body), vec![FORM]).unwrap()
}

/// Somebody with the identity of a node.
struct Intruder {
    runtime: Runtime,
    network: RaftNetwork,
}

impl Intruder {
    fn with(identity: &Identity) -> Self {
        let runtime = Runtime::new().unwrap();
        let network = {
            let _inside = runtime.enter();
            RaftNetwork::new(PeerClient::new(Credentials::new(identity).unwrap()))
        };
        Self { runtime, network }
    }

    /// With what the node of this data directory has.
    fn stolen(dir: &Path) -> Self {
        Self::with(&Identity::load(dir).unwrap().unwrap())
    }

    /// Which kind of answer a server gives; none where it gives none of the log's.
    fn send(&self, cell: &Cell, at: usize, message: Vec<u8>) -> Option<u8> {
        let peer = Peer { name: NAMES[at].to_owned(), address: cell.address(at) };
        let sent = self.network.send(ServerId(0), &peer, message, PATIENCE);
        let answer = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, sent).await });
        answer.expect("it answers in time").ok()?.get(1).copied()
    }
}

/// A node of the cell that has no address, and so never gets the log; with the number that it would have as a server.
fn agent(cell: &Cell) -> (Intruder, u64) {
    let token = cell.token(0).parse().unwrap();
    let home = cell.dir.path().join("mallory");
    std::fs::create_dir(&home).unwrap();
    let runtime = Runtime::new().unwrap();
    let name = node_id("mallory");
    let joined = join::join(&token, None, &name, cpus(1), &home);
    let (admission, identity) = runtime.block_on(joined).unwrap();
    (Intruder::with(&identity), admission.server)
}

/// What must stay as it is on one server.
fn looks(cell: &Cell, at: usize) -> Value {
    let health = cell.get(at, "/healthz").unwrap();
    let role = |it: &Value| it["role"] == "leader" || it["role"] == "voter";
    assert!(role(&health), "{health}");
    serde_json::json!({"term": health["term"], "leader": health["leader"]})
}

/// All that can be said at the door in the name of a server, with numbers that hurt where they are believed.
fn attacks(to: u64, speaks_for: u64) -> Vec<(&'static str, Vec<u8>)> {
    let envelope = (to, FOUNDED, 1, None);
    let won = |term: u64| -> Ballot { (term, speaks_for, true) };
    let asks = |term: u64| -> Ballot { (term, speaks_for, false) };
    let nowhere = None::<(u64, u64)>;
    let far = Some((u64::MAX, u64::MAX));
    let blobs = |entries: &[&[u8]]| entries.iter().map(|it| it.to_vec()).collect::<Vec<Vec<u8>>>();
    let append = |ballot: Ballot, previous, first: u64, entries: &[&[u8]]| {
        message(envelope, APPEND, &(ballot, previous, nowhere, first, blobs(entries)))
    };
    let later = (u64::MAX - 1, 7, true, 0);
    let claims = (to, later, 1, None);
    let newer = (to, FOUNDED, 999, None);
    let empty_header: Vec<u8> = vec![0, 0, 0, 0];
    let piece = |offset: u64, total: u64| {
        let bytes: Vec<u8> = vec![7; 64];
        message(envelope, SNAPSHOT, &(won(9_000), &empty_header, offset, total, bytes))
    };
    vec![
        ("a later life of the cell", message(claims, VOTE, &(asks(1), nowhere, false))),
        ("a newer level", message(newer, APPEND, &(won(1), nowhere, nowhere, 0_u64, blobs(&[])))),
        ("the last term there is", message(envelope, VOTE, &(asks(u64::MAX), far, false))),
        ("a vote by transfer", message(envelope, VOTE, &(asks(1 << 40), far, true))),
        ("a vote that is won already", message(envelope, VOTE, &(won(1 << 40), far, true))),
        ("whether it would be voted for", message(envelope, PRE_VOTE, &(asks(50), far, false))),
        ("a leader out of nowhere", append(won(1 << 40), nowhere, 0, &[])),
        ("a leader of the last term", append(won(u64::MAX), nowhere, 0, &[])),
        ("an entry of no size", append(won(1 << 40), nowhere, 0, &[b""])),
        ("an entry of no kind", append(won(1 << 40), nowhere, 0, &[&[9; 40]])),
        (
            "entries from the end of the log",
            append(won(1 << 40), far, u64::MAX, &[&[0; 17], &[0; 17]]),
        ),
        ("a snapshot of no entry", piece(0, 64)),
        ("a snapshot without end", piece(0, u64::MAX)),
        ("a snapshot from its end", piece(u64::MAX, u64::MAX)),
        ("leadership for itself", message(envelope, TAKE_OVER, &(won(1 << 40), speaks_for, far))),
        ("nothing", Vec::new()),
        ("a cut message", message(envelope, VOTE, &(asks(5), far, false))[..9].to_vec()),
        ("another form", vec![3, 0, 0, 0]),
    ]
}

/// Chance from a seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// Everything at every server, in every server's name and its own.
fn assault(cell: &Cell, intruder: &Intruder, names: &[u64]) {
    for at in 0..3 {
        let to = at as u64 + 1;
        for speaks_for in names {
            for (case, bytes) in attacks(to, *speaks_for) {
                let said = intruder.send(cell, at, bytes);
                assert_eq!(said, Some(REFUSED), "{case} to {to} as {speaks_for}");
            }
        }
        for seed in 1..=40 {
            let mut bytes = noise(seed, usize::try_from(seed * 7).unwrap());
            if seed % 2 == 0 {
                bytes[0] = FORM;
            }
            assert_eq!(intruder.send(cell, at, bytes), Some(REFUSED), "seed {seed}");
        }
    }
    assert_eq!(intruder.send(cell, 0, vec![FORM; MAX_MESSAGE + 1]), None, "too large");
}

#[test]
fn nobody_but_a_server_moves_the_log_and_each_only_in_its_own_name() {
    let cell = Cell::of_three(Site::Loopback);
    std::fs::write(cell.dir.path().join("compose.yaml"), SHOP).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    let (mallory, number) = agent(&cell);
    cell.until_led(&[0, 1, 2]);
    let before: Vec<Value> = (0..3).map(|at| looks(&cell, at)).collect();
    let stays = |by: &str| {
        let after: Vec<Value> = (0..3).map(|at| looks(&cell, at)).collect();
        assert_eq!(after, before, "after {by}:\n{}", cell.diagnosis());
        for at in 0..3 {
            assert!(ready(&cell, at).unwrap().is_ready, "{by}: {}", cell.diagnosis());
        }
        cell.must_live();
        cell.token(1);
    };

    assault(&cell, &mallory, &[number, 1, 2, 3]);
    stays("a node without the log");

    let removed = cell.run(0, "node remove mallory");
    assert_eq!(removed.code(), 0, "{}", removed.text());
    assault(&cell, &mallory, &[number, 1, 2, 3]);
    stays("a node that was removed");

    // A server is heard for itself, which shows that the messages above are such as servers send.
    let birch = Intruder::stolen(&cell.path(1));
    let asks = |server: u64| {
        let envelope = (1, FOUNDED, 1, None);
        message(envelope, PRE_VOTE, &((2_u64, server, false), None::<(u64, u64)>, false))
    };
    assert_eq!(birch.send(&cell, 0, asks(2)), Some(VOTE_ANSWER));
    for other in [1, 3, number] {
        assert_eq!(birch.send(&cell, 0, asks(other)), Some(REFUSED), "birch as {other}");
    }
    assault(&cell, &birch, &[1, 3, number]);
    stays("a server in another's name");
    assert_eq!(cell.run(0, "scale shop web=4 --timeout 60s").code(), 0, "and it takes writes");
}
