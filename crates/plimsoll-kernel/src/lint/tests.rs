//! Each rule catches a plan that breaks it.

use plimsoll_model::rollout::RolloutHalt;
use plimsoll_model::testkit::{
    Cell, cell, cpus, global, hosts, node_id, replica_id, service_key, spread,
};
use plimsoll_model::{Availability, Change, Guarded, MoveCause, ServiceSpec, Writer};

use super::plan;
use crate::testkit::Passes;

fn place(id: &str, node: &str, spec: &ServiceSpec) -> Guarded {
    Change::Place { replica: replica_id(id), node: node_id(node), spec: spec.hash }.free()
}

fn succeed(id: &str, node: &str, spec: &ServiceSpec, cause: MoveCause) -> Guarded {
    Change::Succeed { replica: replica_id(id), node: node_id(node), spec: spec.hash, cause }.free()
}

fn two() -> Cell {
    cell().node("ash", cpus(1)).node("birch", cpus(1))
}

#[test]
fn a_plan_that_breaks_a_rule_is_caught_by_it() {
    let (plain, big) = (spread(2), spread(2).reserve(600, 64));
    let (port, listed) = (spread(2).host_port(80), hosts(1, ["birch"]));
    let data = spread(1).volume("data");
    let cases: Vec<(&str, &str, Cell, Vec<Guarded>)> = vec![
        (
            "a cordoned node",
            "eligible: d-s-1 goes to ash, which is not open",
            two().cordon("ash").deploy("d", [("s", plain.clone())]),
            vec![place("d/s/1", "ash", &plain)],
        ),
        (
            "a node that is not listed",
            "eligible: d-s-1 goes to ash, which is not listed",
            two().deploy("d", [("s", listed.clone())]),
            vec![place("d/s/1", "ash", &listed)],
        ),
        (
            "more than a node has",
            "capacity: ash would hold",
            two().cordon("birch").deploy("d", [("s", big.clone())]),
            vec![place("d/s/1", "ash", &big), place("d/s/2", "ash", &big)],
        ),
        (
            "one port twice",
            "ports: d-s-2 takes 80/tcp of ash from d-s-1",
            two().cordon("birch").deploy("d", [("s", port.clone())]),
            vec![place("d/s/1", "ash", &port), place("d/s/2", "ash", &port)],
        ),
        (
            "more replicas than asked for",
            "count: d/s would have 3 of 2 replicas",
            two().deploy("d", [("s", plain.clone())]),
            vec![
                place("d/s/1", "ash", &plain),
                place("d/s/2", "birch", &plain),
                place("d/s/3", "ash", &plain),
            ],
        ),
        (
            "an index used before",
            "count: d-s-1 is an index used before",
            two()
                .deploy("d", [("s", plain.clone())])
                .settle()
                .undeploy("d")
                .settle()
                .deploy("d", [("s", plain.clone())]),
            vec![place("d/s/1", "ash", &plain)],
        ),
        (
            "two on one node and none on the other",
            "even: d-s-1 goes to ash (2), not birch (0)",
            two().deploy("d", [("s", plain.clone())]),
            vec![place("d/s/1", "ash", &plain), place("d/s/2", "ash", &plain)],
        ),
        (
            "a move without need",
            "sticky: d-s-1 leaves ash for node_lost",
            two().cordon("birch").deploy("d", [("s", spread(1))]).settle(),
            vec![succeed("d/s/1", "ash", &spread(1), MoveCause::NodeLost)],
        ),
        (
            "a move of data",
            "sticky: d-s-1 has its data on ash",
            two().cordon("birch").deploy("d", [("s", data.clone())]).settle().down("ash"),
            vec![succeed("d/s/1", "birch", &data, MoveCause::NodeLost)],
        ),
    ];
    for (case, expected, cell, batch) in cases {
        let broken: Vec<String> =
            plan(&cell.state, &batch).iter().map(ToString::to_string).collect();
        assert!(broken.iter().any(|what| what.starts_with(expected)), "{case}: {broken:#?}");
    }
}

#[test]
fn a_plan_that_breaks_no_rule_passes() {
    let abort = |service: &str| {
        let why = RolloutHalt::Operator;
        Change::AbortRollout { service: service_key(service), why }.free()
    };
    let late = |id: &str| Change::StepLate { replica: replica_id(id) }.free();
    let open = |mut cell: Cell, node: &str| {
        let availability = Availability::Active;
        let change = Change::SetAvailability { node: node_id(node), availability };
        cell.change(Writer::Operator, change);
        cell
    };
    let one = spread(1);
    let was_global = two().cordon("birch").deploy("d", [("s", global())]).settle();
    let was_global = open(was_global, "birch").deploy("d", [("s", one.clone())]);
    // Two replicas on ash, which leaves: birch has no zone either, cedar has one.
    let mut gone = two().node("cedar", cpus(1).zone("z")).cordon("birch").cordon("cedar");
    gone = gone.deploy("d", [("s", spread(2))]).settle();
    let survive = Change::Survive { node: node_id("birch"), server: 1, lost: vec![node_id("ash")] };
    gone.change(Writer::Operator, survive);
    let gone = open(open(gone, "birch"), "cedar");
    let cases: Vec<(&str, Cell, Vec<Guarded>)> = vec![
        (
            "what is left from when it was global counts nowhere",
            was_global,
            vec![place("d/s/1", "ash", &one)],
        ),
        (
            "the pass that takes a rollout back leaves the count to the next",
            two()
                .deploy("d", [("s", spread(2))])
                .settle()
                .deploy("d", [("s", spread(1).image("app:2"))]),
            vec![late("d/s/1"), abort("d/s")],
        ),
        (
            "a node that has left is in no zone",
            gone,
            vec![succeed("d/s/1", "birch", &spread(2), MoveCause::NodeLost)],
        ),
    ];
    let broken = cases.iter().flat_map(|(case, cell, batch)| {
        plan(&cell.state, batch).into_iter().map(move |broken| format!("{case}: {broken}"))
    });
    assert_eq!(broken.collect::<Vec<_>>(), Vec::<String>::new());
}
