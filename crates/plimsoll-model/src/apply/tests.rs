use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;

use crate::access::{Authority, DeploymentPattern, Digest, JoinCheck, KeyBytes, Role, Scope};
use crate::audit::{Author, MAX_AUDIT};
use crate::cell_files::{CellFileKind, FileBytes};
use crate::command::{AuditEntry, Change, Command, Guarded, Refusal, Require};
use crate::fleet::FleetChange;
use crate::ids::{
    DeploymentName, FileName, NodeId, RegistryHost, ReplicaId, ServiceKey, ServiceName, Slot,
};
use crate::level::Level;
use crate::node::{Availability, NodeFacts, NodeStatus};
use crate::preemption::{Preemption, Victim, WithdrawReason};
use crate::reason::{AbandonReason, Unplaced, UnplacedReason, WaitReason};
use crate::registries::RegistryPassword;
use crate::replica::{MAX_LEAVING, MoveCause, Observation, ObservedState};
use crate::review::{MoveReview, MovingLoop, ReviewResult};
use crate::schedule::{Cron, MissReason, MissedSlots, Schedule};
use crate::spec::{RouteSpec, ServiceSpec, Tls};
use crate::state::{MAX_REPLICAS, MAX_REVISION_BYTES, MAX_REVISIONS, State};
use crate::testkit::{Cell, cell, cpus, global, node_id, pack, replica_id, service_key, spread};
use crate::transition::Writer;
use crate::units::{Generation, Millis, Resources, Revision, Term, Timestamp};

fn bytes(state: &State) -> Vec<u8> {
    postcard::to_stdvec(state).unwrap()
}

// Few names, so that random commands meet each other.
fn any_node() -> impl Strategy<Value = NodeId> {
    select(vec!["ash", "1", "c-1"]).prop_map(node_id)
}

fn any_service() -> impl Strategy<Value = ServiceKey> {
    select(vec!["shop/web", "shop/db", "shop-web/c", "blog/web"]).prop_map(service_key)
}

fn any_replica() -> impl Strategy<Value = ReplicaId> {
    let slot = prop_oneof![(1_u32..5).prop_map(Slot::Index), any_node().prop_map(Slot::Node)];
    (any_service(), slot).prop_map(|(service, slot)| ReplicaId::new(service, slot))
}

fn scheduled(mut spec: ServiceSpec) -> ServiceSpec {
    spec.schedule = Some(Schedule::new(Cron::parse("* * * * *").unwrap(), None));
    spec
}

fn any_run() -> impl Strategy<Value = Change> {
    let slots = || (0_u64..10_000_000).prop_map(Timestamp);
    let start = (any_service(), proptest::option::of(slots()))
        .prop_map(|(service, slot)| Change::StartRun { service, slot });
    let missed = (any_service(), slots()).prop_map(|(service, last)| {
        let missed = MissedSlots { first: last, last, count: 1, why: MissReason::TooLate };
        Change::MissSlots { service, missed }
    });
    prop_oneof![2 => start, 1 => missed]
}

fn any_spec() -> impl Strategy<Value = Arc<ServiceSpec>> {
    let specs = vec![
        spread(2),
        spread(3).image("app:2"),
        pack(2).reserve(500, 64),
        global().host_port(80),
        spread(1).secret("db", 1),
        scheduled(spread(2)),
        scheduled(spread(1).image("app:2")),
        spread(MAX_REPLICAS + 1),
    ];
    select(specs).prop_map(Arc::new)
}

fn any_route() -> impl Strategy<Value = RouteSpec> {
    let (hosts, paths) = (select(vec![None, Some("shop.example")]), select(vec!["/", "/a"]));
    (hosts, paths, select(vec!["web", "db"]))
        .prop_map(|(host, path, service)| route(host, path, service))
}

/// A route as a file asks for it.
fn route(host: Option<&str>, path: &str, service: &str) -> RouteSpec {
    RouteSpec {
        host: host.map(str::to_owned),
        path: path.to_owned(),
        strip_path: false,
        service: ServiceName::new(service).unwrap(),
        port: 80,
        tls: Tls::Off,
    }
}

fn any_deploy() -> impl Strategy<Value = Change> {
    let names = select(vec!["shop", "shop-web", "blog"]);
    let services = prop::collection::btree_map(select(vec!["web", "db", "c"]), any_spec(), 0..3);
    let routes = prop::collection::vec(any_route(), 0..2);
    (names, services, routes).prop_map(|(deployment, services, routes)| Change::Deploy {
        routes,
        deployment: DeploymentName::new(deployment).unwrap(),
        services: services
            .into_iter()
            .map(|(name, spec)| (ServiceName::new(name).unwrap(), spec))
            .collect::<BTreeMap<_, _>>(),
    })
}

fn any_observed() -> impl Strategy<Value = Observation> {
    use ObservedState::{Degraded, Failed, Pending, Pulling, Running, Starting, Stopped};
    let states = vec![Pending, Pulling, Starting, Running, Degraded, Failed, Stopped];
    (select(states), 0_u64..9).prop_map(|(state, at)| Observation {
        state,
        code: None,
        at: Timestamp(at),
    })
}

fn any_file_change() -> impl Strategy<Value = Change> {
    let content = select(vec![&b"one"[..], b"two"]).prop_map(|it| FileBytes::from(it.to_vec()));
    let name = select(vec!["db", "key"]).prop_map(|it| FileName::new(it).unwrap());
    (0..3, select(CellFileKind::ALL.to_vec()), name, content).prop_map(
        |(which, kind, name, content)| match which {
            0 => Change::CreateFile { kind, name, content },
            1 => Change::RotateFile { kind, name, content },
            _ => Change::RemoveFile { kind, name },
        },
    )
}

