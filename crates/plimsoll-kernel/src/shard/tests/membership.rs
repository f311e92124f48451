//! What joining a fleet and leaving it means for a cell's machines.

use plimsoll_model::CellId;
use plimsoll_model::acme::SecretKey;
use plimsoll_model::fleet::{FleetMembership, MembershipChange};

use super::*;

impl Shard {
    fn membership(&mut self, change: MembershipChange) {
        self.cell.change(Writer::Operator, Change::FleetMembership { change });
    }

    fn joins(&mut self, coordinator: &str) {
        let membership = FleetMembership {
            shard: ShardId::new("north").unwrap(),
            coordinator: CellId::new(coordinator).unwrap(),
            servers: BTreeMap::new(),
            key: SecretKey::new(vec![1]),
            certificate: vec![1],
            authorities: Vec::new(),
            joined_at: self.cell.now,
        };
        self.membership(MembershipChange::Set { membership: Box::new(membership) });
    }
}

#[test]
fn a_cell_without_machines_counts_what_it_lacks_only_in_a_fleet() {
    let mut shard = lacking(3);
    shard.cycles(2);
    assert!(shard.ages().is_empty(), "nobody would hear of it");
    shard.joins("hub");
    shard.cycles(2);
    assert_eq!(shard.ages(), [(4, 2)]);
    let order = ReportOrder { epoch: 1, cycle: 1 };
    let said = report(&shard.cell.state, ShardId::new("north").unwrap(), order);
    assert_eq!(said.shortfalls.len(), 1);
    assert_eq!(said.shortfalls[0].deficit.cpu, MilliCpus(4_000));
}

#[test]
fn a_cell_that_left_a_fleet_obeys_the_coordinator_of_another_from_its_first_term_on() {
    let mut shard = lacking(1).idle(&["m1", "m2"]);
    shard.joins("hub");
    let quota = |slice| Order::SetQuota { pool: pool(4), slice };
    assert_eq!(shard.told_in(Term(9), 1, quota(2)), Some(Ack::Done));
    assert_eq!(shard.told_in(Term(8), 2, quota(3)), None, "an older leader of the same fleet");
    shard.membership(MembershipChange::Leave);
    assert!(shard.ack(1).is_none() && shard.cell.state.machines().quotas().is_empty());
    shard.joins("other");
    assert_eq!(shard.told_in(Term(1), 1, quota(4)), Some(Ack::Done));
    assert_eq!(shard.cell.state.machines().quota(&pool(4)), Some(4));
    assert_eq!(shard.in_state(MachineState::Idle), ["m1", "m2"], "its machines are its own");
}
