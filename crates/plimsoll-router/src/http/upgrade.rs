//! Upgraded connections such as those of WebSocket: copied as bytes from then on.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::ClientConnection;
use super::response_body::ActiveRequest;
use crate::relay::relay;
use crate::upstream::InFlight;

/// Copies between the client and the upstream once both are upgraded.
pub(super) fn carry(
    client: &Arc<ClientConnection>,
    near: OnUpgrade,
    far: OnUpgrade,
    in_flight: InFlight,
) {
    let busy = ActiveRequest::new(Arc::clone(client)).answered();
    tokio::spawn(async move {
        let Ok((near, far)) = tokio::try_join!(near, far) else { return };
        let (mut near, mut far) = (TokioIo::new(near), TokioIo::new(far));
        let (upstream, activity) = (in_flight.upstream(), &busy.client.slot.activity);
        // However it ends, both sides are closed.
        tokio::select! {
            _ = relay(&mut near, &mut far, &upstream.meter, activity) => {}
            () = upstream.cut() => {}
            () = activity.is_quiet_for(busy.client.core.limits.tunnel_idle) => {}
        }
    });
}
