//! How this node stands in its cell, in numbers for those who watch many: the text that Prometheus reads.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;

use plimsoll_dns::KernelPart;
use plimsoll_kernel::certificates::hosts;
use plimsoll_model::reason::UnplacedReason;
use plimsoll_model::review::{LoopRecord, MovingLoop};
use plimsoll_model::spec::Tls;
use plimsoll_model::{Node, NodeStatus, Timestamp};

use super::answer::with_type;
use super::context::Context;
use super::event_metrics;
use super::health;
use super::router_metrics::routed;
use crate::context::now;
use crate::restarts;
use crate::views;
use plimsoll_api::view::{Health, HealthQuery, ProblemCode};

/// What can keep a log from taking writes, each a line that is always there: an alert can name it before it happens.
const TROUBLES: [ProblemCode; 5] = [
    ProblemCode::LogLost,
    ProblemCode::DiskFull,
    ProblemCode::Disk,
    ProblemCode::StoreFull,
    ProblemCode::Bug,
];

const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How this node stands in its cell, in numbers
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn metrics(State(context): State<Arc<Context>>) -> Response {
    let health = health::health(&context, &HealthQuery::default()).await;
    let mut page = text(&health);
    if context.cell.holds_log() {
        let refused = context.cell.refused_batches.load(Ordering::Relaxed);
        let machine = context.cell.engine.machine();
        decisions(&mut page, refused, machine.read(waiting_services));
        nodes(&mut page, machine.read(node_counts));
        jobs(&mut page, machine.read(job_counts));
        machine.read(|state| {
            loops(&mut page, state, now());
            event_metrics::workload(&mut page, state);
            let leader = context.cell.leader.lock();
            let rebalancer = leader.as_ref().map(plimsoll_kernel::Leader::rebalancer);
            event_metrics::levels(&mut page, state, rebalancer);
            let mut counts = context.event_counts.lock();
            counts.catch_up(state);
            counts.write(&mut page);
        });
        event_metrics::latency(&mut page, &context.cell.write_latency);
    }
    if let Some(answers) = runtime_answers(&context) {
        let what = "Whether the container runtime of this node answers";
        page.number("plimsoll_runtime_up", "gauge", what, answers.into());
    }
    certificates(&mut page, &certificates_of(&context), now());
    if let Some(routing) = context.routing.get() {
        routed(&mut page, &routing.read());
        name_repairs(&mut page, &routing.name_repairs().unwrap_or_default());
    }
    with_type(TYPE, Body::from(page.0))
}

fn text(health: &Health) -> MetricsPage {
    let mut page = MetricsPage::default();
    let tenure = &health.tenure;
    let leads = health.leader.as_ref() == Some(&health.node);
    let labels = [
        ("node", health.node.as_str()),
        ("version", &health.version),
        ("engine", tenure.engine.as_deref().unwrap_or_default()),
        ("role", &health.role),
        ("leader", health.leader.as_deref().unwrap_or_default()),
    ];
    page.info("plimsoll_node_info", "Who this node is, and who leads as far as it knows", &labels);
    page.number("plimsoll_is_leader", "gauge", "Whether this node leads", leads.into());
    let is_led = health.leader.is_some();
    page.number("plimsoll_has_leader", "gauge", "Whether this node knows a leader", is_led.into());
    page.number("plimsoll_term", "gauge", "The newest term this node has seen", health.term);
    let what = "Leaders this node has seen since it started";
    page.number("plimsoll_elections_total", "counter", what, tenure.elections);
    let what = "How long ago this node saw the one who leads begin";
    page.seconds("plimsoll_leader_age_seconds", what, tenure.led_ms);
    let what = "What is left of this node's lease by its own clock";
    page.seconds("plimsoll_lease_left_seconds", what, tenure.lease_left_ms);
    let what = "How long ago this node last heard its leader or, leading, most of the servers";
    page.seconds("plimsoll_heard_seconds", what, health.heard_ms);
    let what = "The last entry of the log that this node has applied";
    page.number("plimsoll_log_applied", "gauge", what, health.applied);
    let what = "The last entry that it knows to be committed";
    page.number("plimsoll_log_committed", "gauge", what, health.committed);
    let what = "Entries that are committed and not applied here";
    page.number("plimsoll_log_lag", "gauge", what, health.lag);
    let what = "Whether this keeps the cell from taking writes, as this node knows it";
    page.head("plimsoll_log_trouble", "gauge", what);
    for code in TROUBLES {
        let holds = u8::from(health.trouble == Some(code));
        let _ = writeln!(page.0, "plimsoll_log_trouble{{code=\"{}\"}} {holds}", code.word());
    }
    let what = "How often this process has started its control plane over after a panic or a failure of the log";
    page.number("plimsoll_control_plane_restarts_total", "counter", what, restarts::so_far());
    page
}

