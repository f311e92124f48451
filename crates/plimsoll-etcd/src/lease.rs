//! Leases: keys put under one go when it is not kept alive in time.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::access::{Effect, EtcdClient};
use crate::error::{CallFault, Error, fault, words};
use crate::proto::lease_client::LeaseClient;
use crate::proto::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseTimeToLiveRequest,
};

const KEEP_ALIVE: &str = "keep a lease alive";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(pub i64);

/// A lease as etcd granted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    /// How long it lives after each renewal. Etcd grants no less than it was asked for.
    pub ttl: Duration,
}

/// Keeps one lease alive, over one stream for as long as that lasts.
#[derive(Debug)]
pub struct KeepAlive {
    client: EtcdClient,
    lease: LeaseId,
    line: Option<KeepAliveStream>,
}

#[derive(Debug)]
struct KeepAliveStream {
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseKeepAliveResponse>,
}

impl EtcdClient {
    pub async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
        let grant = LeaseGrantRequest { ttl: seconds, id: 0 };
        // One that nobody learns of expires.
        let asked = self.call("obtain a lease", Effect::Repeatable, grant, |channel, request| {
            Box::pin(async move { LeaseClient::new(channel).lease_grant(request).await })
        });
        let granted = asked.await?;
        Ok(Lease { id: LeaseId(granted.id), ttl: seconds_of(granted.ttl) })
    }

    /// Ends a lease; its keys are gone on return.
    pub async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        let revoke = LeaseRevokeRequest { id: lease.0 };
        let asked = self.call("revoke a lease", Effect::Repeatable, revoke, |channel, request| {
            Box::pin(async move { LeaseClient::new(channel).lease_revoke(request).await })
        });
        asked.await.map(drop)
    }

    /// How long a lease has left; none if there is no such lease.
    pub async fn time_to_live(&self, lease: LeaseId) -> Result<Option<Duration>, Error> {
        let question = LeaseTimeToLiveRequest { id: lease.0, keys: false };
        let asked = self.call("look at a lease", Effect::None, question, |channel, request| {
            Box::pin(async move { LeaseClient::new(channel).lease_time_to_live(request).await })
        });
        let left = asked.await?.ttl;
        Ok((left >= 0).then(|| seconds_of(left)))
    }

    pub fn keep_alive(&self, lease: LeaseId) -> KeepAlive {
        KeepAlive { client: self.clone(), lease, line: None }
    }
}

impl KeepAlive {
    /// Renews the lease now. It then lives at least as long as this returns, from the moment of the call.
    pub async fn renew(&mut self) -> Result<Duration, Error> {
        let limit = self.client.limit();
        // Taken out while it is used: an answer that came after we had given up would be taken for the next one.
        let line = self.line.take();
        let client = self.client.clone();
        let renewed = tokio::time::timeout(limit, async {
            let Some(mut line) = line else { return self.open().await };
            let left = line.ask(&client, self.lease).await?;
            Ok((line, left))
        });
        match renewed.await {
            Ok(Ok((line, left))) => {
                self.line = Some(line);
                left.ok_or(Error::NoSuchLease { action: KEEP_ALIVE })
            }
            Ok(Err(error)) => {
                if error.is_passing() {
                    self.client.turn();
                }
                Err(error)
            }
            Err(_) => {
                self.client.turn();
                Err(Error::TimedOut { action: KEEP_ALIVE, after: limit })
            }
        }
    }

    /// Etcd answers a stream that was opened once it has something to say, so the first request goes with it.
    async fn open(&self) -> Result<(KeepAliveStream, Option<Duration>), Error> {
        let id = self.lease.0;
        let opened = self.client.stream(KEEP_ALIVE, move |channel, request| {
            let (requests, queued) = mpsc::channel(1);
            // It cannot be full: it was just made.
            requests.try_send(LeaseKeepAliveRequest { id }).ok();
            let request = request.map(|()| ReceiverStream::new(queued));
            Box::pin(async move {
                let answers = LeaseClient::new(channel).lease_keep_alive(request).await?;
                Ok(answers.map(|answers| (requests, answers)))
            })
        });
        let (requests, answers) = opened.await?;
        let mut line = KeepAliveStream { requests, answers };
        let left = line.answer(&self.client).await?;
        Ok((line, left))
    }
}

impl KeepAliveStream {
    async fn ask(
        &mut self,
        client: &EtcdClient,
        lease: LeaseId,
    ) -> Result<Option<Duration>, Error> {
        let request = LeaseKeepAliveRequest { id: lease.0 };
        if self.requests.send(request).await.is_err() {
            return Err(client.error(
                KEEP_ALIVE,
                &CallFault::Unanswered,
                "the stream ended".into(),
            ));
        }
        self.answer(client).await
    }

    /// How long the lease lives now; none if it is no more.
    async fn answer(&mut self, client: &EtcdClient) -> Result<Option<Duration>, Error> {
        match self.answers.message().await {
            Ok(Some(answer)) => Ok((answer.ttl > 0).then(|| seconds_of(answer.ttl))),
            Ok(None) => {
                Err(client.error(KEEP_ALIVE, &CallFault::Unanswered, "the stream ended".into()))
            }
            Err(status) => Err(client.error(KEEP_ALIVE, &fault(&status), words(&status))),
        }
    }
}

fn seconds_of(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
