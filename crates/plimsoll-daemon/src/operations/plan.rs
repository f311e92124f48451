//! What the scheduler's first pass would do about a deployment, on a copy of the state. The deciding is the kernel's own.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Policy, Scope, Signals, reconcile};
use plimsoll_model::{
    Author, Change, Command, DeploymentName, Guarded, NodeId, ReplicaId, ServiceKey, State, Term,
    Timestamp, Writer,
};

use super::{Content, Error, refused};
use crate::cell::WriteError;

/// The revision the deployment would have, and the pass, a line for each thing it would do.
pub(super) fn of(
    mut state: State,
    signals: &Signals,
    policy: &Policy,
    name: &DeploymentName,
    content: &Content,
    now: Timestamp,
) -> Result<(u32, Vec<String>), Error> {
    let change = content.clone().deploy(name);
    let by = Author::new(Writer::Operator, "dry-run");
    let command = Command::new(now, Term(0), by, vec![change.free()]);
    state.apply(&command).map_err(|rejection| refused(WriteError::Refused(rejection)))?;
    let revision = state.deployments().get(name).map_or(0, |deployment| deployment.revision.0);

    let keys: BTreeSet<ServiceKey> = state.services_of(name).cloned().collect();
    let mut roster = Roster::new(&state, signals, policy);
    let decision = reconcile(&state, &mut roster, policy, Scope::Services(&keys), now);
    let mut lines: Vec<String> =
        decision.batch.iter().filter_map(|guarded| line(&state, guarded)).collect();
    lines.extend(rest(&state, &keys, &decision.batch));
    Ok((revision, lines))
}

fn line(state: &State, guarded: &Guarded) -> Option<String> {
    let home = |id: &ReplicaId| -> Option<NodeId> {
        Some(state.replica(id)?.assignment.as_ref()?.node.clone())
    };
    match &guarded.change {
        Change::Place { replica, node, .. } => Some(format!("{replica} placed on {node}")),
        Change::Succeed { replica, node, cause, .. } => match home(replica)? {
            src if src == *node => Some(format!("{replica} renewed on {node}")),
            src => Some(format!("{replica} moves {src} → {node} ({})", cause.word())),
        },
        Change::Retire { replica } => Some(format!("{replica} retired")),
        Change::Abandon { replica, why } => {
            Some(format!("{replica} gives up its move ({})", why.word()))
        }
        Change::SetUnplaced { service, unplaced: Some(unplaced) } => {
            Some(format!("{service} lacks {} replicas: {}", unplaced.missing, unplaced.why))
        }
        Change::SetWaiting { replica, waiting: Some(why) } => {
            Some(format!("{replica} waits: {why}"))
        }
        _ => None,
    }
}

/// What a later pass has to do still: replicas change one after another.
fn rest(state: &State, keys: &BTreeSet<ServiceKey>, batch: &[Guarded]) -> Vec<String> {
    let touched: BTreeSet<&ReplicaId> =
        batch.iter().filter_map(|guarded| guarded.change.replica()).collect();
    let mut waiting: BTreeMap<&ServiceKey, u32> = BTreeMap::new();
    for key in keys {
        let Some((row, spec)) = state.service(key).and_then(|row| Some((row, row.desired()?)))
        else {
            continue;
        };
        for (slot, replica) in &row.replicas {
            let Some(heading) = replica.heading() else { continue };
            let is_current = heading.spec == spec.hash && !replica.is_stale(heading);
            if !is_current && !touched.contains(&ReplicaId::new(key.clone(), slot.clone())) {
                *waiting.entry(key).or_default() += 1;
            }
        }
    }
    let line = |(key, count)| format!("{key}: {count} more in turn");
    waiting.into_iter().map(line).collect()
}
