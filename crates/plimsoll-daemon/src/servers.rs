//! The servers of the cell as this node last heard of them. A node that holds the log knows them from there; one that
//! does not finds its leader with these, also after a restart. Of both, the later word counts: a log may not know that
//! its node was let go, and a word that came when a node joined not that it was given the log since.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use plimsoll_files::modes;
use plimsoll_model::NodeId;
use plimsoll_model::access::Digest;
use plimsoll_store::{Engine, Peer};
use serde::{Deserialize, Serialize};

/// Whether it is known where a server is. One of a restored cell has no address until it has said so.
pub fn has_address(peer: &Peer) -> bool {
    !peer.address.is_empty()
}

/// Who holds the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerList {
    /// The entry of the log that says so.
    pub since: u64,
    pub servers: Vec<Peer>,
    /// The key that each is known by. A name is no proof: another certificate may have it.
    #[serde(default)]
    pub keys: BTreeMap<String, Digest>,
}

impl ServerList {
    /// As this node's log has it.
    pub fn of(engine: &dyn Engine) -> Self {
        // Where it is not certain, the word is made older than it is and never newer: a change of the members may come
        // between the two lines, and one that is not committed yet may come to nothing.
        let applied = *engine.machine().applied().borrow();
        let since = engine.members_since().min(applied);
        let servers: Vec<Peer> = engine.members().into_iter().map(|member| member.peer).collect();
        let keys = engine.machine().read(|state| {
            let key = |peer: &Peer| {
                let node = NodeId::new(&peer.name).ok()?;
                Some((peer.name.clone(), state.node(&node)?.key?))
            };
            servers.iter().filter_map(key).collect()
        });
        Self { since, servers, keys }
    }
}

#[derive(Debug, Default)]
pub struct Servers {
    file: Option<PathBuf>,
    known: Mutex<KnownServers>,
    /// Held by who writes the file. Who asks for the servers does not wait for a disk.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownServers {
    /// As a leader told last.
    told: ServerList,
    /// The leader this node takes its orders from.
    leader: Option<Peer>,
    /// Whom to ask next, where nobody knows.
    turn: usize,
}

impl Servers {
    /// With what was kept in this file.
    pub fn open(file: PathBuf) -> io::Result<Self> {
        let told = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => ServerList::default(),
            Err(error) => return Err(error),
        };
        let known = KnownServers { told, ..KnownServers::default() };
        Ok(Self { file: Some(file), known: Mutex::new(known), ..Self::default() })
    }

    /// The leader says who the servers are. It is written down before this returns.
    pub fn tell(&self, roll: ServerList) {
        let told = self.known().told.clone();
        if roll != told && roll.since >= told.since {
            self.begin_with(roll);
        }
    }

    /// A cell that takes this node in says who its servers are, whatever another one said before.
    pub fn begin_with(&self, roll: ServerList) {
        self.known().told = roll;
        let Some(file) = &self.file else { return };
        let _writing = self.writing.lock().expect("nobody panics while writing the servers");
        // As it is by now: the last to write has the latest word.
        let told = self.known().told.clone();
        if let Err(error) = write(file, &told) {
            tracing::warn!(%error, "cannot write the list of servers");
        }
    }

    /// This node takes its orders from this one now, or from nobody.
    pub fn attach(&self, leader: Option<Peer>) {
        self.known().leader = leader;
    }

    /// Whoever this node takes its orders from, where that is another.
    pub fn leader(&self) -> Option<Peer> {
        self.known().leader.clone()
    }

    /// Another of them each time, for a node that knows no leader.
    pub fn any(&self, but: &str, engine: &dyn Engine) -> Option<Peer> {
        let mut others = self.all(engine);
        others.retain(|peer| peer.name != but && has_address(peer));
        let mut known = self.known();
        known.turn += 1;
        let turn = known.turn.checked_rem(others.len())?;
        others.into_iter().nth(turn)
    }

    /// Whether this node holds the log.
    pub fn hold(&self, node: &str, engine: &dyn Engine) -> bool {
        // On a line of its own: what is borrowed here must be given back before the engine is asked again.
        let leads = engine.leadership().borrow().is_me;
        leads || self.all(engine).iter().any(|peer| peer.name == node)
    }

    /// Whether whoever has this name and key is one of them.
    pub fn are(&self, node: &str, key: &Digest, engine: &dyn Engine) -> bool {
        let ServerList { servers, keys, .. } = self.latest(engine);
        servers.iter().any(|peer| peer.name == node) && keys.get(node) == Some(key)
    }

    fn all(&self, engine: &dyn Engine) -> Vec<Peer> {
        self.latest(engine).servers
    }

    fn latest(&self, engine: &dyn Engine) -> ServerList {
        let (own, told) = (ServerList::of(engine), self.known().told.clone());
        // A log that names nobody is empty, whatever the word of its leader goes back to.
        let is_older = told.since > own.since || own.servers.is_empty();
        if is_older && !engine.is_member_for_good() { told } else { own }
    }

    fn known(&self) -> MutexGuard<'_, KnownServers> {
        self.known.lock().expect("nobody panics while holding the servers")
    }
}

