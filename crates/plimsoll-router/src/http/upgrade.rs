//! Upgraded connections such as those of WebSocket: copied as bytes from then on.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::ClientConnection;
use super::response_body::ActiveRequest;
use crate::activity::Activity;
use crate::clock;
use crate::relay::relay;
use crate::upstream::InFlight;

/// Copies between the client and the upstream once both are upgraded.
pub(super) fn carry(
    client: &Arc<ClientConnection>,
    near: OnUpgrade,
    far: OnUpgrade,
    in_flight: InFlight,
) {
    let busy = ActiveRequest::new(Arc::clone(client));
    tokio::spawn(async move {
        let Ok((near, far)) = tokio::try_join!(near, far) else { return };
        let (mut near, mut far) = (TokioIo::new(near), TokioIo::new(far));
        let (upstream, activity) = (in_flight.upstream(), &busy.0.slot.activity);
        // However it ends, both sides are closed.
        tokio::select! {
            _ = relay(&mut near, &mut far, &upstream.meter, activity) => {}
            () = upstream.cut() => {}
            () = is_idle(activity, busy.0.core.limits.tunnel_idle) => {}
        }
    });
}

/// Returns once no bytes were sent or received for that long.
async fn is_idle(activity: &Activity, limit: Duration) {
    loop {
        let idle = clock::now().since(activity.last_moved());
        if idle >= limit {
            return;
        }
        tokio::time::sleep(limit.saturating_sub(idle)).await;
    }
}
