use plimsoll_model::access::Digest;
use plimsoll_model::{Bytes, MilliCpus, Millis, Term};

use super::*;
use plimsoll_model::fleet::FleetCommand;
use plimsoll_model::fleet::TransferKind;
use plimsoll_model::fleet::{
    Accepts, Bucket, Preemptible, Registration, Report, ReportOrder, Supply,
};
use plimsoll_model::fleet::{Ack, AckError, Order};
use plimsoll_model::fleet::{MachineId, MachineType, TransferId, Zone};

const GIB: u64 = 1 << 30;

fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

fn pool(machine_type: &str) -> Pool {
    Pool { machine_type: MachineType::new(machine_type).unwrap(), zone: Zone::new("z").unwrap() }
}

fn resources(cpus: u64, gib: u64) -> Resources {
    Resources { cpu: MilliCpus(cpus * 1_000), memory: Bytes(gib * GIB), gpus: 0, all_gpus: 0 }
}

/// A coordinator, its shards, and a clock. Every machine is an `m` with 16 cpus and 32 GiB, unless a test says otherwise.
struct Fleet {
    state: FleetState,
    reports: Reports,
    policy: FleetPolicy,
    now: Timestamp,
    cycle: u64,
    said: Vec<Report>,
}

/// Shards under the names given, none of which has or lacks anything.
fn fleet(names: &[&str]) -> Fleet {
    let mut fleet = Fleet {
        state: FleetState::default(),
        reports: Reports::default(),
        policy: FleetPolicy::default(),
        now: Timestamp(1_000_000),
        cycle: 0,
        said: Vec::new(),
    };
    for name in names {
        let types = [(MachineType::new("m").unwrap(), resources(16, 32))].into();
        let registration = Registration { types };
        let mut digest = [0; 32];
        digest[..name.len()].copy_from_slice(name.as_bytes());
        let (token, key, expires_at) = (Digest(digest), Digest(digest), Timestamp(u64::MAX));
        fleet.write(vec![
            FleetChange::CreateToken { shard: shard(name), token, expires_at },
            FleetChange::Enrol { token, shard: shard(name), key },
            FleetChange::Register { shard: shard(name), registration },
        ]);
        fleet.said.push(Report {
            shard: shard(name),
            order: ReportOrder::default(),
            is_paused: false,
            supply: std::collections::BTreeMap::new(),
            shortfalls: Vec::new(),
            preemptible: Vec::new(),
        });
    }
    fleet
}

impl Fleet {
    fn report(&mut self, name: &str) -> &mut Report {
        self.said.iter_mut().find(|it| it.shard == shard(name)).unwrap()
    }

    fn supply(mut self, name: &str, supply: Supply) -> Self {
        self.report(name).supply.insert(pool("m"), supply);
        self
    }

    fn idle(self, name: &str, idle: u32) -> Self {
        self.supply(name, Supply { idle, ..Supply::default() })
    }

    /// The shard lacks so much, of middling importance.
    fn lacks(mut self, name: &str, deficit: Resources) -> Self {
        self.report(name).shortfalls.push(Shortfall {
            profile: Profile::new("p").unwrap(),
            deficit,
            min_unit: resources(1, 1),
            accepts: Accepts::default(),
            priority: 100,
            bucket: Some(Bucket(10)),
            age: 0,
            is_topology_constrained: false,
        });
        self
    }

    fn shortfall(mut self, name: &str, change: impl FnOnce(&mut Shortfall)) -> Self {
        change(self.report(name).shortfalls.last_mut().unwrap());
        self
    }

    fn preemptible(mut self, name: &str, priority: i32, bucket: Option<Bucket>) -> Self {
        let grace = Millis::minutes(10);
        self.report(name).preemptible.push(Preemptible {
            pool: pool("m"),
            priority,
            bucket,
            machines: 3,
            grace,
        });
        self
    }

    fn quota(mut self, name: &str, slice: u32, used: u32) -> Self {
        self.write(vec![FleetChange::SetQuota { pool: pool("m"), shard: shard(name), slice }]);
        self.supply(name, Supply { quota_used: used, ..Supply::default() })
    }