fn write(file: &Path, roll: &ServerList) -> io::Result<()> {
    plimsoll_files::write(file, &serde_json::to_vec_pretty(roll)?, modes::FILE)
}

#[cfg(test)]
mod tests {
    use plimsoll_model::CellId;
    use plimsoll_store::embedded::EmbeddedConfig;
    use plimsoll_store::{Embedded, Founding};

    use super::*;

    fn peer(name: &str) -> Peer {
        Peer { name: name.to_owned(), address: format!("{name}:7117") }
    }

    #[tokio::test]
    async fn the_servers_are_known_after_a_restart_and_each_has_its_turn() {
        let dir = tempfile::TempDir::new().unwrap();
        let start = async |store: &str, founding: Founding| {
            let config =
                EmbeddedConfig::alone(dir.path().join(store), CellId::new("test").unwrap());
            Embedded::start(EmbeddedConfig { peer: peer("elm"), founding, ..config }).await.unwrap()
        };
        let engine = start("empty", Founding::Join).await;
        let file = dir.path().join("servers.json");
        let key = |byte: u8| Digest([byte; 32]);
        let roll = ServerList {
            since: 7,
            servers: ["ash", "birch", "cedar"].map(peer).to_vec(),
            keys: BTreeMap::from([("ash".to_owned(), key(1)), ("elm".to_owned(), key(4))]),
        };
        let told = Servers::open(file.clone()).unwrap();
        told.tell(roll);
        told.tell(ServerList { since: 6, servers: vec![peer("elm")], ..ServerList::default() });
        let servers = Servers::open(file).unwrap();
        let ask = |_| servers.any("birch", &*engine).unwrap().name;
        let mut asked: Vec<_> = (0..2).map(ask).collect();
        asked.sort();
        assert_eq!(asked, ["ash", "cedar"], "a node does not ask itself");
        assert_eq!(
            servers.leader(),
            None,
            "who leads is not kept: it changes while a node is away"
        );
        assert!(servers.hold("birch", &*engine) && !servers.hold("dogwood", &*engine));
        let early = Servers::default();
        let are = |node: &str, byte: u8| servers.are(node, &key(byte), &*engine);
        assert!(are("ash", 1) && !are("ash", 4), "a server is known by its key");
        assert!(!are("birch", 1) && !are("elm", 4), "and must be one");
        let roll = ServerList { since: 0, servers: vec![peer("ash")], ..ServerList::default() };
        early.begin_with(roll);
        assert_eq!(early.any("elm", &*engine).unwrap().name, "ash", "a cell that has just begun");

        let (never_told, engine) = (Servers::default(), start("own", Founding::Alone).await);
        assert_eq!(never_told.any("ash", &*engine).unwrap().name, "elm", "then the log says it");
        assert_eq!(never_told.any("elm", &*engine), None, "a cell of one has nobody to ask");
    }
}
