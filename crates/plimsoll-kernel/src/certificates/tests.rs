use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::acme::{AcmeAccount, AcmeOrder, AcmeSettings, SecretKey};
use plimsoll_model::spec::RouteSpec;
use plimsoll_model::testkit::spread as replicas;
use plimsoll_model::{Author, CellId, Command, DeploymentName, ServiceName, Term, Writer};

use super::*;

const DAY: Millis = Millis::minutes(24 * 60);
const START: Timestamp = Timestamp(1_000_000_000);

/// A cell that asks an authority, with a route for each host.
struct Cell(State);

fn cell(hosts: &[&str]) -> Cell {
    let mut cell = Cell(State::new(CellId::new("blue").unwrap()));
    cell.configure("https://ca.example/directory");
    cell.routes(hosts);
    cell
}

impl Cell {
    fn try_apply(&mut self, at: Timestamp, change: Change) -> Result<(), String> {
        let by = Author::new(Writer::Scheduler, "certificates");
        let command = Command::new(at, Term(1), by, vec![change.free()]);
        self.0.apply(&command).map(drop).map_err(|rejection| rejection.reason.to_string())
    }

    fn acme(&mut self, at: Timestamp, change: AcmeChange) {
        self.try_apply(at, Change::Acme { change }).unwrap();
    }

    fn configure(&mut self, directory: &str) {
        let email = "ops@example.org".to_owned();
        let settings = AcmeSettings { directory: directory.to_owned(), email, ca: None };
        self.acme(START, AcmeChange::Configure { settings: Some(settings) });
    }

    fn routes(&mut self, hosts: &[&str]) {
        let route = |host: &&str| RouteSpec {
            host: Some((*host).to_owned()),
            path: "/".to_owned(),
            strip_path: false,
            service: ServiceName::new("web").unwrap(),
            port: 80,
            tls: Tls::Auto,
        };
        let web = ServiceName::new("web").unwrap();
        let services = BTreeMap::from([(web, Arc::new(replicas(1)))]);
        let deployment = DeploymentName::new("shop").unwrap();
        let routes = hosts.iter().map(route).collect();
        self.try_apply(START, Change::Deploy { deployment, services, routes }).unwrap();
    }

    fn begin(&mut self, host: &str, at: Timestamp) {
        self.acme(at, AcmeChange::Begin { host: host.to_owned() });
    }

    fn order(&mut self, host: &str, at: Timestamp) {
        self.begin(host, at);
        let order = AcmeOrder {
            url: format!("https://ca.example/order/{host}"),
            directory: "https://ca.example/directory".to_owned(),
            key: SecretKey::new(vec![1]),
            challenge: None,
            begun_at: at,
        };
        self.acme(at, AcmeChange::SetOrder { host: host.to_owned(), order });
    }

    fn issue(&mut self, host: &str, at: Timestamp, lifetime: Millis) {
        self.order(host, at);
        let certificate = IssuedCertificate {
            chain: vec![vec![2]],
            key: SecretKey::new(vec![1]),
            issuer: "Test CA".to_owned(),
            not_before: at,
            not_after: at.plus(lifetime),
            directory: "https://ca.example/directory".to_owned(),
        };
        let order = format!("https://ca.example/order/{host}");
        self.acme(at, AcmeChange::Issue { host: host.to_owned(), order, certificate });
    }

    fn fail(&mut self, host: &str, at: Timestamp, kind: AcmeFailureKind) -> Timestamp {
        let failures = self.0.acme().hosts[host].failures;
        let retry_at = retry_at(host, failures, kind, None, at);
        let (host, text) = (host.to_owned(), "no such name".to_owned());
        self.acme(at, AcmeChange::Fail { host, kind, text, retry_at });
        retry_at
    }

    fn due(&self, at: Timestamp) -> Vec<(String, CertificateStep)> {
        decide(&self.0, &Policy::default(), at)
            .due
            .into_iter()
            .map(|due| (due.host, due.step))
            .collect()
    }
}

