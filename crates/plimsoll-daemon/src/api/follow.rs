//! Following logs: containers come and go while somebody watches. Each is read until it is gone, and those that come are
//! read as well.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::Timestamp;
use plimsoll_runtime::{LogQuery, Tag, chain};
use tokio::task::JoinSet;

use super::connections::ended;
use super::context::Context;
use super::logs::{MAX_LOGS, Of, Reader};

/// A container whose log has ended may start again; this long after, it is looked at once more.
const PAUSE: Duration = Duration::from_millis(500);

/// Reads on until nobody listens, the daemon ends, or what is followed is gone for good.
pub(super) async fn follow(context: Arc<Context>, of: Of, query: LogQuery, reader: Reader) {
    let mut applied = context.cell.engine.machine().applied();
    let mut followed = BTreeSet::new();
    let mut readers = JoinSet::new();
    // Who comes later is read from the beginning: nothing of it was there to be asked for.
    let mut query = query;
    loop {
        applied.mark_unchanged();
        let present = of.tags(&context);
        for tag in &present {
            if followed.len() < MAX_LOGS && followed.insert(tag.clone()) {
                let one = One { tag: tag.clone(), query, last: None };
                readers.spawn(one.read(Arc::clone(&context), of.clone(), reader.clone()));
            }
        }
        followed.retain(|tag| present.contains(tag));
        query = LogQuery { tail: None, ..query };
        if readers.is_empty() && !of.exists(&context) {
            return;
        }
        tokio::select! {
            () = reader.gone() => return,
            () = ended(context.ending.clone()) => return,
            changed = applied.changed() => if changed.is_err() { return },
            Some(_) = readers.join_next() => {}
        }
    }
}

/// The log of one container.
struct One {
    tag: Tag,
    query: LogQuery,
    /// When the last line that was sent was printed, and how many of that moment were.
    last: Option<(Timestamp, usize)>,
}

impl One {
    async fn read(mut self, context: Arc<Context>, of: Of, reader: Reader) {
        loop {
            // Asked before its last lines are read: what it prints until it is gone is still to be sent.
            let is_over = !of.tags(&context).contains(&self.tag);
            if !self.read_once(&context, &reader).await || is_over {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends what is new. False once nobody reads any more.
    async fn read_once(&mut self, context: &Context, reader: &Reader) -> bool {
        let mut logs = match context.cell.runtime.logs(&self.tag, self.query).await {
            Ok(logs) => logs,
            // Not started yet, or gone already: the state knows which.
            Err(plimsoll_runtime::Error::Absent { .. }) => return true,
            Err(error) => {
                tracing::debug!(tag = %self.tag, error = chain(&error), "its log cannot be read");
                return true;
            }
        };
        // Opened again, a log begins with the moment of the last line, of which some lines were sent already.
        let mut seen = self.last;
        while let Some(line) = logs.next().await {
            let Ok(line) = line else { return true };
            if let Some((at, left)) = &mut seen
                && *at == line.at
                && *left > 0
            {
                *left -= 1;
                continue;
            }
            if !reader.send(&self.tag, &line).await {
                return false;
            }
            self.last = match self.last {
                Some((at, count)) if at == line.at => Some((at, count + 1)),
                _ => Some((line.at, 1)),
            };
            self.query = LogQuery { since: Some(line.at), tail: None, ..self.query };
        }
        true
    }
}
