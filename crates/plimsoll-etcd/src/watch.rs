//! Watches: what happens to some keys, in order, from a revision on.

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::access::{EtcdClient, MAX_ANSWER};
use crate::error::{CallFault, Error, fault, judge, words};
use crate::kv::{Keys, revision};
use crate::proto::event::EventType;
use crate::proto::watch_client::WatchClient;
use crate::proto::watch_create_request::FilterType;
use crate::proto::watch_request::RequestUnion;
use crate::proto::{
    KeyValue, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};

const WATCH: &str = "watch keys";

/// A change of one key.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyChange {
    Put(KeyValue),
    /// Deleted, or gone with its lease.
    Gone {
        key: Bytes,
        revision: i64,
    },
}

/// What happened next. What one transaction did is never torn apart. Without changes it only says how far etcd is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    pub changes: Vec<KeyChange>,
}

/// A watch under way. When it fails, another one from [`Watching::resume`] on misses nothing and repeats nothing,
/// unless etcd has compacted that revision: then read the keys anew.
#[derive(Debug)]
pub struct Watching {
    client: EtcdClient,
    /// Etcd ends the watch when this goes.
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    resume: i64,
}

impl EtcdClient {
    /// Watches keys from a revision on, that one included.
    pub async fn watch(&self, keys: Keys, from: i64) -> Result<Watching, Error> {
        self.watch_filtered(keys, from, Vec::new()).await
    }

    /// The same, but only that keys go: what is written there is not sent.
    pub async fn watch_deletions(&self, keys: Keys, from: i64) -> Result<Watching, Error> {
        self.watch_filtered(keys, from, vec![FilterType::Noput.into()]).await
    }

    async fn watch_filtered(
        &self,
        keys: Keys,
        from: i64,
        filters: Vec<i32>,
    ) -> Result<Watching, Error> {
        let create = WatchCreateRequest {
            filters,
            key: keys.first,
            range_end: keys.end,
            start_revision: from,
            progress_notify: true,
        };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let opened = self.stream(WATCH, move |channel, request| {
            // Besides the first, only questions about the progress, one at a time.
            let (requests, queued) = mpsc::channel(2);
            requests.try_send(create.clone()).ok();
            let request = request.map(|()| ReceiverStream::new(queued));
            Box::pin(async move {
                let mut client = WatchClient::new(channel).max_decoding_message_size(MAX_ANSWER);
                let answers = client.watch(request).await?;
                Ok(answers.map(|answers| (requests, answers)))
            })
        });
        let (requests, answers) = opened.await?;
        let mut watching = Watching { client: self.clone(), requests, answers, resume: from };
        // The first answer says whether etcd watches.
        let first = tokio::time::timeout(self.limit(), watching.answer()).await;
        let timed_out = |_| Error::TimedOut { action: WATCH, after: self.limit() };
        first.map_err(timed_out).flatten()?;
        Ok(watching)
    }
}

impl Watching {
    /// The revision that another watch would go on from.
    pub fn resume(&self) -> i64 {
        self.resume
    }

    /// Has etcd say that it is still there; the answer is a change of nothing.
    pub fn ask_progress(&self) {
        let ask = RequestUnion::ProgressRequest(WatchProgressRequest {});
        // When one is on its way already, that is enough.
        self.requests.try_send(WatchRequest { request_union: Some(ask) }).ok();
    }

    pub async fn next(&mut self) -> Result<Changes, Error> {
        let answer = self.answer().await?;
        let changes: Vec<KeyChange> = answer
            .events
            .into_iter()
            .filter_map(|event| {
                let is_gone = event.r#type() == EventType::Delete;
                let kv = event.kv?;
                Some(if is_gone {
                    KeyChange::Gone { key: kv.key, revision: kv.mod_revision }
                } else {
                    KeyChange::Put(kv)
                })
            })
            .collect();
        let newest = changes.iter().map(|change| match change {
            KeyChange::Put(kv) => kv.mod_revision,
            KeyChange::Gone { revision, .. } => *revision,
        });
        if let Some(newest) = newest.max() {
            self.resume = self.resume.max(newest + 1);
        } else if answer.watch_id >= 0 {
            // Etcd's own word that it has told us all up to there. An answer to a question of ours, which bears no
            // watch's number, may come before changes that are still on their way.
            self.resume = self.resume.max(revision(answer.header.as_ref()) + 1);
        }
        Ok(Changes { changes })
    }

    async fn answer(&mut self) -> Result<WatchResponse, Error> {
        let unanswered =
            |why: &str| self.client.error(WATCH, &CallFault::Unanswered, why.to_owned());
        let answer = match self.answers.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(unanswered("the stream ended")),
            Err(status) => return Err(self.client.error(WATCH, &fault(&status), words(&status))),
        };
        if !answer.canceled {
            return Ok(answer);
        }
        if answer.compact_revision > 0 {
            return Err(Error::Compacted { action: WATCH });
        }
        Err(self.client.error(WATCH, &cancelled(&answer.cancel_reason), answer.cancel_reason))
    }
}

/// Why etcd ended a watch, which it says in words alone.
fn cancelled(reason: &str) -> CallFault {
    let denied = reason.contains("permission denied") || reason.contains("PermissionDenied");
    if denied { CallFault::Denied } else { judge(tonic::Code::Unavailable, reason) }
}
