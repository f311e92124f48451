//! Whether a replica has data on its node. It is judged by what the replica has, and not by the newest spec alone: a rollout
//! that drops a volume may yet be taken back.

use plimsoll_model::state::Service;
use plimsoll_model::{Replica, ServiceSpec};

/// Whether what runs of it, what should, or what its rollout may return to keeps data on the node.
pub(crate) fn has_data(service: &Service, replica: &Replica) -> bool {
    let rollout = service.row.rollout.as_ref().filter(|rollout| !rollout.is_over());
    let former = rollout.and_then(|rollout| rollout.from.as_ref()).map(|from| &from.spec);
    let held = replica.holds().filter_map(|held| service.spec_of(held));
    held.chain(service.desired()).chain(former).any(|spec| ServiceSpec::is_stateful(spec))
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cell, cpus, replica_id, spread};

    use super::*;
    use crate::testkit::Passes;

    #[test]
    fn a_replica_keeps_its_data_until_the_rollout_that_drops_its_volume_is_over() {
        let cell = cell().node("ash", cpus(4)).deploy("shop", [("db", spread(1).volume("d"))]);
        let has = |cell: &plimsoll_model::testkit::Cell| {
            let id = replica_id("shop/db/1");
            let service = cell.state.service(&id.service).unwrap();
            has_data(service, &service.replicas[&id.slot])
        };
        let cell = cell.settle();
        assert!(has(&cell));
        let cell = cell.deploy("shop", [("db", spread(1).image("app:2"))]);
        assert!(has(&cell), "it still runs with its volume");
        let cell = cell.pass();
        assert!(has(&cell), "the rollout may be taken back");
        let cell = cell.obey().settle().later(plimsoll_model::Millis::minutes(2)).settle();
        assert!(!has(&cell.obey()), "the rollout is over, and the old copy has stopped");
    }
}