/// Decisions that the state did not take: now and then something was faster; twice in a row it is a bug, and one service waits.
fn decisions(page: &mut MetricsPage, refused: u64, waiting: u64) {
    let what =
        "Batches of decisions of this node, leading, that the state refused since it started";
    page.number("plimsoll_batches_refused_total", "counter", what, refused);
    let what = "Services that wait because a decision for them was refused twice";
    page.number("plimsoll_services_decision_refused", "gauge", what, waiting);
}

/// How many nodes the cell knows to be ready, down, and heard without a container runtime.
fn node_counts(state: &plimsoll_model::State) -> [(&'static str, u64); 3] {
    let count =
        |is_it: fn(&Node) -> bool| state.nodes().values().filter(|it| is_it(it)).count() as u64;
    let is_ready = |node: &Node| node.status == NodeStatus::Ready && node.outage.is_none();
    let is_out = |node: &Node| node.status == NodeStatus::Ready && node.outage.is_some();
    let is_down = |node: &Node| node.status == NodeStatus::Down;
    [("ready", count(is_ready)), ("runtime_unavailable", count(is_out)), ("down", count(is_down))]
}

fn nodes(page: &mut MetricsPage, counts: [(&'static str, u64); 3]) {
    page.head("plimsoll_nodes", "gauge", "Nodes of the cell by their status");
    for (status, count) in counts {
        let _ = writeln!(page.0, "plimsoll_nodes{{status=\"{status}\"}} {count}");
    }
}

/// How many replicas of jobs have completed, have failed for good, and are neither yet.
fn job_counts(state: &plimsoll_model::State) -> [(&'static str, u64); 3] {
    let (mut completed, mut failed, mut open) = (0, 0, 0);
    let services = state.services().values();
    for service in services.filter(|it| it.desired().is_some_and(|spec| spec.is_job())) {
        // Of runs on a schedule the last one counts: those before it are kept for their logs.
        let last = service.row.schedule.as_ref().map(|row| row.last_run);
        for replica in service.replicas.values().filter(|replica| replica.run == last) {
            let Some(at) = &replica.assignment else { continue };
            let count = match (replica.has_completed(at), replica.is_over(at)) {
                (true, _) => &mut completed,
                (false, true) => &mut failed,
                (false, false) => &mut open,
            };
            *count += 1;
        }
    }
    [("completed", completed), ("failed", failed), ("open", open)]
}

fn jobs(page: &mut MetricsPage, counts: [(&'static str, u64); 3]) {
    let what = "Replicas of jobs that have completed, have failed for good, and are neither yet";
    page.head("plimsoll_jobs", "gauge", what);
    for (state, count) in counts {
        let _ = writeln!(page.0, "plimsoll_jobs{{state=\"{state}\"}} {count}");
    }
}

/// What automatic moves were worth, and how often each loop may act for it.
fn loops(page: &mut MetricsPage, state: &plimsoll_model::State, now: Timestamp) {
    let what = "Automatic moves that were looked at again, by whether they brought half of what was predicted";
    let name = "plimsoll_moves_reviewed_total";
    page.head(name, "counter", what);
    let record = |by: MovingLoop| state.reviews().of(by);
    for by in MovingLoop::ALL {
        let LoopRecord { held, failed, not_judged, .. } = record(by);
        for (result, count) in [("held", held), ("failed", failed), ("not_judged", not_judged)] {
            let labels = format!("loop=\"{}\",result=\"{result}\"", by.word());
            let _ = writeln!(page.0, "{name}{{{labels}}} {count}");
        }
    }
    let what = "What judged moves were to bring: millionths of a node for the rebalancer, points of the score for the rescheduler";
    of_each(page, ("plimsoll_moves_predicted_gain_total", "counter"), what, |by| {
        record(by).predicted
    });
    let what = "What they brought";
    of_each(page, ("plimsoll_moves_realised_gain_total", "counter"), what, |by| {
        record(by).realised
    });
    let what = "In one cycle of how many a loop acts: more than 1 while its predictions fail";
    let slowed = |by: MovingLoop| 1 << record(by).doublings(now);
    of_each(page, ("plimsoll_loop_slowdown", "gauge"), what, slowed);
    let name = "plimsoll_preemptions_total";
    let what = "Times that replicas were to make way for one of higher priority, those given up, and replicas that were stopped for it";
    page.head(name, "counter", what);
    let counts = state.preemptions().counts();
    let results =
        [("begun", counts.begun), ("withdrawn", counts.withdrawn), ("evicted", counts.evicted)];
    for (result, count) in results {
        let _ = writeln!(page.0, "{name}{{result=\"{result}\"}} {count}");
    }
    let what = "Nodes where room is being freed for a replica of higher priority";
    let in_flight = state.preemptions().in_flight().len() as u64;
    page.number("plimsoll_preemptions_in_flight", "gauge", what, in_flight);
    let what = "Whether the rescheduler is paused";
    let is_paused = state.rescheduling().is_paused;
    page.number("plimsoll_reschedule_paused", "gauge", what, is_paused.into());
}

fn of_each(
    page: &mut MetricsPage,
    (name, kind): (&str, &str),
    what: &str,
    value: impl Fn(MovingLoop) -> u64,
) {
    page.head(name, kind, what);
    for by in MovingLoop::ALL {
        let _ = writeln!(page.0, "{name}{{loop=\"{}\"}} {}", by.word(), value(by));
    }
}

/// Something else on the host took it out, and it was put back.
fn name_repairs(page: &mut MetricsPage, repairs: &[(KernelPart, u64)]) {
    if repairs.is_empty() {
        return;
    }
    let what = "What service names need in the kernel that was found missing and put back";
    page.head("plimsoll_names_repairs_total", "counter", what);
    for (part, count) in repairs {
        let _ =
            writeln!(page.0, "plimsoll_names_repairs_total{{part=\"{}\"}} {count}", part.word());
    }
}

/// None until it was asked for the first time.
fn runtime_answers(context: &Context) -> Option<bool> {
    let measured = context.cell.measurements.lock();
    let runtime = measured.nodes.get(&context.cell.node)?.runtime.as_ref()?;
    Some(runtime.trouble.is_none())
}

/// A certificate as it is counted: its host, where it comes from, when it runs out, and how many tries have failed in a row.
type CertificateRow = (String, &'static str, Option<Timestamp>, u32);

/// Those of an ACME authority are the cell's and are told by servers; others are each node's own.
fn certificates_of(context: &Context) -> Vec<CertificateRow> {
    let held = context.cell.ingress.lock().certificates.clone();
    let is_server = context.cell.holds_log();
    let own = held.into_iter().filter(|it| !(is_server && it.tls == Tls::Auto)).map(|it| {
        (it.host, views::tls_word(it.tls), it.facts.map(|facts| facts.not_after), it.failures)
    });
    let mut all: Vec<CertificateRow> = own.collect();
    if is_server {
        let issued = context.cell.engine.machine().read(|state| {
            let row = |host: String| {
                let known = state.acme().hosts.get(&host);
                let until = known.and_then(|row| Some(row.issued.as_ref()?.not_after));
                let failures = known.map_or(0, |row| row.failures);
                (host, views::tls_word(Tls::Auto), until, failures)
            };
            hosts(state).into_iter().map(row).collect::<Vec<_>>()
        });
        all.extend(issued);
    }
    all.sort();
    all
}

fn certificates(page: &mut MetricsPage, all: &[CertificateRow], now: Timestamp) {
    if all.is_empty() {
        return;
    }
    let what = "How long the certificate of a host of routes is good for yet; 0: there is none, or it has run out";
    page.head("plimsoll_certificate_expiry_seconds", "gauge", what);
    for (host, source, until, _) in all {
        let left = until.map_or(0, |until| until.since(now).0 / 1_000);
        let labels = format!("host=\"{host}\",source=\"{source}\"");
        let _ = writeln!(page.0, "plimsoll_certificate_expiry_seconds{{{labels}}} {left}");
    }
    let what = "How many tries in a row have failed to get or read the next certificate of a host";
    page.head("plimsoll_certificate_failures", "gauge", what);
    for (host, source, _, failures) in all {
        let labels = format!("host=\"{host}\",source=\"{source}\"");
        let _ = writeln!(page.0, "plimsoll_certificate_failures{{{labels}}} {failures}");
    }
}

fn waiting_services(state: &plimsoll_model::State) -> u64 {
    let said = state.unplaced().iter().filter_map(|key| state.service(key)?.row.unplaced.as_ref());
    said.filter(|it| matches!(it.why, UnplacedReason::DecisionRefused { .. })).count() as u64
}

#[derive(Debug, Default)]
pub(super) struct MetricsPage(pub(super) String);

impl MetricsPage {
    pub(super) fn head(&mut self, name: &str, kind: &str, what: &str) {
        let _ = writeln!(self.0, "# HELP {name} {what}\n# TYPE {name} {kind}");
    }

    pub(super) fn number(&mut self, name: &str, kind: &str, what: &str, value: u64) {
        self.head(name, kind, what);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// What is not known is left out: zero would be a measurement.
    fn seconds(&mut self, name: &str, what: &str, millis: Option<u64>) {
        let Some(millis) = millis else { return };
        self.head(name, "gauge", what);
        let _ = writeln!(self.0, "{name} {}.{:03}", millis / 1_000, millis % 1_000);
    }

    /// Names and versions have nothing in them that would have to be escaped.
    fn info(&mut self, name: &str, what: &str, labels: &[(&str, &str)]) {
        self.head(name, "gauge", what);
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let _ = writeln!(self.0, "{name}{{{}}} 1", labels.join(","));
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use plimsoll_api::view::LeadershipInfo;
    use plimsoll_model::reason::Unplaced;
    use plimsoll_model::testkit::{cell, service_key, spread};
    use plimsoll_model::{Change, Writer};

    #[test]
    fn nodes_are_counted_by_their_status() {
        let cpus = plimsoll_model::testkit::cpus;
        let cell = cell().node("ash", cpus(1)).node("birch", cpus(1)).node("cedar", cpus(1));
        let cell = cell.runtime_down("birch").down("cedar");
        let mut page = MetricsPage::default();
        nodes(&mut page, node_counts(&cell.state));
        expect![[r#"
            # HELP plimsoll_nodes Nodes of the cell by their status
            # TYPE plimsoll_nodes gauge
            plimsoll_nodes{status="ready"} 1
            plimsoll_nodes{status="runtime_unavailable"} 1
            plimsoll_nodes{status="down"} 1
        "#]]
        .assert_eq(&page.0);
    }

    #[test]
    fn jobs_are_counted_by_how_they_ended() {
        use plimsoll_model::spec::{Lifecycle, Retries};
        use plimsoll_model::testkit::{node_id, replica_id};
        use plimsoll_model::{Generation, ObservedState};
        let mut job = spread(2);
        job.lifecycle = Lifecycle::Job(Retries::NEVER);
        let spec = job.hash;
        let mut cell = cell().node("ash", plimsoll_model::testkit::cpus(1));
        cell = cell.deploy("shop", [("mail", job)]);
        for id in ["shop/mail/1", "shop/mail/2"] {
            let (replica, node) = (replica_id(id), node_id("ash"));
            cell.change(Writer::Scheduler, Change::Place { replica, node, spec });
        }
        let first = replica_id("shop/mail/1");
        cell.report(&first, Generation(1), ObservedState::Completed, None);
        assert_eq!(job_counts(&cell.state), [("completed", 1), ("failed", 0), ("open", 1)]);
    }

    #[test]
    fn what_automatic_moves_were_worth_is_told_of_each_loop() {
        let cell = cell();
        let mut page = MetricsPage::default();
        loops(&mut page, &cell.state, cell.now);
        expect![[r#"
            # HELP plimsoll_moves_reviewed_total Automatic moves that were looked at again, by whether they brought half of what was predicted
            # TYPE plimsoll_moves_reviewed_total counter
            plimsoll_moves_reviewed_total{loop="rebalancer",result="held"} 0
            plimsoll_moves_reviewed_total{loop="rebalancer",result="failed"} 0
            plimsoll_moves_reviewed_total{loop="rebalancer",result="not_judged"} 0
            plimsoll_moves_reviewed_total{loop="rescheduler",result="held"} 0
            plimsoll_moves_reviewed_total{loop="rescheduler",result="failed"} 0
            plimsoll_moves_reviewed_total{loop="rescheduler",result="not_judged"} 0
            # HELP plimsoll_moves_predicted_gain_total What judged moves were to bring: millionths of a node for the rebalancer, points of the score for the rescheduler
            # TYPE plimsoll_moves_predicted_gain_total counter
            plimsoll_moves_predicted_gain_total{loop="rebalancer"} 0
            plimsoll_moves_predicted_gain_total{loop="rescheduler"} 0
            # HELP plimsoll_moves_realised_gain_total What they brought
            # TYPE plimsoll_moves_realised_gain_total counter
            plimsoll_moves_realised_gain_total{loop="rebalancer"} 0
            plimsoll_moves_realised_gain_total{loop="rescheduler"} 0
            # HELP plimsoll_loop_slowdown In one cycle of how many a loop acts: more than 1 while its predictions fail
            # TYPE plimsoll_loop_slowdown gauge
            plimsoll_loop_slowdown{loop="rebalancer"} 1
            plimsoll_loop_slowdown{loop="rescheduler"} 1
            # HELP plimsoll_preemptions_total Times that replicas were to make way for one of higher priority, those given up, and replicas that were stopped for it
            # TYPE plimsoll_preemptions_total counter
            plimsoll_preemptions_total{result="begun"} 0
            plimsoll_preemptions_total{result="withdrawn"} 0
            plimsoll_preemptions_total{result="evicted"} 0
            # HELP plimsoll_preemptions_in_flight Nodes where room is being freed for a replica of higher priority
            # TYPE plimsoll_preemptions_in_flight gauge
            plimsoll_preemptions_in_flight 0
            # HELP plimsoll_reschedule_paused Whether the rescheduler is paused
            # TYPE plimsoll_reschedule_paused gauge
            plimsoll_reschedule_paused 0
        "#]]
        .assert_eq(&page.0);
    }

    #[test]
    fn services_whose_decisions_are_refused_are_counted_from_the_state() {
        let services = [("bad", spread(1)), ("good", spread(1)), ("large", spread(1))];
        let mut cell = cell().deploy("d", services);
        let why = UnplacedReason::DecisionRefused { why: "d-bad-1 does not exist".into() };
        for (service, missing, why) in [("d/bad", 0, why), ("d/large", 1, UnplacedReason::NoNodes)]
        {
            let unplaced = Some(Unplaced { missing, why, since: cell.now });
            let service = service_key(service);
            cell.change(Writer::Scheduler, Change::SetUnplaced { service, unplaced });
        }
        let mut page = MetricsPage::default();
        decisions(&mut page, 7, waiting_services(&cell.state));
        expect![[r"
            # HELP plimsoll_batches_refused_total Batches of decisions of this node, leading, that the state refused since it started
            # TYPE plimsoll_batches_refused_total counter
            plimsoll_batches_refused_total 7
            # HELP plimsoll_services_decision_refused Services that wait because a decision for them was refused twice
            # TYPE plimsoll_services_decision_refused gauge
            plimsoll_services_decision_refused 1
        "]]
        .assert_eq(&page.0);
    }

    #[test]
    fn what_is_known_is_said_in_numbers_and_what_is_not_is_left_out() {
        let tenure = LeadershipInfo {
            engine: Some("etcd".into()),
            led_ms: Some(61_005),
            elections: 3,
            lease_left_ms: None,
            hindrance: None,
        };
        let health = Health {
            node: "birch".into(),
            version: "0.1.0".into(),
            role: "standby".into(),
            leader: Some("ash".into()),
            term: 42,
            applied: 118,
            committed: 120,
            last: 120,
            lag: 2,
            heard_ms: Some(40),
            hash: None,
            trouble: Some(ProblemCode::LogLost),
            tenure,
        };
        expect![[r#"
            # HELP plimsoll_node_info Who this node is, and who leads as far as it knows
            # TYPE plimsoll_node_info gauge
            plimsoll_node_info{node="birch",version="0.1.0",engine="etcd",role="standby",leader="ash"} 1
            # HELP plimsoll_is_leader Whether this node leads
            # TYPE plimsoll_is_leader gauge
            plimsoll_is_leader 0
            # HELP plimsoll_has_leader Whether this node knows a leader
            # TYPE plimsoll_has_leader gauge
            plimsoll_has_leader 1
            # HELP plimsoll_term The newest term this node has seen
            # TYPE plimsoll_term gauge
            plimsoll_term 42
            # HELP plimsoll_elections_total Leaders this node has seen since it started
            # TYPE plimsoll_elections_total counter
            plimsoll_elections_total 3
            # HELP plimsoll_leader_age_seconds How long ago this node saw the one who leads begin
            # TYPE plimsoll_leader_age_seconds gauge
            plimsoll_leader_age_seconds 61.005
            # HELP plimsoll_heard_seconds How long ago this node last heard its leader or, leading, most of the servers
            # TYPE plimsoll_heard_seconds gauge
            plimsoll_heard_seconds 0.040
            # HELP plimsoll_log_applied The last entry of the log that this node has applied
            # TYPE plimsoll_log_applied gauge
            plimsoll_log_applied 118
            # HELP plimsoll_log_committed The last entry that it knows to be committed
            # TYPE plimsoll_log_committed gauge
            plimsoll_log_committed 120
            # HELP plimsoll_log_lag Entries that are committed and not applied here
            # TYPE plimsoll_log_lag gauge
            plimsoll_log_lag 2
            # HELP plimsoll_log_trouble Whether this keeps the cell from taking writes, as this node knows it
            # TYPE plimsoll_log_trouble gauge
            plimsoll_log_trouble{code="log_lost"} 1
            plimsoll_log_trouble{code="disk_full"} 0
            plimsoll_log_trouble{code="disk"} 0
            plimsoll_log_trouble{code="store_full"} 0
            plimsoll_log_trouble{code="bug"} 0
            # HELP plimsoll_control_plane_restarts_total How often this process has started its control plane over after a panic or a failure of the log
            # TYPE plimsoll_control_plane_restarts_total counter
            plimsoll_control_plane_restarts_total 0
        "#]]
        .assert_eq(&text(&health).0);
    }
}
