//! A part of the cell, asked for by itself: it says what the whole says of it, and costs no more in a crowd.

use std::net::SocketAddr;

use plimsoll_api::view::Node;
use plimsoll_daemon::measurements::{NodeMeasurement, ReplicaMeasurement};
use plimsoll_model::testkit::{cpus, node_id, replica_id, service_key, spread};
use plimsoll_model::{Change, MilliCpus, NodeStatus, ServiceSpec, Writer};

use super::support::{Daemon, daemon, within};

/// Ash has `shop`, birch has `blog`.
async fn two_stacks() -> Daemon {
    let daemon = daemon().await;
    let node = |name, facts| Change::PutNode { node: node_id(name), facts };
    let nodes = vec![
        node("ash", cpus(4).label("at", "ash")).free(),
        node("birch", cpus(4).label("at", "birch")).free(),
    ];
    daemon.write(Writer::Operator, nodes).await;
    daemon.apply("shop", [("web", on("ash", 2)), ("db", on("ash", 1))]).await;
    daemon.apply("blog", [("web", on("birch", 1))]).await;
    daemon.settle().await;
    daemon
}

fn on(node: &str, replicas: u32) -> ServiceSpec {
    spread(replicas).wants_label("at", node)
}

/// What is only measured.
fn measure(daemon: &Daemon) {
    let mut measured = daemon.cell.measurements.lock();
    for name in ["ash", "birch"] {
        let version = Some("0.1.0".to_owned());
        measured
            .nodes
            .insert(node_id(name), NodeMeasurement { version, ..NodeMeasurement::default() });
    }
    for id in ["shop/web/1", "shop/web/2", "blog/web/1"] {
        let (cpu, failures) = (Some(MilliCpus(120)), 2);
        let said = ReplicaMeasurement { cpu, failures, ..ReplicaMeasurement::default() };
        measured.replicas.insert((replica_id(id), daemon.generation(id)), said);
    }
    let address: SocketAddr = "0.0.0.0:80".parse().unwrap();
    drop(measured);
    let mut ingress = daemon.cell.ingress.lock();
    let why = "80/tcp is in use".to_owned();
    ingress.unbound_ports.insert((service_key("shop/db"), address), why);
}

fn names(nodes: &[Node]) -> Vec<&str> {
    nodes.iter().map(|node| node.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_says_what_the_whole_says_of_it() {
    let daemon = two_stacks().await;
    measure(&daemon);
    let client = &daemon.client;
    let whole = client.status().await.unwrap();
    let shop = client.status_of("shop").await.unwrap();
    assert_eq!(shop.cell.applied, whole.cell.applied);
    assert_eq!(shop.deployments, [whole.deployments[1].clone()]);
    assert_eq!(client.deployment("shop").await.unwrap(), whole.deployments[1]);
    assert!(format!("{:?}", shop.deployments[0].progress).contains("80/tcp is in use"));
    assert_eq!((names(&whole.nodes), names(&shop.nodes)), (vec!["ash", "birch"], vec!["ash"]));
    // How far a node is filled takes a look at all of them, and stands in lists of all alone.
    let alone = |node: &Node| Node { fill: None, ..node.clone() };
    assert_eq!(shop.nodes[0], alone(&whole.nodes[0]));
    assert_eq!(client.node("birch").await.unwrap(), Some(alone(&whole.nodes[1])));

    let all = client.replicas().await.unwrap();
    let on = client.replicas_on("birch").await.unwrap();
    assert_eq!(on, [all[0].clone()], "blog-web-1 alone");
    assert_eq!(client.replica("shop-web-2").await.unwrap(), *all.last().unwrap());
    assert_eq!(all.last().unwrap().now.as_ref().unwrap().cpu_millis, Some(120));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_is_not_there_nothing_is_said() {
    let daemon = two_stacks().await;
    let client = &daemon.client;
    let none = client.status_of("none").await.unwrap();
    assert!(none.deployments.is_empty() && none.nodes.is_empty());
    assert!(none.cell.applied > 0, "how far the answer reaches is said all the same");
    assert_eq!(client.node("none").await.unwrap(), None);
    assert_eq!(client.replicas_on("none").await.unwrap(), []);
    client.delete("shop", false).await.unwrap();
    let leaving = client.status_of("shop").await.unwrap();
    assert!(leaving.deployments[0].is_deleted && names(&leaving.nodes) == ["ash"]);
    daemon.settle().await;
    assert!(client.status_of("shop").await.unwrap().deployments.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stack_costs_does_not_grow_with_the_others() {
    let daemon = two_stacks().await;
    let bytes = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let (status, body) = daemon.raw(request).await;
        assert_eq!(status, 200, "{path}");
        body.len()
    };
    let (path, whole) = ("/v1/status?deployment=shop", bytes("/v1/status").await);
    let alone = bytes(path).await;
    for number in 0..50 {
        daemon.apply(&format!("other{number}"), [("web", spread(4))]).await;
    }
    daemon.settle().await;
    let crowded = bytes(path).await;
    // Indices and counts have more digits by now; a replica more would be some hundred bytes.
    assert!(crowded < alone + 50, "{alone} bytes alone, {crowded} in a crowd");
    assert!(bytes("/v1/status").await > 10 * whole, "the crowd is one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_of_one_deployment_hears_of_it_and_of_its_nodes_alone() {
    let daemon = two_stacks().await;
    let client = &daemon.client;
    let start = client.status().await.unwrap().cell.applied;
    let mut changes = client.watch_deployment("shop", Some(start)).await.unwrap();
    daemon.apply("blog", [("web", on("birch", 3))]).await;
    daemon.settle().await;
    let down = |name| Change::SetStatus { node: node_id(name), status: NodeStatus::Down };
    daemon.write(Writer::Liveness, vec![down("birch").free()]).await;
    let applied = daemon.apply("shop", [("web", on("ash", 3)), ("db", on("ash", 1))]).await;
    let heard = within(changes.next()).await.unwrap().unwrap();
    assert_eq!((Some(heard.index), heard.lagged), (applied.index, false), "nothing before it");

    daemon.apply("blog", [("web", on("ash", 1))]).await;
    assert!(daemon.pass().await, "one batch for both");
    let heard = within(changes.next()).await.unwrap().unwrap();
    assert_eq!(
        (heard.deployments, heard.replicas),
        (vec!["shop".into()], vec!["shop-web-3".into()])
    );
    daemon.write(Writer::Liveness, vec![down("ash").free()]).await;
    let heard = within(changes.next()).await.unwrap().unwrap();
    assert_eq!(heard.nodes, ["ash"], "what holds it is down");
}