    fn write(
        &mut self,
        batch: Vec<FleetChange>,
    ) -> Vec<(TransferId, plimsoll_model::fleet::TransferEnd)> {
        let command = FleetCommand { at: self.now, term: Term(1), batch };
        self.state.apply(&command).unwrap()
    }

    /// So many cycles pass, in each of which every shard reports; needs grow older.
    fn cycles(&mut self, count: u64) {
        for _ in 0..count {
            self.cycle += 1;
            self.now = self.now.plus(self.policy.cycle);
            for mut report in self.said.clone() {
                report.order = ReportOrder { epoch: 1, cycle: self.cycle };
                self.reports.take(report, self.now).unwrap();
            }
            for shortfall in self.said.iter_mut().flat_map(|it| &mut it.shortfalls) {
                shortfall.age += 1;
            }
        }
    }

    fn coordinate(&self) -> FleetDecision {
        coordinate(&self.state, &self.reports, &self.policy, self.now)
    }

    /// Decides and writes it. Returns what was begun, as `donor -> recipient: count kind`.
    fn pass(&mut self) -> Vec<String> {
        let decision = self.coordinate();
        let told = decision.batch.iter().filter_map(told).collect();
        self.write(decision.batch);
        told
    }

    fn why(&self) -> Vec<String> {
        self.coordinate().unserved.iter().map(|it| it.why.to_string()).collect()
    }

    /// The shard answers everything it was told with this.
    fn answer(
        &mut self,
        name: &str,
        ack: &Ack,
    ) -> Vec<(TransferId, plimsoll_model::fleet::TransferEnd)> {
        let pending: Vec<_> = self.state.shards()[&shard(name)].pending.keys().copied().collect();
        let batch = pending.into_iter().map(|id| FleetChange::Acknowledge {
            shard: shard(name),
            id,
            order: ReportOrder { epoch: 1, cycle: self.cycle },
            ack: ack.clone(),
            max_failures: self.policy.max_failures,
            cooldown: self.policy.cycles(self.policy.cooldown_cycles),
        });
        let batch = batch.collect();
        self.write(batch)
    }

    fn orders(&self, name: &str) -> Vec<Order> {
        self.state.shards()[&shard(name)].pending.values().map(|it| it.order.clone()).collect()
    }
}

fn told(change: &FleetChange) -> Option<String> {
    match change {
        FleetChange::AskMachines { kind, donor, recipient, count, .. } => {
            let kind = match kind {
                TransferKind::Idle => "idle",
                TransferKind::Quota => "quota",
                TransferKind::Preempt => "drained",
            };
            Some(format!("{donor} -> {recipient}: {count} {kind}"))
        }
        FleetChange::MoveQuota { donor, recipient, count, .. } => {
            Some(format!("{donor} -> {recipient}: {count} quota"))
        }
        _ => None,
    }
}

fn machines(names: &[&str]) -> std::collections::BTreeSet<MachineId> {
    names.iter().map(|name| MachineId::new(name).unwrap()).collect()
}

#[test]
fn a_shortfall_is_served_when_it_is_older_than_five_cycles() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 20).lacks("a", resources(32, 1));
    fleet.cycles(6);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert_eq!(fleet.why(), ["missing for 5 cycles; served above 5"]);
    fleet.cycles(1);
    assert_eq!(fleet.pass(), ["b -> a: 2 idle"]);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert_eq!(fleet.why(), ["on its way in 1 transfer"]);
}

#[test]
fn a_topology_constrained_shortfall_is_never_served() {
    let fleet = fleet(&["a", "b"]).idle("b", 20).lacks("a", resources(32, 1));
    let mut fleet = fleet.shortfall("a", |it| it.is_topology_constrained = true);
    fleet.cycles(100);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert_eq!(fleet.why(), ["no machine of another shard can serve it"]);
}

#[test]
fn a_donor_with_three_idle_machines_gives_two() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 3).lacks("a", resources(48, 1));
    fleet.cycles(7);
    assert_eq!(fleet.pass(), ["b -> a: 2 idle"]);
}

#[test]
fn a_donor_that_can_give_a_twentieth_is_not_chosen() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 6).lacks("a", resources(1_600, 1));
    fleet.cycles(7);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert_eq!(
        fleet.why(),
        ["idle: b could give 5 m in z of 100 missing, too few for a move; \
          quota: no shard has any to give; preempt: missing for 6 cycles; drains begin above 12"]
    );
}

