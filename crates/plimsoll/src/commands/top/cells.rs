//! The rows of lists as they are drawn: their columns, how wide each is, and what stands in it.

use plimsoll_api::view::{Node, NodeLevels};
use plimsoll_model::Timestamp;
use ratatui::layout::Constraint;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};

use super::bar::{LoadLines, bar, percent};
use super::list::{Entry, List, level, service_name};
use crate::age::age;
use crate::commands::get::{cpu, memory};
use crate::commands::node;
use crate::replica_line::{ReplicaLine, Urgency, plain, progress_word, said};

/// A bar narrower than this says nothing, and one wider no more.
const BAR: std::ops::RangeInclusive<usize> = 6..=40;

/// What stands behind a bar: `100→100%`.
const PERCENT: usize = 8;

/// The columns of a node but for its bars, with the blanks between them.
const BESIDE_BARS: usize = 12 + 17 + 6 + 5 + 6;

pub(super) type Column = (&'static str, Constraint);

pub(super) fn columns(list: &List) -> &'static [Column] {
    use Constraint::{Fill, Length};
    match list {
        List::Nodes => &[
            ("NODE", Length(12)),
            ("STATE", Length(17)),
            ("ROLE", Length(6)),
            ("REPL", Length(5)),
            ("CPU", Fill(1)),
            ("MEMORY", Fill(1)),
        ],
        List::Services => &[
            ("SERVICE", Length(24)),
            ("STATE", Length(8)),
            ("RUNNING", Length(8)),
            ("REV", Length(4)),
            ("IMAGE", Length(20)),
            ("DETAIL", Fill(1)),
        ],
        List::Replicas | List::OnNode(_) | List::OfService(_) => &[
            ("REPLICA", Length(20)),
            ("STATE", Length(9)),
            ("NODE", Length(10)),
            ("AGE", Length(4)),
            ("CPU", Length(5)),
            ("MEMORY", Length(8)),
            ("DETAIL", Fill(1)),
        ],
        List::Moves => &[
            ("REPLICA", Length(24)),
            ("FROM", Length(10)),
            ("TO", Length(10)),
            ("CAUSE", Length(16)),
            ("THERE", Length(9)),
            ("AGE", Length(4)),
            ("DETAIL", Fill(1)),
        ],
        List::Audit => {
            &[("TIME", Length(8)), ("KIND", Length(20)), ("BY", Length(16)), ("EVENT", Fill(1))]
        }
    }
}

/// How a row is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawing {
    pub(super) now: Timestamp,
    pub(super) lines: Option<LoadLines>,
    /// Of the whole screen.
    pub(super) width: usize,
}

impl Drawing {
    pub(super) fn cells(self, entry: &Entry<'_>) -> Vec<Line<'static>> {
        let now = self.now;
        match entry {
            Entry::Node(node, levels) => self.node(node, *levels),
            Entry::Service(deployment, service) => {
                let unplaced = service.unplaced.as_ref().map(said);
                let rollout = service.rollout.as_ref().map(rollout);
                vec![
                    service_name(deployment, service).into(),
                    state(progress_word(deployment)),
                    format!("{} of {}", service.running, service.wanted).into(),
                    deployment.revision.to_string().into(),
                    plain(&service.image).into(),
                    unplaced.or(rollout).unwrap_or_default().into(),
                ]
            }
            Entry::Replica(deployment, service, replica) => {
                let line = ReplicaLine::within(deployment, service, replica);
                let place = replica.now.as_ref();
                vec![
                    replica.id.clone().into(),
                    state(&line.state),
                    line.node.clone().unwrap_or_default().into(),
                    line.since.map(|since| age(since, now)).unwrap_or_default().into(),
                    cpu(place.and_then(|it| it.cpu_millis)).into(),
                    memory(place.and_then(|it| it.memory_bytes)).into(),
                    format!("{}{}", line.detail, line.countdown(now)).into(),
                ]
            }
            Entry::Move(replica, from, to) => vec![
                replica.id.clone().into(),
                from.node.clone().into(),
                to.node.clone().into(),
                replica.cause.as_ref().map(ToString::to_string).unwrap_or_default().into(),
                state(&to.state),
                age(to.since, now).into(),
                to.reason.as_ref().map(said).unwrap_or_default().into(),
            ],
            Entry::Event(event) => {
                let at = event.at.to_string();
                // The day is the same for nearly all of them.
                let time = at.get(11..19).unwrap_or(&at).to_owned();
                vec![
                    time.into(),
                    event.what.clone().into(),
                    plain(&event.by).into(),
                    plain(&event.text).into(),
                ]
            }
        }
    }

    fn node(self, node: &Node, levels: Option<&NodeLevels>) -> Vec<Line<'static>> {
        let (cpu, memory) = level(node, levels);
        let predicted = levels.and_then(|levels| levels.predicted);
        let bars = (self.width.saturating_sub(BESIDE_BARS) / 2).saturating_sub(PERCENT + 1);
        let width = bars.clamp(*BAR.start(), *BAR.end());
        let gauge = |level, then| {
            let mut line = bar(width, level, self.lines);
            line.push_span(format!(" {}", percent(level, then)));
            line
        };
        let word = anstream::adapter::strip_str(&node::state(node, self.now)).to_string();
        vec![
            node.name.clone().into(),
            Line::styled(word.clone(), colour(word.split([' ', ',']).next().unwrap_or_default())),
            node.role.clone().into(),
            node.replicas.to_string().into(),
            gauge(cpu, predicted.map(|it| it.cpu)),
            gauge(memory, predicted.map(|it| it.memory)),
        ]
    }

