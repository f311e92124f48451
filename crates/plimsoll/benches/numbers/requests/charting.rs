//! What it costs a node that something changed: the chart of all that leads to replicas is brought up to the state, or drawn
//! anew, the router's wishes are read off it, and the router is fed.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use plimsoll_daemon::routing::{Open, wanted};
use plimsoll_kernel::endpoints::Endpoints;
use plimsoll_model::spec::{RouteSpec, Tls};
use plimsoll_model::testkit::{Cell, cell, cpus, node_id};
use plimsoll_model::{Change, DeploymentName, Event, Guarded, ServiceName, Writer};
use plimsoll_router::{NoTunnel, Router, RouterLimits};

use crate::{Table, sample, settled, spec};

const NODES: usize = 10;

/// How many deployments of how many replicas each.
const SHAPES: [(usize, u32); 4] = [(1, 1_000), (100, 10), (10, 1_000), (1_000, 10)];

pub(in super::super) fn charting(table: &mut Table) {
    let runtime = crate::node::threads();
    let _inside = runtime.enter();
    for (deployments, replicas) in SHAPES {
        let cell = settled(routed(deployments, replicas));
        let before = Endpoints::of(&cell.state, None);
        let (node, addresses) = (node_id("n0"), BTreeMap::new());
        let name = format!("{deployments} services of {replicas} replicas with a route each");
        let times = sample(51, || {
            drop(black_box(Endpoints::of(&cell.state, Some(&before))));
        });
        table.time(&format!("{name}: the chart drawn anew"), "", &times);
        let one =
            [Event::Service(cell.state.services().keys().next().expect("there is one").clone())];
        let times = sample(51, || drop(black_box(before.after(&cell.state, &one))));
        table.time(&format!("{name}: the chart after a change of one service"), "", &times);
        let open = Open::new();
        let times = sample(51, || drop(black_box(wanted(&before, &node, &addresses, &open))));
        table.time(&format!("{name}: what one router is asked for"), "", &times);
        let asked = wanted(&before, &node, &addresses, &open);
        let router = Router::new(RouterLimits::default(), Arc::new(NoTunnel));
        let times = sample(51, || router.update(&asked.wanted));
        table.time(&format!("{name}: the router fed"), "", &times);
    }
}

fn routed(deployments: usize, replicas: u32) -> Cell {
    let mut cell = cell();
    let node = |nth| Change::PutNode { node: node_id(&format!("n{nth}")), facts: cpus(4_000) };
    let mut batch: Vec<Guarded> = (0..NODES).map(|nth| node(nth).free()).collect();
    for nth in 0..deployments {
        let service = ServiceName::new("s").expect("a valid name");
        let route = RouteSpec {
            host: Some(format!("d{nth}.example")),
            path: "/".to_owned(),
            strip_path: false,
            service: service.clone(),
            port: 80,
            tls: Tls::Off,
        };
        let deployment = DeploymentName::new(format!("d{nth}")).expect("a valid name");
        let services = BTreeMap::from([(service, Arc::new(spec(replicas)))]);
        batch.push(Change::Deploy { deployment, services, routes: vec![route] }.free());
    }
    cell.apply(Writer::Operator, batch).expect("a cell can be described");
    cell
}
