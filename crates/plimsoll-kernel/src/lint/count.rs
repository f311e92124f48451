//! A service gets as many replicas as it asked for and no more, under ids that were never used before.

use plimsoll_model::{Mode, ReplicaId, Slot};

use super::BatchPlan;

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for new in plan.new.iter().filter(|new| new.cause.is_none()) {
        match (&new.replica.slot, &new.spec.placement.mode) {
            (Slot::Node(node), Mode::Global) if node == new.node => {}
            (
                Slot::Index(index),
                Mode::Spread { .. } | Mode::Pack { .. } | Mode::Binpack { .. } | Mode::Hosts { .. },
            ) => {
                if *index < plan.state.next_index(&new.replica.service) {
                    broken.push(format!("{} is an index used before", new.replica));
                }
            }
            _ => broken.push(format!(
                "{} is no id for a {} service",
                new.replica,
                new.spec.placement.mode.word()
            )),
        }
    }
    for key in plan.by_service.keys().filter(|key| !plan.aborted.contains(*key)) {
        let Some(service) = plan.state.service(key) else { continue };
        let old = service.replicas.iter().filter(|(slot, replica)| {
            let id = ReplicaId::new((*key).clone(), (*slot).clone());
            replica.assignment.is_some() && !plan.retired.contains(&id)
        });
        let old: Vec<_> = old.map(|(slot, _)| slot).collect();
        let added = plan.new_of(key).filter(|new| new.cause.is_none()).count();
        let Some(spec) = service.desired() else {
            if added > 0 || !old.is_empty() {
                broken.push(format!("{key} is retired but keeps {} replicas", old.len() + added));
            }
            continue;
        };
        let Some(wanted) = spec.placement.mode.replicas() else { continue };
        // Replicas of another kind are on their way out, and wait for these to run. One whose move ends in this batch
        // may be too many: it is decided on anew by the next.
        let ours = old.iter().filter(|slot| matches!(slot, Slot::Index(_)));
        let (counted, stepped) = ours.fold((0, 0), |(counted, stepped), slot| {
            let id = ReplicaId::new((*key).clone(), (*slot).clone());
            (counted + 1, stepped + usize::from(plan.stepped.contains(&id)))
        });
        let settled = if added > 0 { counted } else { counted - stepped };
        if settled + added > wanted as usize {
            broken.push(format!("{key} would have {} of {wanted} replicas", counted + added));
        }
    }
    broken
}
