//! Following logs: containers come and go while somebody watches, and so do nodes. What was printed before comes first,
//! by time. Then each container is read until it is gone, and those that come are read as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use plimsoll_model::{NodeId, Timestamp};
use plimsoll_runtime::{LogQuery, Tag};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connections::ended;
use super::context::Context;
use super::fan_out::{FanOut, OpenLogs, attributed, is_absent, missing};
use super::logs::{LINES_AHEAD, MAX_LOGS, Of, Reader};
use crate::log_merge::{MergedLine, Told, in_order};
use plimsoll_api::view::Problem;

/// A container whose log has ended may start again; this long after, it is looked at once more.
const PAUSE: Duration = Duration::from_millis(500);

/// Reads on until nobody listens, the daemon ends, or what is followed is gone for good.
pub(super) async fn follow(
    context: Arc<Context>,
    places: Arc<FanOut>,
    opened: OpenLogs,
    of: Of,
    query: LogQuery,
    reader: Reader,
) {
    let ending = context.ending.clone();
    let following = async {
        let unheard = opened.missing.iter().filter_map(|it| NodeId::new(&it.node).ok()).collect();
        let mut lasts = BTreeMap::new();
        opened.tell(&reader, |tag, line| Last::note(&mut lasts, tag, line)).await;
        let (lines, told) = mpsc::channel(LINES_AHEAD);
        let (sorted, ready) = mpsc::channel(LINES_AHEAD);
        let unheard = Mutex::new(unheard);
        let follower = Follower { context, places, of, lines, unheard, reader: reader.clone() };
        let follower = Arc::new(follower);
        tokio::join!(follower.run(query, lasts), in_order(told, sorted), send(ready, &reader));
    };
    tokio::select! {
        () = following => {}
        () = reader.gone() => {}
        () = ended(ending) => {}
    }
}

async fn send(mut ready: mpsc::Receiver<Told>, reader: &Reader) {
    while let Some((tag, line)) = ready.recv().await {
        if !reader.send(line.view(&tag)).await {
            return;
        }
    }
}

/// When the last line that was sent of a container was printed, and how many of that moment were.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: Timestamp,
    count: usize,
}

impl Last {
    fn note(lasts: &mut BTreeMap<Tag, Self>, tag: &Tag, line: &MergedLine) {
        let last = lasts.get(tag).copied();
        lasts.insert(tag.clone(), Self::after(last, line));
    }

    fn after(last: Option<Self>, line: &MergedLine) -> Self {
        match last {
            Some(Self { at, count }) if at == line.at => Self { at, count: count + 1 },
            _ => Self { at: line.at, count: 1 },
        }
    }
}

/// What the readers of all containers share.
struct Follower {
    context: Arc<Context>,
    places: Arc<FanOut>,
    of: Of,
    lines: mpsc::Sender<Told>,
    /// Nodes that do not answer and were named for it.
    unheard: Mutex<BTreeSet<NodeId>>,
    reader: Reader,
}

impl Follower {
    /// Has every container read that is there and that comes.
    async fn run(self: Arc<Self>, mut query: LogQuery, mut lasts: BTreeMap<Tag, Last>) {
        let mut applied = self.context.cell.engine.machine().applied();
        let mut followed = BTreeSet::new();
        let mut readers = JoinSet::new();
        loop {
            applied.mark_unchanged();
            let present = self.of.held(&self.context);
            for (tag, node) in &present {
                if followed.len() < MAX_LOGS && followed.insert(tag.clone()) {
                    let last = lasts.remove(tag);
                    let (tag, node) = (tag.clone(), node.clone());
                    let one = One { follower: Arc::clone(&self), tag, node, query, last };
                    readers.spawn(one.read());
                }
            }
            followed.retain(|tag| present.contains_key(tag));
            // Who comes later is read from the beginning: nothing of it was there to be asked for.
            query.tail = None;
            if readers.is_empty() && !self.of.exists(&self.context) {
                return;
            }
            tokio::select! {
                changed = applied.changed() => if changed.is_err() { return },
                Some(_) = readers.join_next() => {}
            }
        }
    }

    fn heard(&self, node: &NodeId) {
        self.unheard().remove(node);
    }

    /// Names a node that does not answer, once until it has answered again.
    async fn miss(&self, node: &NodeId, problem: &Problem) {
        if self.unheard().insert(node.clone()) {
            let held = self.of.held(&self.context);
            let its = held.into_iter().filter(|(_, holder)| holder == node);
            let tags: Vec<Tag> = its.map(|(tag, _)| tag).collect();
            self.reader.miss(missing(node, &tags, problem)).await;
        }
    }

    fn unheard(&self) -> std::sync::MutexGuard<'_, BTreeSet<NodeId>> {
        self.unheard.lock().expect("nobody panics while holding the names")
    }
}

/// The log of one container.
struct One {
    follower: Arc<Follower>,
    tag: Tag,
    node: NodeId,
    query: LogQuery,
    last: Option<Last>,
}

impl One {
    async fn read(mut self) {
        loop {
            // Asked before its last lines are read: what it prints until it is gone is still to be sent.
            let is_over = !self.follower.of.held(&self.follower.context).contains_key(&self.tag);
            match self.read_once().await {
                Ok(()) => {}
                // Not started yet, or gone already: the state knows which.
                Err(problem) if is_absent(&problem) => {}
                Err(problem) => self.follower.miss(&self.node, &problem).await,
            }
            if is_over {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends what is new, until there is no more.
    async fn read_once(&mut self) -> Result<(), Problem> {
        let tags = std::slice::from_ref(&self.tag);
        let query = match self.last {
            Some(last) => LogQuery { since: Some(last.at), tail: None, ..self.query },
            None => self.query,
        };
        let mut lines = self.follower.places.lines(&self.node, tags, query).await?;
        self.follower.heard(&self.node);
        // Opened again, a log begins with the moment of the last line, of which some lines were sent already.
        let mut seen = self.last;
        while let Some(line) = lines.next().await {
            let Some((tag, line)) = attributed(std::slice::from_ref(&self.tag), line?) else {
                continue;
            };
            if let Some(Last { at, count }) = &mut seen
                && *at == line.at
                && *count > 0
            {
                *count -= 1;
                continue;
            }
            self.last = Some(Last::after(self.last, &line));
            if self.follower.lines.send((tag, line)).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}
