//! What a cell on etcd says of who leads it.

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_lab::NAMES;

use super::{TTL, cell_of};
use crate::harness::PATIENCE;
use crate::http;

#[test]
fn who_leads_since_when_and_on_what_lease_is_said_by_every_server() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let mut cell = cell_of(3, &lab);
    let leader = cell.until_led(&[0, 1, 2]);
    let ttl = u64::try_from(TTL.as_millis()).unwrap();
    for at in cell.nodes() {
        let ready = cell.get(at, "/readyz").unwrap();
        let role = if at == leader { "leader" } else { "standby" };
        assert_eq!((ready["engine"].as_str(), ready["role"].as_str()), (Some("etcd"), Some(role)));
        assert_eq!(
            (ready["leader"].as_str(), ready["elections"].as_u64()),
            (Some(NAMES[leader]), Some(1))
        );
        assert!(ready["led_ms"].is_u64() && ready["lag"] == 0, "{ready}");
        let left = ready["lease_left_ms"].as_u64().unwrap();
        assert!(0 < left && left <= ttl, "{ready}");
    }
    let other = cell.others(leader)[0];
    // Who follows is a server as soon as its own key is seen, which may be a moment after it knows who leads.
    cell.until("all are listed", |cell| {
        cell.run(other, "cell status").stdout().matches(" standby ").count() == 2
    });
    let status = cell.run(other, "cell status").stdout();
    assert!(status.contains("log: etcd; 1 election seen; "), "{status}");
    assert_eq!(status.matches(" standby ").count(), 2, "{status}");
    let told = cell.json(other, "cell status -o json");
    let servers = told["servers"].as_array().unwrap();
    assert!(servers.iter().all(|server| server["lag"] == 0), "{told}");

    let text = lab.ctl(&["get", "/plimsoll/home/scheduler/leader", "--print-value-only"]);
    let held: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (held["name"].as_str(), held["term"].as_u64()),
        (Some(NAMES[leader]), cell.term(other))
    );
    assert_eq!(held["address"], cell.address(leader));

    cell.kill(leader);
    cell.until_led(&cell.others(leader));
    let (status, body) = http::ask(&cell.socket(other), "GET", "/metrics", b"", PATIENCE).unwrap();
    let text = String::from_utf8(body).unwrap();
    assert_eq!(status, 200);
    for line in ["plimsoll_elections_total 2", "plimsoll_has_leader 1", "engine=\"etcd\""] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("plimsoll_lease_left_seconds "), "{text}");
}
