//! Why a replica is where it is, in the kernel's own numbers.

use std::collections::BTreeMap;

use plimsoll_kernel::place::{NodeVerdict as Said, Roster, Score};
use plimsoll_kernel::preempt::{NoVictims, VictimSet};
use plimsoll_kernel::reschedule::RescheduleVerdict;
use plimsoll_kernel::{explain, moves};
use plimsoll_model::reason::WaitReason;
use plimsoll_model::{NodeId, ReplicaId, ServiceKey, ServiceSpec};

use super::Source;
use super::reschedule::{reschedule_verdict, reviews_of};
use plimsoll_api::view::{
    Explanation, Move, NodeVerdict, PreemptionVerdict, Reason, ReasonCode, Time,
};

/// None of a replica that does not exist. Only who leads can say what the rescheduler has in mind.
pub fn explanation(
    source: &Source<'_>,
    id: &ReplicaId,
    rescheduling: Option<&RescheduleVerdict>,
) -> Option<Explanation> {
    let replica = source.state.replica(id)?;
    let policy = source.policy;
    let signals = source.measured.signals(policy, source.here.now);
    let mut roster = Roster::new(source.state, &signals, policy);
    let explained = explain::replica(source.state, &mut roster, policy, id, source.here.now);
    let node = replica.heading().map(|assignment| assignment.node.clone());
    let mode = explained.as_ref().map_or("retired", |explained| explained.mode);
    let verdicts = explained.map(|explained| explained.verdicts).unwrap_or_default();
    let why = match (&node, &replica.waiting) {
        (None, _) => "it is retired and only stops".to_owned(),
        (Some(node), Some(waiting)) => format!("it stays on {node}: {waiting}"),
        (Some(node), None) => sentence(node, &verdicts, mode),
    };
    let preemption = preemption(source, &mut roster, id);
    Some(Explanation {
        preemption,
        replica: id.to_string(),
        service: id.service.to_string(),
        mode: mode.to_owned(),
        why,
        moving: moving(source, id, replica),
        rescheduling: rescheduling.map(reschedule_verdict),
        reviews: reviews_of(source.state, id),
        notes: not_pinned(source, id).into_iter().chain(image_volumes(source, id)).collect(),
        nodes: verdicts.iter().map(|said| verdict(id, said, node.as_ref())).collect(),
        node: node.map(|node| node.to_string()),
    })
}

/// Whom a replica that finds no room could preempt, node by node.
fn preemption(source: &Source<'_>, roster: &mut Roster, id: &ReplicaId) -> Vec<PreemptionVerdict> {
    let waiting = source.state.replica(id).and_then(|replica| replica.waiting.as_ref());
    if !matches!(waiting, Some(WaitReason::NoPlace(_))) {
        return Vec::new();
    }
    let (state, policy, now) = (source.state, source.policy, source.here.now);
    let Some(explained) = explain::preemption(state, roster, policy, id, now) else {
        return Vec::new();
    };
    let verdict = |(node, found): &(NodeId, Result<VictimSet, NoVictims>)| {
        let victims = found.as_ref().map(|set| set.victims.keys().map(ToString::to_string));
        let why = found.as_ref().err();
        PreemptionVerdict {
            node: node.to_string(),
            is_best: explained.best.as_ref() == Some(node),
            victims: victims.map(Iterator::collect).unwrap_or_default(),
            reason: why.map(NoVictims::word),
            detail: why.map(ToString::to_string),
        }
    };
    explained.nodes.iter().map(verdict).collect()
}

/// That its image is used by its tag.
fn not_pinned(source: &Source<'_>, id: &ReplicaId) -> Option<Reason> {
    let service = source.state.service(&id.service)?;
    let heading = service.replicas.get(&id.slot)?.heading()?;
    let spec = service.spec_of(heading)?;
    let text = format!("{} {}", spec.container.image, spec.unpinned?);
    Some(Reason::new(&id.service, ReasonCode::ImageNotPinned, text))
}

/// That its image declares volumes, which keep it on its node.
fn image_volumes(source: &Source<'_>, id: &ReplicaId) -> Option<Reason> {
    let service = source.state.service(&id.service)?;
    let heading = service.replicas.get(&id.slot)?.heading()?;
    of_image_volumes(&id.service, service.spec_of(heading)?)
}

/// That the image of the service declares volumes, as far as is known.
pub fn of_image_volumes(service: &ServiceKey, spec: &ServiceSpec) -> Option<Reason> {
    let paths: Vec<&str> = spec.declared.paths.iter().map(String::as_str).collect();
    let text = format!(
        "{} declares volumes at {}: each replica keeps its own and stays on its node",
        spec.container.image,
        paths.join(", ")
    );
    spec.has_declared().then(|| Reason::new(service, ReasonCode::ImageVolumes, text))
}

/// The replica's move, if one is under way.
fn moving(source: &Source<'_>, id: &ReplicaId, replica: &plimsoll_model::Replica) -> Option<Move> {
    let under = moves::under_way(source.state, id, replica, source.policy)?;
    let seen = replica.observation(under.dst);
    let code = source.observed_code(id, under.dst.generation, seen);
    Some(Move {
        replica: id.to_string(),
        from: under.src.node.to_string(),
        to: under.dst.node.to_string(),
        cause: under.cause.map(Into::into),
        step: under.stage.word().to_owned(),
        since: Time(seen.map_or(under.dst.at, |seen| seen.at)),
        deadline: under.deadline.map(Time),
        reason: code.map(|code| Reason::of(id, &code)),
    })
}

fn sentence(node: &NodeId, verdicts: &[Said], mode: &str) -> String {
    if mode == "global" {
        return format!("{node} is one of the nodes that {mode} runs it on");
    }
    let own = verdicts.iter().find(|said| said.node == *node);
    if let Some(filter) = own.and_then(|own| own.filter.as_ref()) {
        return format!("{node} would not be chosen again: {filter}");
    }
    let score = |said: &Said| said.score.map(Score::total);
    let best = verdicts.iter().filter_map(score).max();
    match (own.and_then(score), best) {
        (Some(own), Some(best)) if own < best => format!(
            "existing placements stay: it would score {own} on {node} now, {best} on the best node"
        ),
        (Some(own), _) => format!("no node suits it better: {node} scores {own}"),
        (None, _) => format!("it was placed on {node}"),
    }
}

fn verdict(id: &ReplicaId, said: &Said, node: Option<&NodeId>) -> NodeVerdict {
    let parts = said.score.map(|score| {
        let parts = [
            ("zone", score.zone),
            ("node", score.node),
            ("headroom", score.headroom),
            ("preferred", score.preferred),
        ];
        parts.map(|(name, part)| (name.to_owned(), part))
    });
    NodeVerdict {
        node: said.node.to_string(),
        is_here: node == Some(&said.node),
        replicas: said.here,
        score: said.score.map(Score::total),
        parts: parts.map(BTreeMap::from).unwrap_or_default(),
        filter: said.filter.as_ref().map(|filter| Reason::of(id, filter)),
    }
}