#[test]
fn of_two_donors_the_one_with_more_to_spare_gives_and_of_equals_the_first() {
    let lacking = |fleet: Fleet| fleet.lacks("x", resources(16, 1));
    let mut fleet_1 = lacking(fleet(&["a", "b", "x"]).idle("a", 4).idle("b", 9));
    fleet_1.cycles(7);
    assert_eq!(fleet_1.pass(), ["b -> x: 1 idle"]);
    let mut fleet_2 = lacking(fleet(&["a", "b", "x"]).idle("a", 9).idle("b", 9));
    fleet_2.cycles(7);
    assert_eq!(fleet_2.pass(), ["a -> x: 1 idle"]);
}

#[test]
fn what_one_need_takes_is_not_there_for_the_next() {
    let fleet = fleet(&["a", "b", "x", "y"]).idle("a", 6).idle("b", 5);
    let fleet = fleet.lacks("x", resources(32, 1)).lacks("y", resources(32, 1));
    let mut fleet = fleet.shortfall("y", |it| it.priority = 99);
    fleet.cycles(7);
    // After the first, a has three to spare and b four.
    assert_eq!(fleet.pass(), ["a -> x: 2 idle", "b -> y: 2 idle"]);
}

#[test]
fn the_dimension_that_takes_most_machines_counts() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 50).lacks("a", resources(100, 400));
    fleet.cycles(7);
    assert_eq!(fleet.pass(), ["b -> a: 13 idle"]);
}

#[test]
fn a_machine_that_holds_not_one_unit_is_of_no_use() {
    let fleet = fleet(&["a", "b"]).idle("b", 50).lacks("a", resources(100, 400));
    let mut fleet = fleet.shortfall("a", |it| it.min_unit = resources(17, 1));
    fleet.cycles(7);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert_eq!(fleet.why(), ["no known type of machine that it accepts holds one unit"]);
}

#[test]
fn capacity_that_could_be_made_is_not_idle() {
    let mut fleet = fleet(&["a", "b"]).quota("b", 50, 20).lacks("a", resources(16, 1));
    fleet.cycles(7);
    assert_eq!(fleet.pass(), ["b -> a: 1 quota"]);
}

#[test]
fn quota_is_cut_anew_before_anybody_is_told_and_the_donor_is_told_first() {
    let fleet = fleet(&["a", "b"]).quota("a", 10, 10).quota("b", 50, 20);
    let mut fleet = fleet.lacks("a", resources(128, 1));
    fleet.cycles(7);
    // They know of their first slices.
    fleet.answer("a", &Ack::Done);
    fleet.answer("b", &Ack::Done);
    assert_eq!(fleet.pass(), ["b -> a: 8 quota"]);
    let slices =
        |fleet: &Fleet| fleet.state.quotas()[&pool("m")].values().copied().collect::<Vec<_>>();
    assert_eq!(slices(&fleet), [18, 42]);
    assert_eq!(fleet.orders("b"), [Order::SetQuota { pool: pool("m"), slice: 42 }]);
    assert_eq!(fleet.orders("a"), []);
    fleet.answer("b", &Ack::Done);
    assert_eq!(fleet.orders("a"), [Order::SetQuota { pool: pool("m"), slice: 18 }]);
    let ended = fleet.answer("a", &Ack::Done);
    assert_eq!(ended.len(), 1);
    assert!(fleet.state.transfers().is_empty());
}

#[test]
fn a_donor_that_uses_its_quota_meanwhile_gets_it_back() {
    let fleet = fleet(&["a", "b"]).quota("a", 10, 10).quota("b", 50, 20);
    let mut fleet = fleet.lacks("a", resources(128, 1));
    fleet.cycles(7);
    fleet.answer("a", &Ack::Done);
    fleet.answer("b", &Ack::Done);
    fleet.pass();
    let ended = fleet.answer("b", &Ack::Refused { reason: AckError::InUse });
    assert_eq!(ended[0].1, plimsoll_model::fleet::TransferEnd::Refused);
    let slices: Vec<u32> = fleet.state.quotas()[&pool("m")].values().copied().collect();
    assert_eq!(slices, [10, 50]);
    assert_eq!(fleet.orders("b"), [Order::SetQuota { pool: pool("m"), slice: 50 }]);
}