fn any_registry_change() -> impl Strategy<Value = Change> {
    let host = select(vec!["a.example", "b.example:5000"]);
    let host = host.prop_map(|it| RegistryHost::new(it).unwrap());
    let password = select(vec!["one", "two", ""]).prop_map(RegistryPassword::new);
    (any::<bool>(), host, password).prop_map(|(is_login, registry, password)| {
        if is_login {
            Change::LoginRegistry { registry, user: "ci".to_owned(), password }
        } else {
            Change::LogoutRegistry { registry }
        }
    })
}

fn any_declaration() -> impl Strategy<Value = Change> {
    let paths = prop::collection::btree_set(select(vec!["/a", "/b", "c"]), 0..3);
    let paths = paths.prop_map(|paths| paths.into_iter().map(str::to_owned).collect());
    (any_service(), any_spec(), any_node(), paths).prop_map(|(service, spec, node, paths)| {
        Change::DeclareVolumes { service, spec: spec.hash, node, paths }
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    let hash = any_spec().prop_map(|spec| spec.hash).boxed();
    let cause = select(vec![MoveCause::NodeLost, MoveCause::Misplaced, MoveCause::Outdated]);
    let availability =
        select(vec![Availability::Active, Availability::Cordoned, Availability::Draining]);
    let unplaced = select(vec![
        None,
        Some(Unplaced { missing: 1, why: UnplacedReason::NoNodes, since: Timestamp(1) }),
    ]);
    prop_oneof![
        4 => (any_node(), 1_u64..3)
            .prop_map(|(node, n)| Change::PutNode { node, facts: cpus(n) }),
        1 => (any_node(), select(vec![NodeStatus::Ready, NodeStatus::Down]))
            .prop_map(|(node, status)| Change::SetStatus { node, status }),
        1 => (any_node(), select(vec![None, Some("no socket".to_owned())]))
            .prop_map(|(node, outage)| Change::SetRuntime { node, outage }),
        1 => (any_node(), availability)
            .prop_map(|(node, availability)| Change::SetAvailability { node, availability }),
        1 => any_node().prop_map(|node| Change::RemoveNode { node }),
        4 => any_deploy(),
        1 => any_deploy().prop_map(|change| Change::Undeploy {
            deployment: change.deployment().unwrap().clone()
        }),
        6 => (any_replica(), any_node(), hash.clone())
            .prop_map(|(replica, node, spec)| Change::Place { replica, node, spec }),
        4 => (any_replica(), any_node(), hash, cause)
            .prop_map(|(replica, node, spec, cause)| Change::Succeed { replica, node, spec, cause }),
        2 => any_replica().prop_map(|replica| Change::Promote { replica }),
        1 => any_replica().prop_map(|replica| Change::Abandon { replica, why: AbandonReason::Needless }),
        2 => any_replica().prop_map(|replica| Change::Retire { replica }),
        1 => any_replica().prop_map(|replica| Change::Renew { replica }),
        2 => any_access(),
        2 => any_preemption(),
        2 => any_declaration(),
        2 => any_run(),
        6 => (any_replica(), 1_u64..20, any_observed()).prop_map(|(replica, g, observation)| {
            Change::Observe { replica, generation: Generation(g), observation }
        }),
        1 => (any_service(), unplaced)
            .prop_map(|(service, unplaced)| Change::SetUnplaced { service, unplaced }),
        1 => (any_replica(), select(vec![None, Some(WaitReason::Stateful)]))
            .prop_map(|(replica, waiting)| Change::SetWaiting { replica, waiting }),
    ]
}

/// Room that is freed, a victim that is stopped, and room that is no longer freed.
fn any_preemption() -> impl Strategy<Value = Change> {
    let begun = (any_node(), any_replica(), any_replica(), 1_u64..20);
    let begun = begun.prop_map(|(node, by, victim, generation)| {
        let (priority, penalty) = (0, 0);
        let (generation, until) = (Generation(generation), Timestamp(600_000));
        let preemption = Preemption {
            by,
            priority: 10,
            request: Resources::NONE,
            ports: Vec::new(),
            victims: [(victim, Victim { generation, priority, penalty, until })].into(),
            began: Timestamp(0),
        };
        Change::Preempt { node, preemption: Box::new(preemption) }
    });
    prop_oneof![
        3 => begun,
        1 => any_replica().prop_map(|replica| Change::Evict { replica }),
        1 => any_node().prop_map(|node| {
            let why = WithdrawReason::NotNeeded;
            Change::WithdrawPreemption { node, why }
        }),
    ]
}

fn any_access() -> impl Strategy<Value = Change> {
    let digest = (0_u8..4).prop_map(|byte| Digest([byte; 32])).boxed();
    let name = select(vec!["ann".to_owned(), "bob".to_owned()]).boxed();
    let authority =
        (0_u8..2).prop_map(|byte| Authority { certificate: vec![byte], key: vec![byte] });
    let authority = authority.boxed();
    prop_oneof![
        any_rotation(authority.clone()),
        (authority, any_node(), digest.clone()).prop_map(|(authority, node, key)| Change::Found {
            authority,
            node,
            key
        }),
        (name.clone(), digest.clone(), 0_u64..1_000).prop_map(|(name, token, at)| {
            Change::CreateJoinToken { name, token, expires_at: Timestamp(at) }
        }),
        name.clone().prop_map(|name| Change::RevokeJoinToken { name }),
        (digest.clone(), any_node(), digest.clone()).prop_map(|(token, node, key)| Change::Join {
            token,
            node,
            facts: cpus(2),
            key
        }),
        (any_node(), digest.clone()).prop_map(|(node, key)| Change::Enrol {
            node,
            facts: cpus(2),
            key
        }),
        (name.clone(), digest, select(Role::ALL.to_vec()), prop::option::of(0_u64..1_000))
            .prop_map(|(name, token, role, at)| {
                let scope = [DeploymentPattern::new("shop-*").unwrap()].into_iter().collect();
                Change::PutOperator { name, token, role, scope, expires_at: at.map(Timestamp) }
            }),
        name.prop_map(|name| Change::RevokeOperator { name }),
        (any::<bool>(), 0_u8..2).prop_map(|(is_first, byte)| {
            let secret = KeyBytes([byte; 32]);
            if is_first {
                Change::CreateBackupKey { secret }
            } else {
                Change::RotateBackupKey { secret }
            }
        }),
        any_file_change(),
        any_registry_change(),
        any_fleet_change(),
        (any::<bool>(), prop::option::of(0_u32..100)).prop_map(|(is_paused, target)| {
            let target = target.map(crate::Pressure::percent);
            let settings = crate::reschedule::RescheduleSettings { is_paused, target };
            Change::SetRescheduling { settings }
        }),
        any_review(),
        any_machine_change(),
        (any_node(), 0_u64..9, prop::option::of(any_node())).prop_map(|(node, server, lost)| {
            Change::Survive { node, server, lost: lost.into_iter().collect() }
        }),
    ]
}

/// Few machines, instructions and cycles, so that changes meet.
fn any_machine_change() -> impl Strategy<Value = Change> {
    use crate::fleet::{Ack, AckError, InstructionId, TransferId};
    use crate::machines::{Deed, MachineChange, MachineState, tests as few};
    let machine = (0_u8..3).prop_map(|nth| few::machine(&format!("m{nth}"))).boxed();
    let state = select(MachineState::ALL.to_vec()).boxed();
    let class = (0_u64..3).prop_map(few::class).boxed();
    let id = (0_u64..5).prop_map(InstructionId).boxed();
    let deed = (machine.clone(), 0_u8..8, 0_u32..3).prop_map(|(machine, kind, number)| {
        let (machines, until) =
            (std::collections::BTreeSet::from([machine.clone()]), Timestamp(500));
        match kind {
            0 => Deed::Reserve { machines, until },
            1 => Deed::Drain { machines, until },
            2 => Deed::Forget { machines },
            3 => Deed::Adopt { machines: [(machine, number)].into() },
            4 => Deed::Release { machines },
            5 => Deed::SetQuota { pool: few::class(1).pool, slice: number },
            6 => Deed::Refuse { reason: AckError::Paused },
            _ => Deed::Fail { reason: AckError::InUse },
        }
    });
    let change = prop_oneof![
        4 => (machine.clone(), class.clone(), state.clone(), 0_u32..3).prop_map(
            |(machine, class, state, epoch)| MachineChange::Put { machine, class, state, epoch }
        ),
        1 => machine.clone().prop_map(|machine| MachineChange::Drop { machine }),
        6 => (machine.clone(), state.clone(), state)
            .prop_map(|(machine, from, to)| MachineChange::Step { machine, from, to }),
        1 => machine.clone().prop_map(|machine| MachineChange::Unreserve { machine }),
        1 => machine.clone().prop_map(|machine| {
            let (transfer, until) = (TransferId(9), Timestamp(700));
            MachineChange::Reserve { machine, transfer, until }
        }),
        1 => any::<bool>().prop_map(|is_paused| MachineChange::Pause { is_paused }),
        2 => (1_u64..4, 0_u64..3).prop_map(|(cycle, cpus)| few::close(cycle, cpus)),
        4 => (0_u64..3, id.clone(), deed).prop_map(|(term, id, deed)| MachineChange::Obey {
            term: Term(term),
            id,
            transfer: TransferId(id.0),
            deed,
        }),
        1 => id.clone().prop_map(|id| MachineChange::Finish { id, ack: Ack::Done }),
        2 => (id.clone(), machine, class)
            .prop_map(|(id, machine, class)| MachineChange::Adopted { id, machine, class }),
        1 => id.prop_map(|id| MachineChange::Heard { ids: [id].into() }),
    ];
    change.prop_map(|change| Change::Machines { change: Box::new(change) })
}

/// Steps of a coordinator, whether or not the cell is one, and of a cell that joins a fleet.
fn any_fleet_change() -> impl Strategy<Value = Change> {
    use crate::fleet::{FleetMembership, MembershipChange, ShardId};
    let key = |byte: u8| Digest([byte; 32]);
    let shard = |byte: u8| ShardId::new(format!("s{byte}")).unwrap();
    let set = |byte: u8| MembershipChange::Set {
        membership: Box::new(FleetMembership {
            shard: ShardId::new("s").unwrap(),
            coordinator: crate::CellId::new("hub").unwrap(),
            servers: BTreeMap::new(),
            key: crate::acme::SecretKey::new(vec![byte / 2]),
            certificate: vec![byte],
            authorities: Vec::new(),
            joined_at: Timestamp(0),
        }),
    };
    (0_u8..9, 0_u8..3, 0_u64..1_000).prop_map(move |(kind, byte, at)| {
        let change = match kind {
            0 | 1 => FleetChange::Begin,
            2 | 3 => {
                let expires_at = Timestamp(at);
                FleetChange::CreateToken { shard: shard(byte), token: key(byte), expires_at }
            }
            4 => FleetChange::Enrol { token: key(byte), shard: shard(byte), key: key(byte) },
            5 => FleetChange::Expel { shard: shard(byte) },
            6 => FleetChange::Pause { is_paused: byte == 0 },
            7 => return Change::FleetMembership { change: set(byte) },
            _ => return Change::FleetMembership { change: MembershipChange::Leave },
        };
        Change::Fleet { change: Box::new(change) }
    })
}

#[test]
fn a_coordinator_takes_no_deployment_and_a_cell_with_one_is_no_coordinator() {
    let begin = || Change::Fleet { change: Box::new(FleetChange::Begin) };
    let mut coordinator = cell();
    coordinator.change(Writer::Operator, begin());
    let deploy = Change::Deploy {
        deployment: replica_id("shop/web/1").service.deployment,
        services: BTreeMap::new(),
        routes: Vec::new(),
    };
    let command = |change: Change| {
        Command::new(
            Timestamp(1),
            Term(1),
            Author::new(Writer::Operator, "ann"),
            vec![change.free()],
        )
    };
    let refused = coordinator.state.apply(&command(deploy.clone())).unwrap_err().reason;
    assert_eq!(refused, Refusal::Coordinator);
    let mut busy = cell();
    busy.state.apply(&command(deploy)).unwrap();
    let refused = busy.state.apply(&command(begin())).unwrap_err().reason;
    assert_eq!(refused, Refusal::CellInUse { deployments: 1 });
    let pause = Change::Fleet { change: Box::new(FleetChange::Pause { is_paused: true }) };
    let refused = busy.state.apply(&command(pause)).unwrap_err().reason;
    assert_eq!(refused, Refusal::NotCoordinator);
}

/// A move that a loop begins, and what came of one.
fn any_review() -> impl Strategy<Value = Change> {
    (any_node(), any_node(), 0_u64..1_000, 0_u32..3).prop_map(|(src, dst, began, gain)| {
        let replica = replica_id("shop/web/1");
        let began = Timestamp(began);
        if gain == 0 {
            let relief = crate::Pressure::percent(20);
            let relief = crate::rebalance::Relief {
                replica,
                src,
                dst,
                dominant: crate::rebalance::Dimension::Cpu,
                relief,
                score: 0,
                move_cost: relief,
                src_before: relief,
                src_after: relief,
                dst_before: relief,
                dst_after: relief,
                refused: Vec::new(),
            };
            return Change::Record { entry: AuditEntry::Relieve(Box::new(relief)) };
        }
        let result = ReviewResult::Realised { gain: i64::from(gain) };
        let by = MovingLoop::Rebalancer;
        let review = MoveReview { replica, src, dst, began, by, predicted: 3, result };
        Change::ReviewMove { review: Box::new(review) }
    })
}

fn any_rotation(authority: BoxedStrategy<Authority>) -> impl Strategy<Value = Change> {
    let nodes = prop::collection::vec(any_node(), 0..2).boxed();
    prop_oneof![
        2 => (authority, nodes.clone())
            .prop_map(|(next, without)| Change::RotateAuthority { next, without }),
        1 => nodes.prop_map(|nodes| Change::RotateWithout { nodes }),
        4 => (any_node(), 0_u64..6)
            .prop_map(|(node, epoch)| Change::ConfirmAuthority { node, epoch }),
        2 => select(vec![Change::SwitchAuthority, Change::RetireAuthority, Change::AbortRotation]),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    let require = prop_oneof![
        8 => Just(Require::Nothing),
        1 => prop::option::of(1_u64..20).prop_map(|g| Require::Generation(g.map(Generation))),
        1 => prop::option::of(1_u32..5).prop_map(|r| Require::Revision(r.map(Revision))),
    ];
    let guarded =
        (require, any_change()).prop_map(|(require, change)| Guarded { require, change }).boxed();
    let writer = select(vec![
        Writer::Operator,
        Writer::Liveness,
        Writer::Scheduler,
        Writer::Agent,
        Writer::Shard,
        Writer::Provider,
    ]);
    let batch = prop_oneof![
        3 => prop::collection::vec(guarded.clone(), 1..2),
        1 => prop::collection::vec(guarded, 2..5),
    ];
    (0_u64..1_000, writer, batch).prop_map(|(at, writer, batch)| {
        Command::new(Timestamp(at), Term(1), Author::new(writer, "any"), batch)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_promises_of_apply(history in prop::collection::vec(any_command(), 1..80)) {
        let (mut one, mut two) = (cell().state, cell().state);
        for command in &history {
            let before = bytes(&one);
            // Total: whatever the command, this returns.
            let outcome = one.apply(command);
            let changed = bytes(&one) != before;
            let told = outcome.is_ok_and(|events| !events.is_empty());
            prop_assert_eq!(changed, told, "a refused batch changes nothing; events tell of every change");
            let _ = two.apply(command);
            prop_assert_eq!(bytes(&one), bytes(&two), "equal histories give equal bytes");
            let (loads, unplaced, moving, prefixes) = one.derive();
            prop_assert_eq!(&one.loads, &loads, "what is derived stays true");
            prop_assert_eq!((&one.unplaced, &one.prefixes), (&unplaced, &prefixes));
            prop_assert_eq!((&one.moving, &one.draining), (&moving, &one.derive_draining()));
            for service in one.services().values() {
                prop_assert_eq!(service.quiescence, service.derive_quiescence());
            }
            for (_, replica) in one.replicas() {
                prop_assert!(replica.leaving.len() <= MAX_LEAVING);
                prop_assert!(!replica.is_empty());
                let held: Vec<_> = replica.holds().map(|a| a.generation).collect();
                prop_assert!(replica.observed.keys().all(|g| held.contains(g)), "reports of what is gone go too");
            }
            let mut names: Vec<String> = one.replicas().map(|(id, _)| id.to_string()).collect();
            let all = names.len();
            names.sort();
            names.dedup();
            prop_assert_eq!(all, names.len(), "no two replicas go by one name");
        }
        let read: State = postcard::from_bytes(&bytes(&one)).unwrap();
        prop_assert_eq!(&read, &one, "what is written reads back whole");
        let json = serde_json::to_string(&one).unwrap();
        prop_assert_eq!(&serde_json::from_str::<State>(&json).unwrap(), &one);
    }

    #[test]
    fn a_repeated_write_emits_nothing(history in prop::collection::vec(any_command(), 1..60)) {
        let mut state = cell().state;
        for command in &history {
            let states = |c: &Guarded| matches!(
                c.change,
                Change::PutNode { .. } | Change::SetStatus { .. } | Change::SetAvailability { .. }
                    | Change::Deploy { .. } | Change::Observe { .. } | Change::SetUnplaced { .. }
                    | Change::SetWaiting { .. }
            );
            let repeatable = command.batch.len() == 1
                && states(&command.batch[0])
                && command.batch[0].require == Require::Nothing;
            if state.apply(command).is_ok() && repeatable {
                let before = bytes(&state);
                let later = Command { at: Timestamp(command.at.0 + 1), ..command.clone() };
                prop_assert_eq!(state.apply(&later).unwrap(), vec![], "{:?}", command);
                prop_assert_eq!(bytes(&state), before);
            }
        }
    }
}

#[test]
fn a_batch_commits_whole_or_names_the_change_that_failed() {
    let mut cell = cell().node("ash", cpus(4)).deploy("shop", [("web", spread(2))]);
    let spec = cell.state.service(&service_key("shop/web")).unwrap().row.desired.unwrap();
    let place = |index: &str, node: &str| {
        Change::Place { replica: replica_id(index), node: node_id(node), spec }.free()
    };
    let before = cell.state.clone();
    let batch = vec![place("shop/web/1", "ash"), place("shop/web/2", "birch")];
    let rejection = cell.apply(Writer::Scheduler, batch).unwrap_err();
    assert_eq!(rejection.to_string(), "change 1 of the batch was refused: there is no node birch");
    assert_eq!(cell.state, before);
}

#[test]
fn a_change_decided_on_an_older_generation_is_refused() {
    let mut cell = cell().node("ash", cpus(4)).deploy("shop", [("web", spread(1))]);
    let spec = cell.state.service(&service_key("shop/web")).unwrap().row.desired.unwrap();
    let replica = replica_id("shop/web/1");
    cell.change(
        Writer::Scheduler,
        Change::Place { replica: replica.clone(), node: node_id("ash"), spec },
    );
    let retire = Change::Retire { replica }.at_generation(Some(Generation(7)));
    let rejection = cell.apply(Writer::Scheduler, vec![retire]).unwrap_err();
    assert_eq!(
        rejection.to_string(),
        "change 0 of the batch was refused: it was decided on g7 of shop-web-1, which is now at g1"
    );
}

#[test]
fn a_report_of_one_generation_says_nothing_of_another() {
    let mut cell = cell().node("ash", cpus(4)).deploy("shop", [("web", spread(1))]);
    let spec = cell.state.service(&service_key("shop/web")).unwrap().row.desired.unwrap();
    let (replica, node) = (replica_id("shop/web/1"), node_id("ash"));
    cell.change(
        Writer::Scheduler,
        Change::Place { replica: replica.clone(), node: node.clone(), spec },
    );
    cell.report(&replica, Generation(1), ObservedState::Running, None);
    let cause = MoveCause::Misplaced;
    cell.change(Writer::Scheduler, Change::Succeed { replica: replica.clone(), node, spec, cause });
    let row = cell.state.replica(&replica).unwrap();
    let successor = &row.successor.as_ref().unwrap().assignment;
    assert!(row.is_running() && !row.runs(successor));
    cell.report(&replica, Generation(99), ObservedState::Failed, None);
    assert!(
        cell.state.replica(&replica).unwrap().is_running(),
        "a report of no known generation is late"
    );
}

#[test]
fn a_replica_that_leaves_holds_its_room_until_it_stopped() {
    let mut cell =
        cell().node("ash", cpus(4)).deploy("shop", [("web", spread(1).reserve(500, 64))]);
    let spec = cell.state.service(&service_key("shop/web")).unwrap().row.desired.unwrap();
    let replica = replica_id("shop/web/1");
    cell.change(
        Writer::Scheduler,
        Change::Place { replica: replica.clone(), node: node_id("ash"), spec },
    );
    cell.change(Writer::Scheduler, Change::Retire { replica: replica.clone() });
    let load = cell.state.load(&node_id("ash")).unwrap();
    assert_eq!((load.reserved.cpu.0, load.replicas), (500, 0));
    cell.report(&replica, Generation(1), ObservedState::Stopped, None);
    assert!(cell.state.load(&node_id("ash")).is_none());
    assert!(cell.state.replica(&replica).is_none());
}

#[test]
fn two_replicas_never_go_by_one_name() {
    let mut cell = cell()
        .node("ash", cpus(4))
        .deploy("a", [("b-c", spread(1))])
        .deploy("a-b", [("c", spread(1))]);
    let spec = spread(1).hash;
    let place = |id: &str| Change::Place { replica: replica_id(id), node: node_id("ash"), spec };
    cell.change(Writer::Scheduler, place("a/b-c/1"));
    let rejection = cell.apply(Writer::Scheduler, vec![place("a-b/c/1").free()]).unwrap_err();
    assert!(matches!(rejection.reason, Refusal::IdTaken { .. }), "{rejection}");
    assert_eq!(cell.state.find_replica("a-b-c-1"), Some(replica_id("a/b-c/1")));
}

#[test]
fn history_and_audit_are_bounded() {
    let mut cell = cell();
    for i in 0..MAX_REVISIONS + 5 {
        cell = cell.deploy("shop", [("web", spread(1).image(&format!("app:{i}")))]);
    }
    let name = DeploymentName::new("shop").unwrap();
    let shop = &cell.state.deployments()[&name];
    assert_eq!(shop.history.len(), MAX_REVISIONS);
    assert_eq!(shop.revision, Revision(u32::try_from(MAX_REVISIONS).unwrap() + 5));
    for i in 0..=MAX_AUDIT as u64 {
        cell.change(
            Writer::Operator,
            Change::PutNode { node: node_id("ash"), facts: cpus(1 + i % 2) },
        );
    }
    assert_eq!(cell.state.audit().events().len(), MAX_AUDIT);
    let last = cell.state.audit().next_seq() - 1;
    assert_eq!(cell.state.audit().since(last).count(), 1);
}

#[test]
fn a_revision_is_bounded_in_bytes_and_what_is_refused_changes_nothing() {
    let mut cell = cell().deploy("shop", [("web", spread(1))]);
    let before = cell.state.clone();
    let image = "x".repeat(usize::try_from(MAX_REVISION_BYTES).unwrap());
    let services = [(ServiceName::new("web").unwrap(), Arc::new(spread(1).image(&image)))];
    let deployment = DeploymentName::new("shop").unwrap();
    let large = Change::Deploy { deployment, services: services.into(), routes: Vec::new() };
    let refused = cell.apply(Writer::Operator, vec![large.free()]).unwrap_err().reason;
    let Refusal::Quota { what, found, max } = &refused else { panic!("{refused}") };
    assert_eq!((what.as_str(), *max), ("this revision of shop", MAX_REVISION_BYTES));
    assert!(*found > *max && *found < *max + 10_000, "{refused}");
    assert_eq!(cell.state, before);
}

#[test]
fn a_level_is_written_once_every_server_reads_it_and_never_sinks() {
    let mut cell = cell().node("ash", cpus(4));
    let (next, by) = (Level(Level::FIRST.0 + 1), Author::new(Writer::Operator, "ann"));
    let put = Change::PutNode { node: node_id("birch"), facts: cpus(4) };
    let early = Command::new(Timestamp(1), Term(1), by, vec![put.free()]);
    assert_eq!(early.level, Level::FIRST, "a command asks for no more than it needs");
    let early = Command { level: next, ..early };
    let refused = cell.state.apply(&early).unwrap_err().reason;
    assert_eq!(refused, Refusal::Level { needed: next, cell: Level::FIRST });

    let raise = |level| Change::Raise { level }.free();
    let removal = Change::RemoveNode { node: node_id("nowhere") };
    assert!(cell.apply(Writer::Scheduler, vec![raise(next), removal.free()]).is_err());
    assert_eq!(cell.state.level(), Level::FIRST, "a refused batch raises nothing");
    cell.apply(Writer::Scheduler, vec![raise(next)]).unwrap();
    let events = cell.state.audit().events().len();
    cell.apply(Writer::Scheduler, vec![raise(next), raise(Level::FIRST)]).unwrap();
    assert_eq!((cell.state.level(), cell.state.audit().events().len()), (next, events));
    assert!(cell.state.apply(&early).is_ok());
}

#[test]
fn a_state_that_this_build_cannot_read_is_refused() {
    let text = serde_json::to_string(&cell().state).unwrap();
    let newer = text.replace("{\"level\":1,", "{\"level\":9,");
    let error = serde_json::from_str::<State>(&newer).unwrap_err().to_string();
    assert!(error.starts_with("it is of level 9, this plimsoll reads up to level"), "{error}");
}

#[test]
fn only_the_component_that_owns_an_edge_may_take_it() {
    let mut cell = cell().node("ash", cpus(4));
    let down = Change::SetStatus { node: node_id("ash"), status: NodeStatus::Down };
    let rejection = cell.apply(Writer::Operator, vec![down.clone().free()]).unwrap_err();
    assert_eq!(
        rejection.reason.to_string(),
        "node ash cannot go from ready to down by the operator"
    );
    assert!(cell.apply(Writer::Liveness, vec![down.free()]).is_ok());
}

#[test]
fn a_join_token_serves_one_node_once_and_in_time() {
    let mut cell = cell().node("ash", cpus(4));
    let digest = |byte: u8| Digest([byte; 32]);
    let (by, hour) = (Writer::Operator, Millis::minutes(60));
    let join = |token: u8, node: &str, key: u8| Change::Join {
        token: digest(token),
        node: node_id(node),
        facts: cpus(2),
        key: digest(key),
    };
    let expires_at = cell.now.plus(hour);
    for token in 1..=3 {
        let name = format!("token-{token}");
        cell.change(by, Change::CreateJoinToken { name, token: digest(token), expires_at });
    }
    let refused =
        |cell: &mut Cell, change: Change| cell.apply(by, vec![change.free()]).unwrap_err().reason;
    assert_eq!(refused(&mut cell, join(9, "birch", 1)), Refusal::TokenUnknown);
    let may = |cell: &Cell, token: u8, node: &str, key: u8| {
        cell.state.may_join(&digest(token), &node_id(node), digest(key), cell.now)
    };
    assert_eq!(may(&cell, 9, "birch", 1), Err(Refusal::TokenUnknown), "it can be asked before");
    assert_eq!(may(&cell, 1, "birch", 1), Ok(JoinCheck::New));
    assert_eq!(
        refused(&mut cell, join(1, "ash", 1)),
        Refusal::NameTaken { node: node_id("ash") },
        "and the token is not used up"
    );
    cell.change(by, join(1, "birch", 1));
    assert_eq!(cell.change(by, join(1, "birch", 1)), vec![], "the same node asks again");
    assert_eq!(may(&cell, 1, "birch", 1), Ok(JoinCheck::Repeated));
    assert_eq!(may(&cell, 1, "cedar", 1), Err(Refusal::TokenUsed { by: node_id("birch") }));
    assert_eq!(
        refused(&mut cell, join(1, "birch", 2)),
        Refusal::TokenUsed { by: node_id("birch") },
        "another that says it is that node does not get in"
    );
    let number = |cell: &Cell| cell.state.node(&node_id("birch")).unwrap().server;
    let first = number(&cell);
    let mut cell = cell.down("birch");
    cell.change(by, join(2, "birch", 3));
    assert!(number(&cell) > first, "a node that lost everything comes back as another server");
    let birch = cell.state.node(&node_id("birch")).unwrap();
    assert_eq!((birch.status, birch.joined_at), (NodeStatus::Ready, cell.now), "as any that joins");
    let mut cell = cell.later(hour);
    assert_eq!(refused(&mut cell, join(3, "cedar", 4)), Refusal::TokenExpired { ago: Millis(0) });
}

#[test]
fn a_join_token_goes_by_its_name_until_it_is_used_revoked_or_has_run_out() {
    let mut cell = cell().node("ash", cpus(4));
    let (by, digest) = (Writer::Operator, |byte: u8| Digest([byte; 32]));
    let expires_at = cell.now.plus(Millis::minutes(60));
    let create = |token: u8| Change::CreateJoinToken {
        name: "elm".into(),
        token: digest(token),
        expires_at,
    };
    let revoke = || Change::RevokeJoinToken { name: "elm".to_owned() };
    let join = |token| Change::Join { token, node: node_id("elm"), facts: cpus(2), key: digest(8) };
    let refused =
        |cell: &mut Cell, change: Change| cell.apply(by, vec![change.free()]).unwrap_err().reason;
    let (taken, gone) = (
        Refusal::JoinTokenExists { name: "elm".to_owned() },
        Refusal::NoSuchJoinToken { name: "elm".to_owned() },
    );
    assert_eq!(refused(&mut cell, revoke()), gone);
    cell.change(by, create(1));
    assert_eq!(cell.change(by, create(1)), vec![], "the same again");
    assert_eq!(refused(&mut cell, create(2)), taken);
    cell.change(by, revoke());
    assert_eq!(refused(&mut cell, join(digest(1))), Refusal::TokenRevoked);
    assert_eq!(refused(&mut cell, revoke()), gone, "it was good once");
    cell.change(by, create(2));
    cell.change(by, join(digest(2)));
    assert_eq!(refused(&mut cell, revoke()), gone, "a node has used it");
    cell.change(by, create(3));
    let mut cell = cell.later(Millis::minutes(60));
    assert_eq!(refused(&mut cell, revoke()), gone, "it has run out");
}

#[test]
fn an_operator_whose_token_has_run_out_makes_way_for_another_of_the_name() {
    let mut cell = cell().node("ash", cpus(4));
    let by = Writer::Operator;
    let put = |byte: u8, expires_at| Change::PutOperator {
        name: "ann".to_owned(),
        token: Digest([byte; 32]),
        role: Role::Read,
        scope: Scope::default(),
        expires_at,
    };
    let until = Some(cell.now.plus(Millis::minutes(60)));
    cell.change(by, put(1, until));
    assert_eq!(cell.change(by, put(1, until)), vec![], "the same again");
    let reason = cell.apply(by, vec![put(2, None).free()]).unwrap_err().reason;
    assert_eq!(reason, Refusal::OperatorExists { name: "ann".to_owned() });
    let mut cell = cell.later(Millis::minutes(60));
    let (name, ann) = cell.state.access().operator(&Digest([1; 32])).unwrap();
    assert!(name == "ann" && ann.has_expired(cell.now), "it is told from one that was never there");
    cell.change(by, put(2, None));
    assert_eq!(cell.state.access().operator(&Digest([1; 32])), None);
    let (_, ann) = cell.state.access().operator(&Digest([2; 32])).unwrap();
    assert!(!ann.has_expired(Timestamp(u64::MAX)));
}

#[test]
fn the_key_of_a_node_that_left_or_came_back_empty_is_refused_from_then_on() {
    let mut cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
    let (by, digest) = (Writer::Operator, |byte: u8| Digest([byte; 32]));
    let authority = Authority { certificate: vec![1], key: vec![1] };
    cell.change(by, Change::Found { authority, node: node_id("ash"), key: digest(1) });
    let expires_at = cell.now.plus(Millis::minutes(60));
    for (token, key) in [(10, 2), (11, 3)] {
        let (token, node) = (digest(token), node_id("birch"));
        let status = NodeStatus::Down;
        cell.change(Writer::Liveness, Change::SetStatus { node: node.clone(), status });
        let name = format!("token-{key}");
        cell.change(by, Change::CreateJoinToken { name, token, expires_at });
        cell.change(by, Change::Join { token, node, facts: cpus(2), key: digest(key) });
    }
    let revoked =
        |cell: &Cell| -> Vec<Digest> { cell.state.access().revoked.keys().copied().collect() };
    assert_eq!(revoked(&cell), [digest(2)], "the disk that was wiped");
    cell.change(by, Change::RemoveNode { node: node_id("birch") });
    assert_eq!(revoked(&cell), [digest(2), digest(3)]);
}

#[test]
fn a_node_with_a_certificate_is_enrolled_unless_it_was_removed_or_another_has_its_name() {
    let mut cell = cell().node("ash", cpus(4));
    let (by, digest) = (Writer::Agent, |byte: u8| Digest([byte; 32]));
    let at = |address: &str| NodeFacts { address: Some(address.to_owned()), ..cpus(4) };
    let enrol = |name: &str, address: &str, key: u8| Change::Enrol {
        node: node_id(name),
        facts: at(address),
        key: digest(key),
    };
    let known = |cell: &Cell, name: &str| {
        let node = cell.state.node(&node_id(name)).unwrap();
        (node.key.unwrap(), node.server.unwrap())
    };
    let refused =
        |cell: &mut Cell, change: Change| cell.apply(by, vec![change.free()]).unwrap_err().reason;
    cell.change(by, enrol("ash", "10.0.0.1:1", 1));
    cell.change(by, enrol("birch", "10.0.0.2:1", 2));
    assert_eq!((known(&cell, "ash"), known(&cell, "birch")), ((digest(1), 1), (digest(2), 2)));
    cell.change(by, enrol("birch", "10.0.0.9:1", 2));
    assert_eq!(known(&cell, "birch"), (digest(2), 2), "it is known by its key wherever it is");

    let taken = Refusal::NameTaken { node: node_id("birch") };
    assert_eq!(refused(&mut cell, enrol("birch", "10.0.0.3:1", 3)), taken);
    cell.change(by, enrol("birch", "10.0.0.9:1", 3));
    assert_eq!(known(&cell, "birch"), (digest(3), 2), "its disk was wiped");
    let revoked = Refusal::KeyRevoked { node: node_id("birch") };
    assert_eq!(refused(&mut cell, enrol("birch", "10.0.0.9:1", 2)), revoked);
    let mut cell = cell.down("birch");
    cell.change(by, enrol("birch", "10.0.0.4:1", 4));
    let birch = cell.state.node(&node_id("birch")).unwrap();
    assert_eq!((birch.key, birch.status), (Some(digest(4)), NodeStatus::Ready));
    cell.change(Writer::Operator, Change::RemoveNode { node: node_id("birch") });
    assert_eq!(refused(&mut cell, enrol("birch", "10.0.0.4:1", 4)), revoked);
}

#[test]
fn a_cell_that_goes_on_with_one_server_forgets_the_lost_and_lets_nobody_in_by_old_tokens() {
    let mut cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).node("cedar", cpus(4));
    let by = Writer::Operator;
    let token = Digest([1; 32]);
    let (name, expires_at) = ("elm".to_owned(), Timestamp(u64::MAX));
    cell.change(by, Change::CreateJoinToken { name, token, expires_at });
    let (role, scope) = (Role::Admin, Scope::default());
    let (name, expires_at) = ("ann".to_owned(), None);
    let operator = Change::PutOperator { name, token, role, scope, expires_at };
    cell.change(by, operator);
    let cell = &mut cell.deploy("shop", [("web", spread(3))]);
    let place = |node: &str, slot: u32| Change::Place {
        replica: replica_id(&format!("shop/web/{slot}")),
        node: node_id(node),
        spec: spread(3).hash,
    };
    cell.change(Writer::Scheduler, place("birch", 1));
    let survive = |node: &str, lost: &[&str]| Change::Survive {
        node: node_id(node),
        server: 7,
        lost: lost.iter().map(|name| node_id(name)).collect(),
    };
    cell.change(by, survive("cedar", &["ash", "birch"]));
    let state = &cell.state;
    assert_eq!(state.nodes().keys().map(NodeId::as_str).collect::<Vec<_>>(), ["cedar"]);
    assert_eq!(state.node(&node_id("cedar")).unwrap().server, Some(7));
    assert_eq!(state.access().next_server, 8, "no number comes twice");
    assert!(state.access().join_tokens.is_empty() && state.access().operators.len() == 1);
    let held = state.replica(&replica_id("shop/web/1")).unwrap();
    assert_eq!(held.assignment.as_ref().unwrap().node, node_id("birch"), "it is to be replaced");
    cell.change(by, survive("dogwood", &["cedar"]));
    assert_eq!(cell.state.nodes().len(), 1, "another machine may take it over");
}

#[test]
fn a_route_leads_to_a_service_of_its_own_deployment_and_is_nobody_elses() {
    let deploy = |cell: &mut Cell, name: &str, routes: Vec<RouteSpec>| {
        let deployment = DeploymentName::new(name).unwrap();
        let services = [(ServiceName::new("web").unwrap(), Arc::new(spread(1)))].into();
        let change = Change::Deploy { deployment, services, routes };
        let applied = cell.apply(Writer::Operator, vec![change.free()]);
        applied.map_err(|rejection| rejection.reason.to_string())
    };
    let mut cell = cell();
    let shop = || route(Some("shop.example"), "/api", "web");
    deploy(&mut cell, "shop", vec![shop()]).unwrap();
    for (case, asked, refusal) in [
        (
            "nowhere",
            route(None, "/", "db"),
            "the route */ leads to \"db\", and there is no such service",
        ),
        ("the same", shop(), "the route shop.example/api is shop's already"),
        (
            "in other words",
            route(Some("Shop.Example."), "/api/", "web"),
            "the route shop.example/api is shop's already",
        ),
    ] {
        let before = cell.state.clone();
        assert_eq!(deploy(&mut cell, "blog", vec![asked]).unwrap_err(), refusal, "{case}");
        assert_eq!(cell.state, before, "{case}");
    }
    let twice = vec![route(None, "/", "web"), route(None, "/", "web")];
    assert_eq!(deploy(&mut cell, "blog", twice).unwrap_err(), "the route */ is blog's already");
    for other in [route(Some("shop.example"), "/", "web"), route(None, "/api", "web")] {
        deploy(&mut cell, "blog", vec![other]).unwrap();
    }
    deploy(&mut cell, "shop", Vec::new()).unwrap();
    let routes: Vec<String> =
        cell.state.routes().map(|(name, it)| format!("{name}: {it}")).collect();
    assert_eq!(routes, ["blog: */api"], "those that are no longer named are gone");
    deploy(&mut cell, "blog", vec![shop()]).unwrap();
    let cell = cell.undeploy("blog");
    assert_eq!(cell.state.routes().count(), 0, "and go with their deployment");
}

#[test]
fn another_route_is_another_revision_and_the_same_one_is_none() {
    let mut cell = cell();
    let mut deploy = |routes: Vec<RouteSpec>| {
        let services = [(ServiceName::new("web").unwrap(), Arc::new(spread(1)))].into();
        let deployment = DeploymentName::new("shop").unwrap();
        let change = Change::Deploy { deployment: deployment.clone(), services, routes };
        cell.apply(Writer::Operator, vec![change.free()]).unwrap();
        cell.state.deployments()[&deployment].revision.0
    };
    let one = || vec![route(None, "/", "web")];
    assert_eq!([deploy(one()), deploy(one()), deploy(Vec::new()), deploy(one())], [1, 1, 2, 3]);
}
