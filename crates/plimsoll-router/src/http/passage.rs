//! A request on its way to an upstream, and to another where that is safe. Safe is a request that has not left, whatever
//! it is, and one that may be said twice (RFC 9110, 9.2.2) while no byte of its body is gone.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::links::{self, First, Second};
use super::page::Problem;
use super::source::{Outgoing, Source};
use super::{Guest, head};
use crate::clock;
use crate::connect::{Tries, Unreached, choose_sound, current};
use crate::table::{Pool, Route};
use crate::upstream::{InFlight, Upstream};

/// After so long a new connection is taken to be accepted, whether or not its first answer has come.
const ACCEPTED: Duration = Duration::from_millis(25);

/// The largest body that is waited for before the client is told of its head, and for how long.
const SMALL: u64 = 16 << 10;
const WHOLE: Duration = Duration::from_secs(1);

/// An upstream's answer, and what is needed until it is over.
pub(super) struct Passed {
    pub(super) response: Response<Incoming>,
    /// What was read of its body.
    pub(super) first: Bytes,
    pub(super) in_flight: InFlight,
    /// What it came on, if that is for one request at a time.
    pub(super) link: Option<First>,
    pub(super) source: Option<Arc<Source>>,
    /// The client's connection, should it become something else, and what it is to become.
    pub(super) near: Option<(OnUpgrade, HeaderValue)>,
}

/// See the module's own words.
pub(super) struct Passage<'a> {
    guest: &'a Guest,
    route: &'a Route,
    pool: Arc<Pool>,
    parts: Parts,
    source: Option<Arc<Source>>,
    near: Option<(OnUpgrade, HeaderValue)>,
    is_grpc: bool,
    may_repeat: bool,
    tries: Tries,
    /// How often it was given to a connection.
    sent: usize,
}

/// What a request is sent on.
enum Way {
    First { link: First, is_fresh: bool, room: Option<OwnedSemaphorePermit> },
    Second { link: Second, is_fresh: bool },
}

impl Way {
    fn is_fresh(&self) -> bool {
        match self {
            Self::First { is_fresh, .. } | Self::Second { is_fresh, .. } => *is_fresh,
        }
    }
}

/// Why there is no answer.
enum Lost {
    /// It never left: here is what is needed to send it again.
    Unsent(Box<Parts>),
    /// The connection ended after it may have left.
    Broken,
    Late,
}

impl<'a> Passage<'a> {
    pub(super) fn new(guest: &'a Guest, route: &'a Route, mut request: Request<Incoming>) -> Self {
        let near = head::wanted_upgrade(request.version(), request.headers())
            .map(|protocol| (hyper::upgrade::on(&mut request), protocol));
        let (mut parts, body) = request.into_parts();
        let is_grpc = head::is_grpc(&parts);
        head::forward(&mut parts, guest, &route.spec, is_grpc);
        if let Some((_, protocol)) = &near {
            head::ask_upgrade(&mut parts.headers, protocol.clone());
        }
        Self {
            guest,
            route,
            pool: Arc::clone(&route.pool),
            source: Source::of(body),
            may_repeat: parts.method.is_idempotent(),
            parts,
            near,
            is_grpc,
            tries: Tries::default(),
            sent: 0,
        }
    }

    /// Has an upstream answer.
    pub(super) async fn run(mut self) -> Result<Passed, Problem> {
        loop {
            let chosen = choose_sound(&self.guest.core, &self.pool, &self.tries);
            let in_flight = chosen.map_err(|unreached| self.unreached(unreached))?;
            let upstream = in_flight.upstream();
            let mut way = match self.way(upstream).await {
                Ok(way) => way,
                Err(error) => {
                    self.again();
                    self.tries.failed(upstream, &error, &self.pool);
                    continue;
                }
            };
            let answered = match self.send(&mut way).await {
                Ok(mut response) => {
                    self.beginning(&mut response).await.map(|first| (response, first))
                }
                Err(lost) => Err(lost),
            };
            match answered {
                Ok((response, first)) => return Ok(self.passed(response, first, in_flight, way)),
                Err(lost) => self.recover(lost, &way, upstream)?,
            }
        }
    }

    /// All of a small body, where the request may be repeated: so half an answer is as good as none. Of one that takes its
    /// time, what has come.
    async fn beginning(&self, response: &mut Response<Incoming>) -> Result<Bytes, Lost> {
        let length = response.body().size_hint().exact().unwrap_or(0);
        let is_plain = self.may_repeat && self.source.is_none() && self.near.is_none();
        if !is_plain || !(1..=SMALL).contains(&length) {
            return Ok(Bytes::new());
        }
        let mut first = BytesMut::new();
        let body = response.body_mut();
        let reading = async {
            while (first.len() as u64) < length {
                let frame = body.frame().await.ok_or(Lost::Broken)?;
                let Ok(data) = frame.map_err(|_| Lost::Broken)?.into_data() else { break };
                first.extend_from_slice(&data);
            }
            Ok(())
        };
        timeout(WHOLE, reading).await.unwrap_or(Ok(()))?;
        Ok(first.freeze())
    }

