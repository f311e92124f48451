use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::models::NetworkCreateRequest;
use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{NetworkAttachment, Protocol};
use plimsoll_runtime::{Binding, Runtime, StartRequest};

use super::harness::{PATIENCE, TestCell, idle, sh};

fn connected(script: &str) -> ContainerSpec {
    ContainerSpec { network_mode: None, ..sh(script) }
}

fn server() -> ContainerSpec {
    connected("exec httpd -f -p 80 -h /www")
}

fn binding(port: u16) -> Binding {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Binding { target: 80, protocol: Protocol::Tcp, address, port }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}

fn get(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.lines().last().unwrap_or_default().to_owned())
}

async fn answers(address: &str) {
    let begin = Instant::now();
    loop {
        match get(address) {
            Ok(text) if text == "afloat" => return,
            other => assert!(begin.elapsed() < PATIENCE, "{address}: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn services_of_a_deployment_find_each_other_by_name() {
    let Some(cell) = TestCell::new() else { return };
    let web = cell.start(1, server()).await;
    let found = cell.runtime.list().await.unwrap();
    let address = found[0].address.expect("this node reaches it");
    answers(&format!("{address}:80")).await;
    let script = "wget -q -O - http://web/ && echo reached";
    let tag = cell.tag_of("client", 2);
    let order = StartRequest::new(tag.clone(), Arc::new(connected(script)));
    cell.launch(&order).await;
    assert_eq!(cell.exit(&tag).await.status, Some(0));
    assert_eq!(cell.printed(&tag).await, ["afloat", "reached"]);

    let network = format!("{}_default", cell.name);
    assert_eq!(cell.belongings().await[1], vec![network.clone()]);
    cell.runtime.remove(&tag).await.unwrap();
    assert_eq!(cell.belongings().await[1], [network], "the other one is still in it");
    cell.runtime.stop(&web).await.unwrap();
    cell.runtime.remove(&web).await.unwrap();
    assert_eq!(cell.belongings().await[1], [""; 0], "it goes with the last");
}

#[tokio::test]
async fn networks_are_those_the_spec_names() {
    let Some(cell) = TestCell::new() else { return };
    let outside = format!("{}-outside", cell.name);
    let attachment = NetworkAttachment::default;
    let networks: BTreeMap<String, NetworkAttachment> = [
        ("back".into(), NetworkAttachment { internal: true, ..attachment() }),
        ("front".into(), NetworkAttachment { aliases: ["shop".into()].into(), ..attachment() }),
        (
            "outside".into(),
            NetworkAttachment { name: Some(outside.clone()), external: true, ..attachment() },
        ),
    ]
    .into();
    let order = cell.order(1, ContainerSpec { networks, ..connected("exec sleep 600") });
    let complaint = cell.complaint(&order).await;
    let expected = format!(
        "network {outside} is external and not there; create it with: docker network create {outside}"
    );
    assert!(complaint.ends_with(&expected), "{complaint}");

    let request = NetworkCreateRequest { name: outside.clone(), ..Default::default() };
    cell.docker.create_network(request).await.unwrap();
    cell.launch(&order).await;
    let settings = cell.inspect(&order.tag).await.network_settings.unwrap();
    let (back, front) = (format!("{}_back", cell.name), format!("{}_front", cell.name));
    let joined: BTreeMap<_, _> = settings.networks.unwrap().into_iter().collect();
    assert_eq!(joined.keys().collect::<Vec<_>>(), [&outside, &back, &front]);
    let aliases = joined[&front].aliases.clone().unwrap_or_default();
    assert!(aliases.contains(&"shop".into()) && aliases.contains(&"web".into()), "{aliases:?}");
    let made = cell.docker.inspect_network(&back, None).await.unwrap();
    assert_eq!(made.internal, Some(true));

    cell.runtime.stop(&order.tag).await.unwrap();
    cell.runtime.remove(&order.tag).await.unwrap();
    assert_eq!(cell.belongings().await[1], [""; 0]);
    let removed = cell.docker.remove_network(&outside).await;
    assert!(removed.is_ok(), "what is external stays until its owner removes it: {removed:?}");
}

#[tokio::test]
async fn a_network_that_was_taken_away_is_made_again() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.start(1, connected("exec sleep 600")).await;
    cell.runtime.stop(&tag).await.unwrap();
    cell.docker.remove_network(&format!("{}_default", cell.name)).await.unwrap();
    cell.start(1, connected("exec sleep 600")).await;
    assert!(cell.status(&tag).await.is_some_and(|status| status.is_running()));
}

#[tokio::test]
async fn ports_lead_from_the_node_to_the_container() {
    let Some(cell) = TestCell::new() else { return };
    let (one, two) = (free_port(), free_port());
    for port in [one, two] {
        // Chosen anew, the port is another one on the same container's tag.
        let order = StartRequest { bindings: vec![binding(port)], ..cell.order(1, server()) };
        cell.launch(&order).await;
        answers(&format!("127.0.0.1:{port}")).await;
        let before = cell.inspect(&order.tag).await.id;
        cell.runtime.stop(&order.tag).await.unwrap();
        cell.launch(&order).await;
        assert_eq!(
            cell.inspect(&order.tag).await.id,
            before,
            "on the same port it is the same one"
        );
        cell.runtime.stop(&order.tag).await.unwrap();
    }
    assert!(get(&format!("127.0.0.1:{one}")).is_err());
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_with_the_next_step() {
    let Some(cell) = TestCell::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let order = StartRequest { bindings: vec![binding(port)], ..cell.order(1, server()) };
    let complaint = cell.complaint(&order).await;
    let expected =
        "a port it publishes is taken on this node; stop what holds it, or publish another";
    assert!(complaint.contains(expected) && complaint.contains(&port.to_string()), "{complaint}");
    assert_eq!(cell.runtime.list().await.unwrap(), [], "nothing half made is left");
    drop(listener);
    cell.launch(&order).await;
    answers(&format!("127.0.0.1:{port}")).await;
}

#[tokio::test]
async fn a_container_may_share_the_nodes_network() {
    let Some(cell) = TestCell::new() else { return };
    let spec = ContainerSpec { network_mode: Some("host".into()), ..idle() };
    let tag = cell.start(1, spec).await;
    let found = cell.runtime.list().await.unwrap();
    assert_eq!(found[0].tag, tag);
    assert_eq!(found[0].address, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_eq!(cell.belongings().await[1], [""; 0]);
}