/// Nothing idle and no quota: what is left is a drain.
fn starved() -> Fleet {
    fleet(&["a", "b"]).preemptible("b", 5, Some(Bucket(3))).lacks("a", resources(16, 1))
}

#[test]
fn nothing_is_drained_before_the_thirteenth_cycle() {
    let mut fleet = starved();
    fleet.cycles(13);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert!(fleet.why()[0].ends_with("preempt: missing for 12 cycles; drains begin above 12"));
    fleet.cycles(1);
    assert_eq!(fleet.pass(), ["b -> a: 1 drained"]);
}

#[test]
fn what_is_drained_must_matter_less_in_both_ways() {
    for (case, priority, bucket, why) in [
        (
            "as important",
            100,
            Some(Bucket(3)),
            "preempt: what b could drain has priority 100, not below 100",
        ),
        (
            "as dear",
            5,
            Some(Bucket(10)),
            "preempt: what b could drain is in penalty bucket 10, not below 10",
        ),
        ("of unknown price", 5, None, "preempt: interruption penalty not stated"),
    ] {
        let fleet = fleet(&["a", "b"]).preemptible("b", priority, bucket);
        let mut fleet = fleet.lacks("a", resources(16, 1));
        fleet.cycles(20);
        assert_eq!(fleet.pass(), Vec::<String>::new(), "{case}");
        assert!(fleet.why()[0].ends_with(why), "{case}: {:?}", fleet.why());
    }
    let mut fleet = starved().shortfall("a", |it| it.bucket = None);
    fleet.cycles(20);
    assert!(fleet.why()[0].ends_with("preempt: interruption penalty not stated"));
}

#[test]
fn one_need_has_one_drain_however_long_it_takes() {
    let mut fleet = starved();
    fleet.cycles(14);
    let mut begun = Vec::new();
    // Ten minutes of grace, and a pass every 50 s.
    for _ in 0..12 {
        begun.extend(fleet.pass());
        fleet.cycles(5);
    }
    assert_eq!(begun, ["b -> a: 1 drained"]);
}

#[test]
fn a_slow_answer_of_an_idle_donor_is_no_reason_to_drain() {
    let mut fleet = starved().idle("b", 2);
    fleet.cycles(7);
    assert_eq!(fleet.pass(), ["b -> a: 1 idle"]);
    fleet.cycles(7);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert_eq!(fleet.why(), ["on its way in 1 transfer"]);
}

#[test]
fn a_donor_that_never_answers_is_not_waited_for_forever() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 2).lacks("a", resources(16, 1));
    fleet.cycles(7);
    fleet.pass();
    fleet.cycles(8);
    assert_eq!(fleet.state.transfers().len(), 1);
    fleet.cycles(1);
    fleet.pass();
    assert!(fleet.state.transfers().is_empty());
    // Its answer comes after all: what it has set aside is its own again.
    fleet.answer("b", &Ack::Reserved { machines: machines(&["m1"]) });
    assert_eq!(fleet.orders("b"), [Order::Release { machines: machines(&["m1"]) }]);
    assert!(fleet.state.owners().is_empty());
}

#[test]
fn machines_change_hands_in_one_entry_and_both_are_told() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 3).lacks("a", resources(32, 1));
    fleet.cycles(7);
    fleet.pass();
    fleet.answer("b", &Ack::Reserved { machines: machines(&["m1", "m2"]) });
    let owners: Vec<_> =
        fleet.state.owners().values().map(|it| (it.owner.as_str(), it.epoch)).collect();
    assert_eq!(owners, [("a", 1), ("a", 1)]);
    assert_eq!(fleet.orders("b"), [Order::Forget { machines: machines(&["m1", "m2"]) }]);
    let adopted = machines(&["m1", "m2"]).into_iter().map(|id| (id, 1)).collect();
    assert_eq!(fleet.orders("a"), [Order::Adopt { machines: adopted }]);
    assert!(fleet.answer("b", &Ack::Done).is_empty());
    assert_eq!(fleet.answer("a", &Ack::Done)[0].1, plimsoll_model::fleet::TransferEnd::Done);
}

