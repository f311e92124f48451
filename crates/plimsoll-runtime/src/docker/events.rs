//! Listens to the engine and tells what happens to this cell's containers. An engine that goes away is waited for, and
//! nothing that happened meanwhile is guessed: whoever listens is told to look for himself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::models::EventMessage;
use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt;
use plimsoll_model::{CellId, Timestamp};
use tokio::time::sleep;

use super::engine::EngineClient;
use super::{labels, list};
use crate::runtime::{Bus, Exit, RuntimeEvent, Tag, wall_clock};

/// How often an engine that does not answer is tried again. It costs one look at a socket.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// What is listened for: what an engine of either kind calls a start, an end and a removal. Commands that health checks
/// run make three events each, which the engine need not send.
const ACTIONS: [&str; 5] = ["start", "die", "died", "destroy", "remove"];

/// Listens for ever, to what happens after `since`.
pub(super) async fn listen(
    engine: Arc<EngineClient>,
    bus: Bus,
    cell_id: CellId,
    mut since: Timestamp,
) {
    let mut has_heard = false;
    loop {
        if let Ok(docker) = engine.renew().await {
            // Told when the engine is back, and after the moment from which we hear everything: a list made now, and
            // the events that follow, leave nothing out.
            if engine.was_silent() || has_heard {
                bus.tell(RuntimeEvent::Missed);
            }
            hear(&docker, &bus, &cell_id, since).await;
            has_heard = true;
            // Told when it went away, so that its absence is noticed at once.
            bus.tell(RuntimeEvent::Missed);
        }
        sleep(TRY_AGAIN).await;
        since = wall_clock();
    }
}

/// Until the stream ends, as it does when the engine stops.
async fn hear(docker: &Docker, bus: &Bus, cell_id: &CellId, since: Timestamp) {
    let mut filters = labels::filter(cell_id, None);
    filters.insert("type".to_owned(), vec!["container".to_owned()]);
    filters.insert("event".to_owned(), ACTIONS.map(str::to_owned).to_vec());
    let since = format!("{}.{:03}000000", since.0 / 1_000, since.0 % 1_000);
    let options = EventsOptions { since: Some(since), filters: Some(filters), until: None };
    let mut events = Box::pin(docker.events(Some(options)));
    while let Some(Ok(message)) = events.next().await {
        if let Some(event) = understand(docker, message).await {
            bus.tell(event);
        }
    }
}

async fn understand(docker: &Docker, message: EventMessage) -> Option<RuntimeEvent> {
    let actor = message.actor?;
    let attributes = actor.attributes.unwrap_or_default();
    let tag = labels::tag(&attributes)?;
    match message.action?.as_str() {
        "start" => Some(RuntimeEvent::Started { tag }),
        "die" | "died" => {
            let exit = exit(docker, &actor.id.unwrap_or_default(), &tag, &attributes).await;
            Some(RuntimeEvent::Exited { tag, exit })
        }
        "destroy" | "remove" => Some(RuntimeEvent::Removed { tag }),
        _ => None,
    }
}

/// The event tells the status; only the container knows whether it was memory. One that is gone already, or runs again,
/// does not tell any more.
async fn exit(docker: &Docker, id: &str, tag: &Tag, told: &HashMap<String, String>) -> Exit {
    let status = told.get("exitCode").or_else(|| told.get("containerExitCode"));
    let status = status.and_then(|code| code.parse().ok());
    let container = docker.inspect_container(id, None).await.ok();
    let state = container
        .filter(|container| list::tag_of(container).as_ref() == Some(tag))
        .and_then(|container| container.state)
        .filter(|state| state.running != Some(true));
    let seen = state.as_ref().map(list::exit);
    match seen {
        Some(seen) if status.is_none() || seen.status == status => seen,
        _ => Exit { status, oom: false },
    }
}