fn orders(hosts: &[&str]) -> Vec<(String, CertificateStep)> {
    hosts.iter().map(|host| ((*host).to_owned(), CertificateStep::Order)).collect()
}

#[test]
fn a_host_without_a_certificate_is_ordered_at_once_and_one_with_it_two_thirds_into_its_life() {
    let mut cell = cell(&["Shop.example.", "blog.example"]);
    assert_eq!(cell.due(START), orders(&["blog.example", "shop.example"]));
    cell.issue("shop.example", START, Millis(90 * DAY.0));
    assert_eq!(cell.due(START), orders(&["blog.example"]));
    let issued = cell.0.acme().hosts["shop.example"].issued.clone().unwrap();
    let at = renew_at("shop.example", &issued, &Policy::default());
    let passed = at.since(START).0 / DAY.0;
    assert!((58..=60).contains(&passed), "{passed} days");
    cell.issue("blog.example", at, Millis(90 * DAY.0));
    assert_eq!(cell.due(Timestamp(at.0 - 1)), []);
    assert_eq!(decide(&cell.0, &Policy::default(), Timestamp(at.0 - 1)).wake, Some(at));
    assert_eq!(cell.due(at), orders(&["shop.example"]));
}

#[test]
fn nothing_is_asked_for_before_the_cell_is_told_whom_to_ask() {
    let mut cell = cell(&["shop.example"]);
    cell.acme(START, AcmeChange::Configure { settings: None });
    assert_eq!(decide(&cell.0, &Policy::default(), START), CertificateDecision::default());
}

#[test]
fn another_leader_goes_on_with_the_order_that_is_open() {
    let mut cell = cell(&["shop.example"]);
    cell.order("shop.example", START);
    let open = vec![("shop.example".to_owned(), CertificateStep::Continue)];
    assert_eq!(cell.due(START), open);
    let at = cell.fail("shop.example", START, AcmeFailureKind::Unavailable);
    assert_eq!(cell.due(START), [], "it waits");
    assert_eq!(cell.due(at), open, "and asks after the same order");
    cell.fail("shop.example", at, AcmeFailureKind::Validation);
    assert_eq!(cell.due(at.plus(DAY)), orders(&["shop.example"]), "that order is over");
}

#[test]
fn an_order_that_was_begun_and_never_heard_of_is_begun_again_and_both_count() {
    let mut cell = cell(&["shop.example"]);
    for _ in 0..MAX_HOST_ORDERS {
        assert_eq!(cell.due(START), orders(&["shop.example"]));
        cell.begin("shop.example", START);
    }
    assert_eq!(cell.due(START), []);
    let later = START.plus(ORDER_WINDOW);
    assert_eq!(decide(&cell.0, &Policy::default(), START).wake, Some(later));
    let change = AcmeChange::Begin { host: "shop.example".to_owned() };
    let refused = cell.try_apply(START, Change::Acme { change }).unwrap_err();
    assert_eq!(refused, "it holds 6 orders for shop.example within an hour, at most 5 are allowed");
    assert_eq!(cell.due(later), orders(&["shop.example"]));
}

#[test]
fn a_cell_orders_no_more_than_its_share_in_an_hour_and_says_when_it_goes_on() {
    let hosts: Vec<String> =
        (0..MAX_CELL_ORDERS + 5).map(|nth| format!("h{nth}.example")).collect();
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let mut cell = cell(&names);
    assert_eq!(cell.due(START).len(), MAX_CELL_ORDERS);
    for host in names.iter().take(MAX_CELL_ORDERS) {
        cell.issue(host, START, Millis(90 * DAY.0));
    }
    assert_eq!(cell.due(START), []);
    assert_eq!(decide(&cell.0, &Policy::default(), START).wake, Some(START.plus(ORDER_WINDOW)));
    assert_eq!(cell.due(START.plus(ORDER_WINDOW)).len(), 5);
}

