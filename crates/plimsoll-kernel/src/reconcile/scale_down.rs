//! Which of too many replicas go. Those that serve least go first: lost, misplaced, not running; then from the fullest
//! zone, the fullest node, the newest. Each that goes makes its zone and node less full for the next, so the order is
//! kept by zone and by node, and one step costs a logarithm and not a look at all that are left.

use std::collections::{BTreeMap, BTreeSet};

/// A replica that may go, in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScaleDownCandidate {
    /// How little it serves where it is: the condition's severity, and whether it does not run.
    pub(super) idleness: (u8, bool),
    pub(super) zone: usize,
    pub(super) node: usize,
    pub(super) slot: u32,
}

/// The replicas of a service by zone and node, as they go.
#[derive(Debug)]
pub(super) struct ScaleDown {
    candidates: BTreeMap<(u8, bool), Zones>,
    /// All replicas of the service, also those that may not go.
    in_zone: BTreeMap<usize, u32>,
    on_node: BTreeMap<usize, u32>,
}

type Zones = BTreeMap<usize, Zone>;

/// Nodes of a zone by how full they are, and what each could give up, newest last.
#[derive(Debug, Default)]
struct Zone {
    order: BTreeSet<(u32, u32, usize)>,
    nodes: BTreeMap<usize, BTreeSet<u32>>,
}

impl ScaleDown {
    /// `all` are the zone and node of each replica of the service.
    pub(super) fn new(
        all: impl Iterator<Item = (usize, usize)>,
        candidates: impl Iterator<Item = ScaleDownCandidate>,
    ) -> Self {
        let (mut in_zone, mut on_node) = (BTreeMap::new(), BTreeMap::new());
        for (zone, node) in all {
            *in_zone.entry(zone).or_default() += 1;
            *on_node.entry(node).or_default() += 1;
        }
        let mut groups: BTreeMap<(u8, bool), Zones> = BTreeMap::new();
        for candidate in candidates {
            let zones = groups.entry(candidate.idleness).or_default();
            let nodes = &mut zones.entry(candidate.zone).or_default().nodes;
            nodes.entry(candidate.node).or_default().insert(candidate.slot);
        }
        for zone in groups.values_mut().flat_map(BTreeMap::values_mut) {
            for (node, slots) in &zone.nodes {
                zone.order.extend(slots.last().map(|newest| (on_node[node], *newest, *node)));
            }
        }
        Self { candidates: groups, in_zone, on_node }
    }

    /// The next to go; none when nothing may.
    pub(super) fn next(&mut self) -> Option<ScaleDownCandidate> {
        let mut groups = self.candidates.iter().rev();
        let (idleness, zones) = groups.find(|(_, zones)| !zones.is_empty())?;
        let fullest = zones.iter().filter_map(|(zone, nodes)| {
            let (on_node, slot, node) = nodes.order.last()?;
            Some((self.in_zone[zone], *on_node, *slot, *zone, *node))
        });
        let (_, _, slot, zone, node) = fullest.max()?;
        let gone = ScaleDownCandidate { idleness: *idleness, zone, node, slot };
        self.remove(gone);
        Some(gone)
    }

    fn remove(&mut self, gone: ScaleDownCandidate) {
        *self.in_zone.entry(gone.zone).or_default() -= 1;
        let before = self.on_node[&gone.node];
        self.on_node.insert(gone.node, before - 1);
        // Also the groups that lose nothing know the node as one less full.
        for (idleness, zones) in &mut self.candidates {
            let Some(zone) = zones.get_mut(&gone.zone) else { continue };
            let Some(slots) = zone.nodes.get_mut(&gone.node) else { continue };
            if let Some(newest) = slots.last() {
                zone.order.remove(&(before, *newest, gone.node));
            }
            if *idleness == gone.idleness {
                slots.remove(&gone.slot);
            }
            match slots.last() {
                Some(newest) => drop(zone.order.insert((before - 1, *newest, gone.node))),
                None => drop(zone.nodes.remove(&gone.node)),
            }
            if zone.nodes.is_empty() {
                zones.remove(&gone.zone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rule itself: look at all that are left, every time.
    fn by_looking(mut left: Vec<(ScaleDownCandidate, bool)>) -> Vec<ScaleDownCandidate> {
        let mut gone = Vec::new();
        loop {
            let count = |is: &dyn Fn(&ScaleDownCandidate) -> bool| {
                left.iter().filter(|(c, _)| is(c)).count()
            };
            let worth = |c: &ScaleDownCandidate| {
                let in_zone = count(&|other| other.zone == c.zone);
                let on_node = count(&|other| other.node == c.node);
                (c.idleness, in_zone, on_node, c.slot)
            };
            let movable = (0..left.len()).filter(|at| left[*at].1);
            let Some(next) = movable.max_by_key(|at| worth(&left[*at].0)) else { return gone };
            gone.push(left.remove(next).0);
        }
    }

    proptest! {
        #[test]
        fn they_go_in_the_order_that_looking_at_all_gives(
            drawn in prop::collection::vec((0_u8..3, any::<bool>(), 0_usize..7, any::<bool>()), 0..40)
        ) {
            let all: Vec<(ScaleDownCandidate, bool)> = (0_u32..)
                .zip(drawn)
                .map(|(slot, (severity, idle, node, may_go))| {
                    (ScaleDownCandidate { idleness: (severity, idle), zone: node % 3, node, slot }, may_go)
                })
                .collect();
            let places = all.iter().map(|(c, _)| (c.zone, c.node));
            let may_go = all.iter().filter(|(_, may_go)| *may_go).map(|(c, _)| *c);
            let mut scale_down = ScaleDown::new(places, may_go);
            let found: Vec<ScaleDownCandidate> = std::iter::from_fn(|| scale_down.next()).collect();
            prop_assert_eq!(found, by_looking(all));
        }
    }
}
