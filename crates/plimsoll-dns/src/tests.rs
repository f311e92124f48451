//! Names in a network of their own, with the kernel's own tables: whose addresses they are, and what is put back.

use std::process::Command;

use super::*;

/// Set where the test runs in a network that leads nowhere.
const INSIDE: &str = "PLIMSOLL_TEST_INSIDE";

/// Runs the test a second time, in a network of its own. True there.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        shell("ip", &["link", "set", "lo", "up"]);
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: a network of its own needs root");
        return false;
    }
    let own = std::env::current_exe().unwrap();
    let mut again = Command::new("unshare");
    again.arg("--net").arg(own).args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    assert!(again.status().unwrap().success(), "it failed inside");
    false
}

fn shell(program: &str, arguments: &[&str]) -> String {
    let ended = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

fn bridge(id: &str, name: &str, block: &str) -> Bridge {
    Bridge {
        id: id.to_owned(),
        name: name.to_owned(),
        interface: format!("br-{id}"),
        gateway: Ipv4Addr::LOCALHOST,
        virtual_block: block.parse().unwrap(),
        is_asked_from_host: false,
    }
}

async fn names() -> (ServiceDns, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let names = ServiceDns::new(&directory.path().join("names.json"), "test/ash").await.unwrap();
    (names, directory)
}

fn routes() -> String {
    shell("ip", &["-4", "route", "show", "table", "local"])
}

/// Every jump and rule that leads to the daemon.
fn rules() -> String {
    let tables = ["nat", "raw", "filter"];
    let listed = tables.map(|table| shell("iptables", &["-w", "-t", table, "-S"]));
    let ours = listed.iter().flat_map(|text| text.lines()).filter(|line| line.contains("PLIMSOLL"));
    ours.collect::<Vec<_>>().join("\n")
}

const BLOCK: &str = "10.208.1.0/24";

#[tokio::test]
async fn a_network_that_is_gone_takes_nothing_from_the_one_that_has_its_addresses_now() {
    if !is_inside(
        "tests::a_network_that_is_gone_takes_nothing_from_the_one_that_has_its_addresses_now",
    ) {
        return;
    }
    let (names, _directory) = names().await;
    let (old, new) = (bridge("1", "shop_default", BLOCK), bridge("2", "blog_default", BLOCK));
    names.open(&old).await.unwrap();
    names.open(&new).await.unwrap();
    names.close(&old).await;
    assert!(routes().contains(BLOCK), "the route is the other's by now: {}", routes());
    assert!(rules().contains("br-2") && !rules().contains("br-1"), "{}", rules());
    assert!(names.open_networks().borrow().contains_key("blog_default"));

    // A deployment that is deleted and applied again has a network of the same name, and the old one's end comes late.
    let again = bridge("3", "blog_default", "10.208.5.0/24");
    names.open(&again).await.unwrap();
    names.set_directory(Directory::default());
    let address = names.virtual_ip("blog_default", "blog/db").unwrap();
    names.close(&new).await;
    names.close(&new).await;
    assert!(!routes().contains(BLOCK) && routes().contains("10.208.5.0/24"), "{}", routes());
    assert_eq!(names.virtual_ip("blog_default", "blog/db"), Some(address), "clients keep it");
    names.close(&again).await;
    assert!(rules().is_empty() && !routes().contains("10.208"), "{}\n{}", rules(), routes());
}

#[tokio::test]
async fn whatever_is_taken_out_of_the_kernel_is_put_back_and_counted() {
    if !is_inside("tests::whatever_is_taken_out_of_the_kernel_is_put_back_and_counted") {
        return;
    }
    let (names, _directory) = names().await;
    for bridge in [bridge("1", "shop_default", BLOCK), bridge("2", "blog_default", "10.208.5.0/24")]
    {
        names.open(&bridge).await.unwrap();
    }
    let (routes_before, rules_before) = (routes(), rules());
    names.reconcile().await.unwrap();
    assert!(names.repairs().iter().all(|(_, count)| *count == 0), "nothing is missing");
    let chain = names.0.firewall.chain().to_owned();
    let jump = |table: &'static str, hook: &'static str| {
        vec!["iptables", "-w", "-t", table, "-D", hook, "-j", chain.as_str()]
    };
    let flush = |table: &'static str| vec!["iptables", "-w", "-t", table, "-F", chain.as_str()];
    let mut repaired = 0;
    for (part, command) in [
        (KernelPart::Route, vec!["ip", "route", "del", "local", BLOCK, "dev", "lo"]),
        (KernelPart::Jump, jump("nat", "PREROUTING")),
        (KernelPart::Jump, jump("raw", "PREROUTING")),
        (KernelPart::Jump, jump("filter", "INPUT")),
        (KernelPart::Rule, flush("nat")),
        (KernelPart::Rule, flush("raw")),
        (KernelPart::Rule, flush("filter")),
        (KernelPart::Rule, vec!["iptables", "-w", "-t", "nat", "-D", chain.as_str(), "1"]),
    ] {
        shell(command[0], &command[1..]);
        let of = |names: &ServiceDns| names.repairs().into_iter().find(|(it, _)| *it == part);
        let before = of(&names);
        names.reconcile().await.unwrap();
        assert_eq!(
            (routes(), rules()),
            (routes_before.clone(), rules_before.clone()),
            "{command:?}"
        );
        assert!(of(&names) > before, "{part:?} is counted: {:?}", names.repairs());
        repaired += 1;
    }
    let count = |names: &ServiceDns| names.repairs().iter().map(|(_, count)| count).sum::<u64>();
    assert_eq!(count(&names), repaired, "each once");

    for task in 0..3 {
        let mut networks = names.0.networks.lock().await;
        let network = networks.get_mut("1").unwrap();
        network.tasks[task].abort();
        while !network.tasks[task].is_finished() {
            tokio::task::yield_now().await;
        }
        drop(networks);
        names.reconcile().await.unwrap();
        let networks = names.0.networks.lock().await;
        assert!(!networks["1"].tasks.iter().any(AbortHandle::is_finished));
        let port = format!("--to-ports {}", networks["1"].rules.tcp_port);
        assert!(rules().contains(&port), "connections are redirected to it: {}", rules());
    }
    assert!(names.repairs().contains(&(KernelPart::Listener, 3)), "{:?}", names.repairs());
    names.reconcile().await.unwrap();
    assert_eq!(count(&names), repaired + 3, "nothing is missing any more");
}

#[tokio::test]
async fn a_network_that_could_not_be_opened_is_tried_again() {
    if !is_inside("tests::a_network_that_could_not_be_opened_is_tried_again") {
        return;
    }
    let (names, _directory) = names().await;
    // An engine that asks from the host does so at the port of name servers, which another may have for itself.
    let asked = Bridge { is_asked_from_host: true, ..bridge("1", "shop_default", BLOCK) };
    let other = std::net::UdpSocket::bind(("0.0.0.0", 53)).unwrap();
    let why = names.open(&asked).await.unwrap_err();
    assert!(why.starts_with("cannot listen on"), "{why}");
    drop(other);
    names.reconcile().await.unwrap();
    assert!(names.open_networks().borrow().contains_key("shop_default"));
}

#[tokio::test]
async fn a_network_is_served_before_its_side_of_the_host_is_there() {
    if !is_inside("tests::a_network_is_served_before_its_side_of_the_host_is_there") {
        return;
    }
    let (names, _directory) = names().await;
    let mut early = bridge("1", "shop_default", BLOCK);
    early.gateway = [10, 9, 9, 1].into();
    names.open(&early).await.unwrap();
    assert!(names.open_networks().borrow().contains_key("shop_default"));
}
