//! Keys, ranges of them, and transactions over them, in our words.

use bytes::Bytes;

use crate::access::{Effect, EtcdClient, MAX_ANSWER};
use crate::error::Error;
use crate::lease::LeaseId;
use crate::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::kv_client::KvClient;
use crate::proto::request_op::Request as AnyRequest;
use crate::proto::response_op::Response as AnyResponse;
use crate::proto::{
    CompactionRequest, Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest,
    RangeResponse, RequestOp, ResponseHeader, TxnRequest, TxnResponse,
};

/// One key, or all keys from one to before another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    pub(crate) first: Bytes,
    pub(crate) end: Bytes,
}

impl Keys {
    pub fn one(key: impl Into<Bytes>) -> Self {
        Self { first: key.into(), end: Bytes::new() }
    }

    pub fn between(first: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { first: first.into(), end: end.into() }
    }

    /// Those of them that come after a key.
    pub fn after(self, key: &[u8]) -> Self {
        let mut first = key.to_vec();
        first.push(0);
        Self { first: first.into(), ..self }
    }

    /// All keys that begin so.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let prefix = prefix.into();
        let end = after_prefix(&prefix);
        // Etcd knows no empty key; the least there is comes before all others.
        let first = if prefix.is_empty() { Bytes::from_static(&[0]) } else { prefix };
        Self { first, end }
    }
}

/// The first key after all that begin so. Where there is none, etcd takes a zero for the end of all keys.
fn after_prefix(prefix: &[u8]) -> Bytes {
    let kept = prefix.iter().rposition(|byte| *byte < u8::MAX);
    let Some(last) = kept else { return Bytes::from_static(&[0]) };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end.into()
}

/// What to read of some keys.
#[derive(Debug, Clone)]
pub struct Range {
    request: RangeRequest,
}

impl Range {
    pub fn of(keys: Keys) -> Self {
        let Keys { first, end } = keys;
        Self { request: RangeRequest { key: first, range_end: end, ..RangeRequest::default() } }
    }

    /// At most so many, the lowest keys first.
    pub fn limit(mut self, limit: u32) -> Self {
        self.request.limit = limit.into();
        self
    }

    /// As they were at a revision.
    pub fn at(mut self, revision: i64) -> Self {
        self.request.revision = revision;
        self
    }