    /// What stands above the replicas of one node.
    pub(super) fn of_node(self, node: &Node, levels: Option<&NodeLevels>) -> Vec<Line<'static>> {
        let (cpu, memory) = level(node, levels);
        let predicted = levels.and_then(|levels| levels.predicted);
        let state = anstream::adapter::strip_str(&node::state(node, self.now)).to_string();
        let zone = node.zone.as_ref().map(|zone| format!(", zone {zone}")).unwrap_or_default();
        let of = format!(" {state}, {}{zone}, {}", node.role, node::runtime(node));
        let gauge = |name: &'static str, level, then, now: Option<u32>| {
            let mut line = Line::from(Span::from(name).bold());
            line.extend(bar(*BAR.end(), level, self.lines));
            let measured = node::share(now);
            line.push_span(format!(" {} smoothed, {measured} now", percent(level, then)));
            line
        };
        let measured = node.pressure;
        let mut lines = vec![
            Line::from_iter([Span::from(node.name.clone()).bold(), of.into()]),
            gauge("cpu    ", cpu, predicted.map(|it| it.cpu), measured.and_then(|it| it.cpu)),
            gauge(
                "memory ",
                memory,
                predicted.map(|it| it.memory),
                measured.and_then(|it| it.memory),
            ),
            format!("reserved {}", node::reserved(node.reserved, node.capacity)).into(),
        ];
        lines.extend(node.fill.as_ref().map(|fill| Line::from(plain(&fill.text))));
        lines
    }

    /// What stands above the replicas of one service.
    pub(super) fn of_service(entry: &Entry<'_>) -> Vec<Line<'static>> {
        let Entry::Service(deployment, service) = entry else { return Vec::new() };
        let name = Span::from(service_name(deployment, service)).bold();
        let running = format!(
            " {}, {} of {} running, {}",
            plain(&service.image),
            service.running,
            service.wanted,
            service.mode
        );
        let mut lines = vec![Line::from_iter([name, running.into()])];
        let ports = service.ports_line();
        lines.extend((!ports.is_empty()).then(|| Line::from(format!("ports {ports}"))));
        lines.extend(service.rollout.as_ref().map(|it| Line::from(rollout(it))));
        let unplaced = service.unplaced.as_ref().map(said);
        lines.extend(unplaced.map(|it| Line::styled(it, Style::new().fg(Color::Red))));
        lines
    }
}

/// `rolling to revision 4: 1 updated`
fn rollout(rollout: &plimsoll_api::view::Rollout) -> String {
    let why = rollout.why.as_ref().map(|why| format!(": {}", plain(why))).unwrap_or_default();
    let (phase, revision, updated) = (&rollout.phase, rollout.revision, rollout.updated);
    format!("revision {revision} {phase}, {updated} updated{why}")
}

fn state(word: &str) -> Line<'static> {
    Line::styled(word.to_owned(), colour(word))
}

/// As every page colours it.
fn colour(word: &str) -> Style {
    match Urgency::of(word) {
        Urgency::Fine => Style::new().fg(Color::Green),
        Urgency::Wrong => Style::new().fg(Color::Red),
        Urgency::Busy => Style::new().fg(Color::Yellow),
        Urgency::Leaving => Style::new().fg(Color::DarkGray),
        Urgency::Unknown => Style::new(),
    }
}
