//! What is held in a cell beyond the replicas that a case lists: room that is set aside for something that is on its way out, the
//! memory of what was sent to a node, and names of replicas that have ended.

use std::sync::Arc;

use plimsoll_model::{
    Change, ContainerSpec, DeploymentName, Mode, MoveCause, NodeId, ObservedState, Refusal,
    ReplicaId, Resources, ServiceKey, ServiceName, ServiceSpec, SpecHash, Timestamp, Writer,
};
use serde_saphyr::Location;

use super::super::entries::CaseEntry;
use super::{CaseBuilder, LONG_AGO, refused};
use crate::entries::deployment::Services;
use crate::entries::node::NodeEntry;
use crate::mistake::Mistake;

/// The deployment of what stands in for what a case only tells the size of.
const REST: &str = "case-rest";

/// Of what stands in.
const UNNAMED: SpecHash = SpecHash([0; 32]);

/// What a node holds of which the case does not say what it is.
struct Rest {
    service: ServiceKey,
    node: NodeId,
    held: Resources,
    received_at: Option<Timestamp>,
    at: Location,
}

impl CaseBuilder {
    /// Sets aside what nodes hold beyond their replicas, and has them remember when they were last sent one.
    pub(super) fn room(&mut self, nodes: &[NodeEntry]) -> Result<(), Mistake> {
        let rests = self.rests(nodes)?;
        let Some(first) = rests.first() else { return Ok(()) };
        let deployment = first.service.deployment.clone();
        let services: Services = rests
            .iter()
            .map(|rest| (rest.service.service.clone(), Arc::new(stand_in(rest.held))))
            .collect();
        let at = first.at;
        self.deploy(&deployment, &services).map_err(|refusal| refused(at, &refusal))?;
        for rest in &rests {
            self.hold(rest).map_err(|refusal| refused(rest.at, &refusal))?;
        }
        // It is on its way out: nothing places it, and it keeps its room.
        let undeploy = Change::Undeploy { deployment };
        self.apply(LONG_AGO, Writer::Operator, undeploy).map_err(|it| refused(at, &it))?;
        for rest in rests.iter().filter(|rest| rest.held != Resources::NONE) {
            let replica = ReplicaId::indexed(&rest.service, 2);
            self.apply(LONG_AGO, Writer::Scheduler, Change::Retire { replica })
                .map_err(|refusal| refused(rest.at, &refusal))?;
        }
        Ok(())
    }

    fn rests(&self, nodes: &[NodeEntry]) -> Result<Vec<Rest>, Mistake> {
        let mut rests = Vec::new();
        for entry in nodes {
            let reserved = entry.reserved.as_ref().map_or(Resources::NONE, |it| (&it.value).into());
            let received_at = entry.received_at.as_ref().map(|it| Timestamp(it.value.0.0.0));
            for (node, _) in entry.nodes()? {
                let counted = self.state.load(&node).map(|load| load.reserved).unwrap_or_default();
                let capacity = self.state.node(&node).map(|node| node.facts.capacity);
                let held = reserved.minus(counted.on(capacity.unwrap_or_default()));
                if held == Resources::NONE && received_at.is_none() {
                    continue;
                }
                let deployment = DeploymentName::new(REST).expect("a valid name");
                let name = ServiceName::new(format!("n{}", rests.len())).expect("a valid name");
                let service = ServiceKey::new(deployment, name);
                let at = entry.name.referenced;
                rests.push(Rest { service, node, held, received_at, at });
            }
        }
        Ok(rests)
    }

    fn hold(&mut self, rest: &Rest) -> Result<(), Refusal> {
        if let Some(at) = rest.received_at {
            self.give(&ReplicaId::indexed(&rest.service, 1), &rest.node, at)?;
        }
        if rest.held == Resources::NONE {
            return Ok(());
        }
        let (replica, node) = (ReplicaId::indexed(&rest.service, 2), rest.node.clone());
        let place = Change::Place { replica, node, spec: UNNAMED };
        self.apply(LONG_AGO, Writer::Scheduler, place)
    }

    /// Something was sent to the node for relief, and is gone again.
    fn give(&mut self, id: &ReplicaId, node: &NodeId, at: Timestamp) -> Result<(), Refusal> {
        let (replica, node, spec) = (id.clone(), node.clone(), UNNAMED);
        let place = Change::Place { replica: replica.clone(), node: node.clone(), spec };
        self.apply(LONG_AGO, Writer::Scheduler, place)?;
        let cause = MoveCause::Pressure;
        let succeed = Change::Succeed { replica: replica.clone(), node, spec, cause };
        self.apply(at, Writer::Scheduler, succeed)?;
        self.apply(at, Writer::Scheduler, Change::Retire { replica })?;
        self.observe(id, at, ObservedState::Stopped)
    }

    /// Has each service give its next replica the index that the case says: the one before has been and ended.
    pub(super) fn ended(&mut self, case: &CaseEntry) -> Result<(), Mistake> {
        let node = self.state.nodes().keys().next().cloned();
        for (name, next) in &case.next_index.0 {
            let (key, at) = (&name.value.0, name.referenced);
            let service = self.state.service(key);
            let Some(spec) = service.and_then(|service| service.row.desired) else {
                return Err(self.unknown_service(key, at));
            };
            let Some(last) = next.checked_sub(1).filter(|_| *next > self.state.next_index(key))
            else {
                continue;
            };
            let Some(node) = node.clone() else { continue };
            let replica = ReplicaId::indexed(key, last);
            let place = Change::Place { replica: replica.clone(), node, spec };
            let retire = Change::Retire { replica: replica.clone() };
            self.apply(LONG_AGO, Writer::Scheduler, place)
                .and_then(|()| self.apply(LONG_AGO, Writer::Scheduler, retire))
                .and_then(|()| self.observe(&replica, LONG_AGO, ObservedState::Stopped))
                .map_err(|refusal| refused(at, &refusal))?;
        }
        Ok(())
    }
}

fn stand_in(held: Resources) -> ServiceSpec {
    let container = ContainerSpec {
        image: "case".to_owned(),
        reservations: Resources { gpus: 0, ..held },
        gpus: held.gpus,
        ..ContainerSpec::default()
    };
    ServiceSpec::new(container, UNNAMED, Mode::Pack { replicas: 1 })
}