    pub fn keys_only(mut self) -> Self {
        self.request.keys_only = true;
        self
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranged {
    /// The newest revision of the store when it was read.
    pub revision: i64,
    pub pairs: Vec<KeyValue>,
    /// Whether the limit kept some out.
    pub more: bool,
}

impl From<RangeResponse> for Ranged {
    fn from(response: RangeResponse) -> Self {
        let RangeResponse { header, kvs, more, .. } = response;
        Self { revision: revision(header.as_ref()), pairs: kvs, more }
    }
}

pub(crate) fn revision(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// What must hold for a transaction to do what it is for.
#[derive(Debug, Clone)]
pub struct When(Compare);

impl When {
    fn equal(key: impl Into<Bytes>, target: CompareTarget, value: TargetUnion) -> Self {
        Self(Compare {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key: key.into(),
            target_union: Some(value),
        })
    }

    pub fn absent(key: impl Into<Bytes>) -> Self {
        Self::created_at(key, 0)
    }

    /// The key is there, and was created by that revision: it was not deleted since.
    pub fn created_at(key: impl Into<Bytes>, revision: i64) -> Self {
        Self::equal(key, CompareTarget::Create, TargetUnion::CreateRevision(revision))
    }

    pub fn modified_at(key: impl Into<Bytes>, revision: i64) -> Self {
        Self::equal(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
    }

    pub fn has_value(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::equal(key, CompareTarget::Value, TargetUnion::Value(value.into()))
    }
}

/// One thing that a transaction does.
#[derive(Debug, Clone)]
pub struct Op(RequestOp);

impl Op {
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        let put = PutRequest { key: key.into(), value: value.into(), lease: 0 };
        Self(RequestOp { request: Some(AnyRequest::RequestPut(put)) })
    }

    /// The key goes when the lease does.
    pub fn put_leased(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        let put = PutRequest { key: key.into(), value: value.into(), lease: lease.0 };
        Self(RequestOp { request: Some(AnyRequest::RequestPut(put)) })
    }

    pub fn delete(keys: Keys) -> Self {
        let Keys { first, end } = keys;
        let delete = DeleteRangeRequest { key: first, range_end: end };
        Self(RequestOp { request: Some(AnyRequest::RequestDeleteRange(delete)) })
    }

    pub fn get(range: Range) -> Self {
        Self(RequestOp { request: Some(AnyRequest::RequestRange(range.request)) })
    }
}

/// If all of this holds, do that, else something else; all of it at one moment.
#[derive(Debug, Clone, Default)]
pub struct Txn {
    when: Vec<When>,
    then: Vec<Op>,
    otherwise: Vec<Op>,
    repeatable: bool,
}

impl Txn {
    pub fn when(when: impl IntoIterator<Item = When>) -> Self {
        Self { when: when.into_iter().collect(), ..Self::default() }
    }

    pub fn then(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        self.then = ops.into_iter().collect();
        self
    }

    pub fn otherwise(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        self.otherwise = ops.into_iter().collect();
        self
    }

    /// Sending it twice does no more than sending it once, because what it does makes its conditions false or is the
    /// same again. Then it is tried at another member where the first does not answer, and its conditions may be found
    /// false because it was done.
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    fn request(self) -> TxnRequest {
        let ops = |ops: Vec<Op>| ops.into_iter().map(|op| op.0).collect();
        TxnRequest {
            compare: self.when.into_iter().map(|when| when.0).collect(),
            success: ops(self.then),
            failure: ops(self.otherwise),
        }
    }
}

/// What a transaction did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TxnReply {
    /// The store's revision after it.
    pub revision: i64,
    /// Whether its conditions held.
    pub held: bool,
    pub replies: Vec<Reply>,
}

/// What one step of a transaction gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Put,
    Deleted(i64),
    Got(Ranged),
}

impl TxnReply {
    /// What its reads found, in order.
    pub fn reads(self) -> impl Iterator<Item = Ranged> {
        self.replies.into_iter().filter_map(|reply| match reply {
            Reply::Got(found) => Some(found),
            Reply::Put | Reply::Deleted(_) => None,
        })
    }
}

impl From<TxnResponse> for TxnReply {
    fn from(response: TxnResponse) -> Self {
        let revision = revision(response.header.as_ref());
        let replies = response.responses.into_iter().filter_map(|reply| reply.response);
        let replies = replies.map(|reply| match reply {
            AnyResponse::ResponseRange(found) => Reply::Got(found.into()),
            AnyResponse::ResponsePut(_) => Reply::Put,
            AnyResponse::ResponseDeleteRange(deleted) => Reply::Deleted(deleted.deleted),
        });
        Self { revision, held: response.succeeded, replies: replies.collect() }
    }
}

impl EtcdClient {
    /// Reads what is there now, as most members know it: not what one of them remembers.
    pub async fn range(&self, range: Range) -> Result<Ranged, Error> {
        let asked = self.call("read keys", Effect::None, range.request, |channel, request| {
            Box::pin(async move {
                KvClient::new(channel).max_decoding_message_size(MAX_ANSWER).range(request).await
            })
        });
        Ok(asked.await?.into())
    }

    /// The value of a key, if it is there.
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<KeyValue>, Error> {
        Ok(self.range(Range::of(Keys::one(key))).await?.pairs.pop())
    }

    /// Writes a key, and returns the revision that holds it.
    pub async fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<i64, Error> {
        let put = PutRequest { key: key.into(), value: value.into(), lease: 0 };
        let asked = self.call("write a key", Effect::Once, put, |channel, request| {
            Box::pin(async move { KvClient::new(channel).put(request).await })
        });
        Ok(revision(asked.await?.header.as_ref()))
    }

    /// Deletes keys, and returns how many there were.
    pub async fn delete(&self, keys: Keys) -> Result<i64, Error> {
        let Keys { first, end } = keys;
        let delete = DeleteRangeRequest { key: first, range_end: end };
        let asked = self.call("delete keys", Effect::Once, delete, |channel, request| {
            Box::pin(async move { KvClient::new(channel).delete_range(request).await })
        });
        Ok(asked.await?.deleted)
    }

    pub async fn txn(&self, txn: Txn) -> Result<TxnReply, Error> {
        let effect = if txn.repeatable { Effect::Repeatable } else { Effect::Once };
        let asked = self.call("write keys", effect, txn.request(), |channel, request| {
            Box::pin(async move {
                KvClient::new(channel).max_decoding_message_size(MAX_ANSWER).txn(request).await
            })
        });
        Ok(asked.await?.into())
    }

    /// Forgets the history before a revision: how keys were, not how they are. It is that of all who use this etcd.
    pub async fn compact(&self, revision: i64) -> Result<(), Error> {
        let compaction = CompactionRequest { revision };
        let asked = self.call("compact", Effect::Repeatable, compaction, |channel, request| {
            Box::pin(async move { KvClient::new(channel).compact(request).await })
        });
        asked.await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        for (prefix, end) in
            [(&b"/a/"[..], &b"/a0"[..]), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")]
        {
            assert_eq!(after_prefix(prefix), end, "{prefix:?}");
        }
    }
}