#[test]
fn an_answer_that_is_repeated_changes_nothing() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 3).lacks("a", resources(32, 1));
    fleet.cycles(7);
    fleet.pass();
    let asked = *fleet.state.shards()[&shard("b")].pending.keys().next().unwrap();
    fleet.answer("b", &Ack::Reserved { machines: machines(&["m1", "m2"]) });
    let after = fleet.state.clone();
    let cooldown = Millis(0);
    fleet.write(vec![FleetChange::Acknowledge {
        shard: shard("b"),
        id: asked,
        order: ReportOrder { epoch: 1, cycle: 99 },
        ack: Ack::Reserved { machines: machines(&["m3"]) },
        max_failures: 5,
        cooldown,
    }]);
    assert_eq!(fleet.state, after);
}

#[test]
fn a_failure_is_tried_again_under_the_same_number_and_given_up_after_five() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 3).lacks("a", resources(32, 1));
    fleet.cycles(7);
    fleet.pass();
    let number = |fleet: &Fleet| fleet.state.shards()[&shard("b")].pending.keys().copied().next();
    let first = number(&fleet);
    for _ in 0..4 {
        assert!(fleet.answer("b", &Ack::Failed { reason: AckError::Provider }).is_empty());
        assert_eq!(number(&fleet), first);
    }
    let ended = fleet.answer("b", &Ack::Failed { reason: AckError::Provider });
    assert_eq!(ended[0].1, plimsoll_model::fleet::TransferEnd::GivenUp);
    assert_eq!(number(&fleet), None);
}

#[test]
fn what_says_whose_a_machine_is_is_never_given_up() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 3).lacks("a", resources(32, 1));
    fleet.cycles(7);
    fleet.pass();
    fleet.answer("b", &Ack::Reserved { machines: machines(&["m1", "m2"]) });
    for _ in 0..20 {
        fleet.answer("a", &Ack::Failed { reason: AckError::Provider });
    }
    assert_eq!(fleet.orders("a").len(), 1);
    assert_eq!(fleet.state.transfers().len(), 1);
}

#[test]
fn two_shards_rest_after_a_transfer_either_way() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 9).lacks("a", resources(16, 1));
    fleet.cycles(7);
    fleet.pass();
    fleet.answer("b", &Ack::Reserved { machines: machines(&["m1"]) });
    fleet.answer("b", &Ack::Done);
    fleet.answer("a", &Ack::Done);
    // Now b is short, and a has machines to spare.
    fleet.report("a").shortfalls.clear();
    let mut fleet = fleet.idle("a", 9).idle("b", 0).lacks("b", resources(16, 1));
    fleet.shortfall_age("b", 50);
    fleet.cycles(7);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert!(
        fleet.why()[0].starts_with("idle: a and m in z rest for another 10s"),
        "{:?}",
        fleet.why()
    );
    fleet.cycles(2);
    assert_eq!(fleet.pass(), ["a -> b: 1 idle"]);
}

impl Fleet {
    fn shortfall_age(&mut self, name: &str, age: u64) {
        self.report(name).shortfalls.last_mut().unwrap().age = age;
    }
}

#[test]
fn a_paused_donor_gives_nothing_and_an_answer_that_it_is_paused_ends_the_transfer() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 9).lacks("a", resources(16, 1));
    fleet.report("b").is_paused = true;
    fleet.cycles(7);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    fleet.report("b").is_paused = false;
    fleet.cycles(1);
    assert_eq!(fleet.pass().len(), 1);
    let ended = fleet.answer("b", &Ack::Refused { reason: AckError::Paused });
    assert_eq!(ended[0].1, plimsoll_model::fleet::TransferEnd::Refused);
}

#[test]
fn a_paused_fleet_begins_nothing() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 9).lacks("a", resources(16, 1));
    fleet.write(vec![FleetChange::Pause { is_paused: true }]);
    fleet.cycles(30);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert_eq!(fleet.why(), ["the fleet is paused"]);
}

#[test]
fn an_empty_report_clears_what_was_missing_and_a_late_one_is_ignored() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 9).lacks("a", resources(16, 1));
    fleet.cycles(7);
    let mut late = fleet.report("a").clone();
    fleet.report("a").shortfalls.clear();
    fleet.cycles(1);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert!(fleet.why().is_empty());
    late.order = ReportOrder { epoch: 1, cycle: 7 };
    assert_eq!(fleet.reports.take(late, fleet.now), Ok(false));
    assert!(fleet.why().is_empty());
}