#[test]
fn waits_grow_to_a_bound_are_longest_after_failed_validations_and_honour_the_authority() {
    let wait = |failures, kind, after: Option<Millis>| {
        retry_at("shop.example", failures, kind, after, START).since(START)
    };
    for kind in AcmeFailureKind::ALL {
        let Backoff { first, longest, .. } = backoff(kind);
        let within = |wait: Millis, least: Millis| {
            assert!(wait >= least && wait.0 <= least.0 / 10 * 11, "{kind:?} {wait} {least}");
        };
        within(wait(0, kind, None), first);
        within(wait(40, kind, None), longest);
        within(wait(0, kind, Some(Millis(3 * DAY.0))), Millis(3 * DAY.0));
        within(wait(0, kind, Some(Millis(u64::MAX))), MAX_RETRY_AFTER);
        assert!(wait(1, kind, None) > wait(0, kind, None));
    }
    let (plain, failed) = (AcmeFailureKind::Unavailable, AcmeFailureKind::Validation);
    assert!(wait(0, failed, None).0 > 10 * wait(0, plain, None).0);
    let others = |host| retry_at(host, 0, failed, None, START);
    assert_ne!(others("a.example"), others("b.example"), "they do not come back together");
}

#[test]
fn a_host_that_no_route_names_is_kept_while_it_is_good_and_then_forgotten() {
    let mut cell = cell(&["shop.example", "blog.example"]);
    cell.issue("shop.example", START, Millis(90 * DAY.0));
    cell.begin("blog.example", START);
    cell.routes(&[]);
    let forgets = |cell: &Cell, at| decide(&cell.0, &Policy::default(), at).batch.len();
    assert_eq!(forgets(&cell, START), 0);
    assert_eq!(forgets(&cell, START.plus(ORDER_WINDOW)), 1, "what was ordered counts for an hour");
    cell.routes(&["shop.example"]);
    assert_eq!(cell.due(START.plus(DAY)), [], "a route that comes back costs no order");
    cell.routes(&[]);
    assert_eq!(forgets(&cell, START.plus(Millis(61 * DAY.0))), 2);
}

#[test]
fn another_authority_is_asked_anew_and_the_old_certificate_is_served_meanwhile() {
    let mut cell = cell(&["shop.example"]);
    let account = AcmeAccount {
        directory: "https://ca.example/directory".to_owned(),
        key: SecretKey::new(vec![3]),
        url: None,
    };
    cell.acme(START, AcmeChange::SetAccount { account: account.clone() });
    cell.issue("shop.example", START, Millis(90 * DAY.0));
    cell.configure("https://other.example/directory");
    assert_eq!(cell.0.acme().account, None);
    assert_eq!(cell.due(START), orders(&["shop.example"]));
    assert!(cell.0.acme().hosts["shop.example"].issued.is_some());
    let change = Change::Acme { change: AcmeChange::SetAccount { account } };
    let refused = cell.try_apply(START, change).unwrap_err();
    assert_eq!(refused, "the cell does not ask https://ca.example/directory for certificates");
}

#[test]
fn a_challenge_is_one_that_the_node_can_answer_and_another_after_it_failed() {
    let mut cell = cell(&["shop.example"]);
    let nothing = HostCertificate::default();
    assert_eq!(challenge(&nothing, true, true), ChallengeKind::Http01);
    assert_eq!(challenge(&nothing, false, true), ChallengeKind::TlsAlpn01);
    assert_eq!(challenge(&nothing, false, false), ChallengeKind::Http01);
    cell.order("shop.example", START);
    cell.fail("shop.example", START, AcmeFailureKind::Validation);
    let row = &cell.0.acme().hosts["shop.example"];
    assert_eq!(challenge(row, true, true), ChallengeKind::TlsAlpn01);
    assert_eq!(challenge(row, true, false), ChallengeKind::Http01);
}

#[test]
fn no_key_is_ever_written_out() {
    let mut cell = cell(&["shop.example"]);
    cell.issue("shop.example", START, DAY);
    cell.order("shop.example", START);
    let told = format!("{:?}", cell.0.acme());
    assert!(told.contains("key: SecretKey,"), "{told}");
    assert!(!told.contains("[1]"), "{told}");
}
