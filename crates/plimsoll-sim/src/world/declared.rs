//! Volumes that images declare, as machines have them: found when an image is pulled, told to the cell, and mounted once the cell
//! has noted the machine as the holder.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_kernel::orders;
use plimsoll_model::spec::VolumeSpec;
use plimsoll_model::{Generation, Millis, NodeId, ObservedCode, ObservedState, ReplicaId};

use super::{Due, World};

/// How long a machine waits for an answer before it tells the cell again.
const SAY_AGAIN: Millis = Millis::seconds(5);

/// Where an image declares volumes: chaos draws some of this name, and no others declare any.
pub(crate) fn declared_by(image: &str) -> BTreeSet<String> {
    image.starts_with("vault:").then(|| "/data".to_owned()).into_iter().collect()
}

impl World<'_> {
    /// What the image of a container that is here declares and its spec does not mount.
    pub(super) fn declared_at(
        &self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
    ) -> BTreeSet<String> {
        let machine = self.machines.get(node);
        let container = machine.and_then(|machine| machine.container(replica, generation));
        let Some(container) = container else { return BTreeSet::new() };
        let spec = &container.spec.container;
        spec.unmounted(declared_by(&spec.image).iter().map(String::as_str))
    }

    /// The image has come: whoever hears that it starts is to know of its data.
    pub(super) fn found_volumes(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
    ) {
        let found = self.declared_at(node, replica, generation);
        let order = orders::of(&self.state, node, replica)
            .find(|order| order.assignment.generation == generation);
        if order.is_some_and(|order| order.spec.declared.lacks(&found)) {
            self.tell_volumes(node, replica, generation);
        }
    }

    /// Tells the cell what was found, and looks again a little later.
    pub(super) fn tell_volumes(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
    ) {
        let (now, paths) = (self.clock.now, self.declared_at(node, replica, generation));
        let Some(container) = self.container(node, replica, generation) else { return };
        if container.say_again.is_some_and(|at| at > now) {
            return;
        }
        container.say_again = Some(now.plus(SAY_AGAIN));
        let (service, spec) = (replica.service.clone(), container.spec.hash);
        let latency = self.scenario.dwell.network.1;
        let told = Due::Declared { node: node.clone(), service, spec, paths };
        self.clock.after(latency, told);
        let (node, replica) = (node.clone(), replica.clone());
        self.clock.at(now.plus(SAY_AGAIN), Due::Orders { node, replica });
    }

    /// What it waited for before is there: it says nothing of that any more.
    pub(super) fn await_volumes(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
    ) {
        let row = self.state.replica(replica);
        let said = row.and_then(|row| row.observed.get(&generation)?.code.as_ref());
        if matches!(said, Some(ObservedCode::AwaitsService { .. })) {
            self.report(node, replica, generation, ObservedState::Pulling, None);
        }
    }

    /// It starts with what the cell lets it mount of what its image declares.
    pub(super) fn mount_declared(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
    ) {
        let found = self.declared_at(node, replica, generation);
        let order = orders::of(&self.state, node, replica)
            .find(|order| order.assignment.generation == generation);
        let granted: BTreeMap<String, String> = order.map(|it| it.declared).unwrap_or_default();
        let name =
            |key: &String| VolumeSpec::default().name_on_engine(&replica.service.deployment, key);
        let mounted: BTreeMap<String, String> = granted
            .iter()
            .filter(|(path, _)| found.contains(*path))
            .map(|(path, key)| (path.clone(), name(key)))
            .collect();
        if let Some(container) = self.container(node, replica, generation) {
            container.declared = mounted;
        }
    }
}