#[test]
fn half_an_hour_without_a_coordinator_is_followed_by_no_burst() {
    let mut fleet = starved();
    fleet.cycles(180);
    // A new leader of the coordinator has heard nothing yet.
    fleet.reports = Reports::default();
    fleet.cycles(1);
    assert_eq!(fleet.pass(), Vec::<String>::new());
    assert_eq!(fleet.why(), ["missing for 0 cycles; served above 5"]);
}

#[test]
fn a_silent_shard_gives_nothing_and_gets_nothing() {
    let mut fleet = fleet(&["a", "b"]).idle("b", 9).lacks("a", resources(16, 1));
    fleet.cycles(7);
    fleet.now = fleet.now.plus(Millis::seconds(31));
    assert_eq!(fleet.coordinate(), FleetDecision::default());
}

#[test]
fn a_machine_that_has_just_been_moved_stays() {
    let mut fleet = fleet(&["a", "b", "c"]).idle("b", 3).lacks("a", resources(16, 1));
    fleet.cycles(7);
    fleet.pass();
    fleet.answer("b", &Ack::Reserved { machines: machines(&["m1"]) });
    fleet.answer("b", &Ack::Done);
    fleet.answer("a", &Ack::Done);
    fleet.report("a").shortfalls.clear();
    let mut fleet = fleet.idle("a", 3).idle("b", 0).lacks("c", resources(16, 1));
    fleet.shortfall_age("c", 50);
    fleet.cycles(7);
    assert_eq!(fleet.pass(), ["a -> c: 1 idle"]);
    let ended = fleet.answer("a", &Ack::Reserved { machines: machines(&["m1"]) });
    assert_eq!(ended[0].1, plimsoll_model::fleet::TransferEnd::Refused);
    assert_eq!(fleet.orders("a"), [Order::Release { machines: machines(&["m1"]) }]);
    assert_eq!(fleet.state.owners()[&MachineId::new("m1").unwrap()].owner, shard("a"));
}

#[test]
fn nobody_gives_away_a_machine_of_somebody_else() {
    let mut fleet = fleet(&["a", "b", "c"]).idle("b", 3).lacks("a", resources(16, 1));
    fleet.cycles(7);
    fleet.pass();
    fleet.answer("b", &Ack::Reserved { machines: machines(&["m1"]) });
    fleet.answer("b", &Ack::Done);
    fleet.answer("a", &Ack::Done);
    let mut fleet = fleet.lacks("c", resources(16, 1));
    fleet.report("a").shortfalls.clear();
    fleet.shortfall_age("c", 50);
    fleet.cycles(20);
    assert_eq!(fleet.pass(), ["b -> c: 1 idle"]);
    // It claims the machine that it gave away.
    let ended = fleet.answer("b", &Ack::Reserved { machines: machines(&["m1"]) });
    assert_eq!(ended[0].1, plimsoll_model::fleet::TransferEnd::Refused);
    assert_eq!(fleet.state.owners()[&MachineId::new("m1").unwrap()].owner, shard("a"));
}

#[test]
fn nothing_is_drained_while_a_donor_that_could_serve_rests() {
    for is_quota in [false, true] {
        let fleet = fleet(&["a", "b", "c"]).preemptible("c", 5, Some(Bucket(3)));
        let mut fleet = if is_quota { fleet.quota("b", 50, 20) } else { fleet.idle("b", 9) };
        fleet.answer("b", &Ack::Done);
        let mut fleet = fleet.lacks("a", resources(16, 1));
        fleet.shortfall_age("a", 50);
        fleet.cycles(14);
        assert_eq!(fleet.pass().len(), 1);
        // The donor gives nothing this time, and rests.
        fleet.answer("b", &Ack::Refused { reason: AckError::InUse });
        fleet.cycles(1);
        assert_eq!(fleet.pass(), Vec::<String>::new());
        let why = fleet.why();
        assert!(
            why[0].contains("rest for another")
                && why[0].ends_with("something cheaper can serve it"),
            "{why:?}"
        );
    }
}
