//! Connections that become something else, as WebSocket does: carried as bytes from then on.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Guest;
use super::answer::Busy;
use crate::clock;
use crate::relay::relay;
use crate::seat::Activity;
use crate::upstream::InFlight;

/// Carries between the two once both have become what was asked for.
pub(super) fn carry(guest: &Arc<Guest>, near: OnUpgrade, far: OnUpgrade, in_flight: InFlight) {
    let busy = Busy::new(Arc::clone(guest));
    tokio::spawn(async move {
        let Ok((near, far)) = tokio::try_join!(near, far) else { return };
        let (mut near, mut far) = (TokioIo::new(near), TokioIo::new(far));
        let (upstream, activity) = (in_flight.upstream(), &busy.0.seat.activity);
        // However it ends, it ends for both.
        tokio::select! {
            _ = relay(&mut near, &mut far, &upstream.meter, activity) => {}
            () = upstream.cut() => {}
            () = is_silent(activity, busy.0.core.limits.tunnel_idle) => {}
        }
    });
}

/// Returns once nothing has moved for that long.
async fn is_silent(activity: &Activity, limit: Duration) {
    loop {
        let silent = clock::now().since(activity.last_moved());
        if silent >= limit {
            return;
        }
        tokio::time::sleep(limit.saturating_sub(silent)).await;
    }
}