    fn passed(
        self,
        response: Response<Incoming>,
        first: Bytes,
        in_flight: InFlight,
        way: Way,
    ) -> Passed {
        let link = match way {
            Way::First { link, .. } => Some(link),
            Way::Second { .. } => None,
        };
        Passed { response, first, in_flight, link, source: self.source, near: self.near }
    }

    /// A connection to this upstream, kept or new.
    async fn way(&self, upstream: &Arc<Upstream>) -> io::Result<Way> {
        let core = &self.guest.core;
        let patience = self.tries.patience(core, upstream, &self.pool);
        if self.is_grpc {
            let (link, was_there) = links::second(core, upstream, patience).await?;
            return Ok(Way::Second { link, is_fresh: !was_there });
        }
        let (link, room) = links::first(core, upstream, patience).await?;
        Ok(Way::First { link, is_fresh: room.is_some(), room })
    }

    async fn send(&mut self, way: &mut Way) -> Result<Response<Incoming>, Lost> {
        self.sent += 1;
        let parts = if self.may_repeat {
            self.parts.clone()
        } else {
            std::mem::replace(&mut self.parts, Request::new(()).into_parts().0)
        };
        let request = Request::from_parts(parts, Outgoing::of(self.source.as_ref()));
        let answered = match way {
            Way::First { link, room, .. } => {
                self.in_time(link.try_send_request(request), room.take()).await
            }
            Way::Second { link, .. } => self.in_time(link.try_send_request(request), None).await,
        };
        match answered {
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) => Err(lost(error)),
            None => Err(Lost::Late),
        }
    }

    /// What comes within the time that an upstream has to begin its answer. That begins when it has the whole request,
    /// so a long body does not count.
    async fn in_time<T>(
        &self,
        sending: impl Future<Output = T>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Option<T> {
        let limit = self.guest.core.limits.response_head;
        let mut sending = pin!(sending);
        if let Some(room) = room {
            if let Ok(answered) = timeout(ACCEPTED, sending.as_mut()).await {
                return Some(answered);
            }
            drop(room);
        }
        let mut wait = limit;
        while !wait.is_zero() {
            if let Ok(answered) = timeout(wait, sending.as_mut()).await {
                return Some(answered);
            }
            let moved = self.source.as_ref().map(|source| clock::now().since(source.moved()));
            wait = moved.map_or(Duration::ZERO, |moved| limit.saturating_sub(moved));
        }
        None
    }

    /// Makes ready for another try, or says why there is none.
    fn recover(&mut self, lost: Lost, way: &Way, upstream: &Arc<Upstream>) -> Result<(), Problem> {
        let service = self.route.spec.pool.service.to_string();
        let is_untouched = self.source.as_ref().is_none_or(|source| source.is_untouched());
        match lost {
            Lost::Late => {
                let seconds = self.guest.core.limits.response_head.as_secs();
                return Err(Problem::Late { service, seconds });
            }
            Lost::Unsent(parts) if is_untouched => self.parts = *parts,
            Lost::Broken if self.may_repeat && is_untouched => {}
            Lost::Unsent(_) | Lost::Broken => return Err(Problem::Broken { service }),
        }
        if self.sent >= self.guest.core.limits.tries {
            return Err(Problem::Broken { service });
        }
        self.again();
        if way.is_fresh() {
            self.tries.failed(upstream, &io::ErrorKind::ConnectionAborted.into(), &self.pool);
        } else {
            // It ended while it was kept, and so may the others have; the upstream itself may be well.
            upstream.links.clear();
        }
        Ok(())
    }

    /// Goes on with the upstreams that there are by now: what failed may have been on its way out.
    fn again(&mut self) {
        self.route.meter.retries.add(1);
        self.pool = current(&self.guest.core, &self.pool);
    }

    fn unreached(&self, unreached: Unreached) -> Problem {
        let service = self.route.spec.pool.service.to_string();
        match unreached {
            Unreached::Nobody => Problem::NoReplica { service },
            Unreached::Refused { .. } if self.sent > 0 => Problem::Broken { service },
            Unreached::Refused { tried } => Problem::Unreached { service, tried },
        }
    }
}

fn lost(mut error: TrySendError<Request<Outgoing>>) -> Lost {
    if let Some(request) = error.take_message() {
        return Lost::Unsent(Box::new(request.into_parts().0));
    }
    tracing::debug!(error = %error.into_error(), "an upstream did not answer");
    Lost::Broken
}
