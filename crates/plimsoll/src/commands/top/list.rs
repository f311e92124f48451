//! What a page lists, in which order, and which of it a filter leaves: nodes, services, replicas, moves, audit events. How they are
//! drawn is in [`cells`](super::cells).

use std::cmp::Reverse;

use plimsoll_api::view::{
    Assignment, AuditEvent, CellPressure, Deployment, Node, NodeLevels, Replica, Service, Status,
};
use plimsoll_model::Pressure;

use crate::replica_line::{ReplicaLine, is_ready};

/// The cell as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    /// None where the daemon does not tell it.
    pub(crate) pressure: Option<CellPressure>,
    /// Oldest first.
    pub(crate) audit: Vec<AuditEvent>,
}

impl Seen {
    pub(super) fn levels(&self, node: &str) -> Option<&NodeLevels> {
        // They come sorted by name.
        let nodes = &self.pressure.as_ref()?.nodes;
        let at = nodes.binary_search_by(|levels| levels.node.as_str().cmp(node)).ok()?;
        nodes.get(at)
    }

    pub(super) fn services(&self) -> impl Iterator<Item = (&Deployment, &Service)> {
        let deployments = self.status.deployments.iter();
        deployments.flat_map(|it| it.services.iter().map(move |service| (it, service)))
    }

    pub(super) fn replicas(&self) -> impl Iterator<Item = (&Deployment, &Service, &Replica)> {
        self.services()
            .flat_map(|(it, service)| service.replicas.iter().map(move |at| (it, service, at)))
    }

    pub(super) fn service(&self, name: &str) -> Option<(&Deployment, &Service)> {
        self.services().find(|(deployment, service)| service_name(deployment, service) == name)
    }

    pub(super) fn replica(&self, id: &str) -> Option<(&Deployment, &Service, &Replica)> {
        self.replicas().find(|(.., replica)| replica.id == id)
    }

    pub(super) fn moves(&self) -> impl Iterator<Item = (&Replica, &Assignment, &Assignment)> {
        self.replicas().filter_map(|(.., replica)| under_way(replica))
    }
}

/// `shop/web`
pub(super) fn service_name(deployment: &Deployment, service: &Service) -> String {
    format!("{}/{}", deployment.name, service.name)
}

/// Where it comes from and where it goes.
fn under_way(replica: &Replica) -> Option<(&Replica, &Assignment, &Assignment)> {
    Some((replica, replica.now.as_ref()?, replica.next.as_ref()?))
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Nodes,
    Services,
    Replicas,
    Moves,
    Audit,
    /// The replicas of one node.
    OnNode(String),
    /// The replicas of one service.
    OfService(String),
}

/// Those that have a key of their own, in its order.
pub(super) static TABS: [(&str, List); 5] = [
    ("Nodes", List::Nodes),
    ("Services", List::Services),
    ("Replicas", List::Replicas),
    ("Moves", List::Moves),
    ("Audit", List::Audit),
];

/// What a list can be sorted by. The first is how it opens; a name is in ascending order, all else with what matters most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Pressure,
    Replicas,
    Trouble,
    Node,
    Cpu,
    Memory,
    Age,
}

impl Sort {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Pressure => "pressure",
            Self::Replicas => "replicas",
            Self::Trouble => "trouble",
            Self::Node => "node",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Age => "newest",
        }
    }
}

impl List {
    pub(super) fn sorts(&self) -> &'static [Sort] {
        match self {
            Self::Nodes => &[Sort::Name, Sort::Pressure, Sort::Replicas, Sort::Trouble],
            Self::Services => &[Sort::Name, Sort::Trouble, Sort::Replicas],
            Self::Replicas | Self::OnNode(_) | Self::OfService(_) => {
                &[Sort::Name, Sort::Trouble, Sort::Node, Sort::Cpu, Sort::Memory, Sort::Age]
            }
            Self::Moves => &[Sort::Age, Sort::Name],
            Self::Audit => &[Sort::Age],
        }
    }
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entry<'s> {
    Node(&'s Node, Option<&'s NodeLevels>),
    Service(&'s Deployment, &'s Service),
    Replica(&'s Deployment, &'s Service, &'s Replica),
    Move(&'s Replica, &'s Assignment, &'s Assignment),
    Event(&'s AuditEvent),
}

/// The rows of a list that the filter leaves, sorted.
pub(super) fn entries<'s>(
    seen: &'s Seen,
    list: &List,
    filter: &str,
    sort: Sort,
    is_reversed: bool,
) -> Vec<Entry<'s>> {
    let filter = filter.to_lowercase();
    let mut entries: Vec<Entry<'s>> = match list {
        List::Nodes => {
            let nodes = seen.status.nodes.iter();
            nodes.map(|node| Entry::Node(node, seen.levels(&node.name))).collect()
        }
        List::Services => {
            seen.services().map(|(it, service)| Entry::Service(it, service)).collect()
        }
        List::Replicas => seen.replicas().map(replica_entry).collect(),
        List::OnNode(node) => {
            let here = seen.replicas().filter(|(.., replica)| is_on(replica, node));
            here.map(replica_entry).collect()
        }
        List::OfService(name) => {
            let of = |(deployment, service, _): &(&Deployment, &Service, &Replica)| {
                service_name(deployment, service) == *name
            };
            seen.replicas().filter(of).map(replica_entry).collect()
        }
        List::Moves => seen.moves().map(|(it, from, to)| Entry::Move(it, from, to)).collect(),
        List::Audit => seen.audit.iter().map(Entry::Event).collect(),
    };
    entries.retain(|entry| filter.is_empty() || entry.matches(&filter));
    entries.sort_by_cached_key(|entry| (entry.rank(sort), entry.id()));
    if is_reversed {
        entries.reverse();
    }
    entries
}

fn replica_entry<'s>(
    (deployment, service, replica): (&'s Deployment, &'s Service, &'s Replica),
) -> Entry<'s> {
    Entry::Replica(deployment, service, replica)
}

/// Also while it only comes or goes.
fn is_on(replica: &Replica, node: &str) -> bool {
    let places = replica.now.iter().chain(&replica.next).chain(&replica.leaving);
    places.into_iter().any(|place| place.node == node)
}

/// What an order compares: the number first, the largest before the others, then the text.
type Rank = (Reverse<u64>, String);

impl Entry<'_> {
    /// What it is chosen by, however the list is sorted.
    pub(super) fn id(&self) -> String {
        match self {
            Self::Node(node, _) => node.name.clone(),
            Self::Service(deployment, service) => service_name(deployment, service),
            Self::Replica(.., replica) | Self::Move(replica, ..) => replica.id.clone(),
            // As wide as the largest, so that they sort as numbers do.
            Self::Event(event) => format!("{:020}", event.seq),
        }
    }

    fn matches(&self, filter: &str) -> bool {
        let has = |text: &str| text.to_lowercase().contains(filter);
        match self {
            Self::Node(node, _) => {
                let zone = node.zone.as_deref().is_some_and(has);
                [&node.name, &node.status, &node.availability, &node.role]
                    .map(|it| has(it))
                    .contains(&true)
                    || zone
            }
            Self::Service(deployment, service) => {
                has(&service_name(deployment, service)) || has(&service.image)
            }
            Self::Replica(deployment, service, replica) => {
                let line = ReplicaLine::within(deployment, service, replica);
                has(&replica.id)
                    || has(&service_name(deployment, service))
                    || has(&line.state)
                    || line.node.as_deref().is_some_and(has)
                    || has(&line.detail)
            }
            Self::Move(replica, from, to) => {
                let cause = replica.cause.as_ref().map(ToString::to_string);
                has(&replica.id)
                    || has(&from.node)
                    || has(&to.node)
                    || has(&to.state)
                    || cause.as_deref().is_some_and(has)
            }
            Self::Event(event) => has(&event.what) || has(&event.text) || has(&event.by),
        }
    }

    fn rank(&self, sort: Sort) -> Rank {
        let (number, text) = match sort {
            Sort::Name => (0, String::new()),
            Sort::Node => (0, self.node().unwrap_or_default().to_owned()),
            Sort::Pressure => (self.pressure(), String::new()),
            Sort::Replicas => (self.replicas(), String::new()),
            Sort::Trouble => (self.trouble(), String::new()),
            Sort::Cpu => (self.place().and_then(|it| it.cpu_millis).unwrap_or(0), String::new()),
            Sort::Memory => {
                (self.place().and_then(|it| it.memory_bytes).unwrap_or(0), String::new())
            }
            Sort::Age => (self.since(), String::new()),
        };
        (Reverse(number), text)
    }

    fn place(&self) -> Option<&Assignment> {
        match self {
            Self::Replica(.., replica) | Self::Move(replica, ..) => {
                replica.now.as_ref().or(replica.leaving.first())
            }
            Self::Node(..) | Self::Service(..) | Self::Event(_) => None,
        }
    }

    fn node(&self) -> Option<&str> {
        self.place().map(|place| place.node.as_str())
    }

    fn pressure(&self) -> u64 {
        match self {
            Self::Node(node, levels) => u64::from(
                level(node, *levels).0.max(level(node, *levels).1).map_or(0, Pressure::millionths),
            ),
            _ => 0,
        }
    }

    fn replicas(&self) -> u64 {
        match self {
            Self::Node(node, _) => u64::from(node.replicas),
            Self::Service(_, service) => u64::from(service.wanted),
            Self::Replica(..) | Self::Move(..) | Self::Event(_) => 0,
        }
    }

    /// How much there is to look at.
    fn trouble(&self) -> u64 {
        match self {
            Self::Node(node, _) if node.status != "ready" => 2,
            Self::Node(node, _) => u64::from(node.availability != "active"),
            Self::Service(_, service) => u64::from(service.wanted.saturating_sub(service.current)),
            Self::Replica(_, service, replica) => {
                let failures = replica.now.as_ref().map_or(0, |now| now.failures);
                u64::from(!is_ready(service, replica)) + u64::from(failures)
            }
            Self::Move(..) | Self::Event(_) => 0,
        }
    }

    fn since(&self) -> u64 {
        match self {
            Self::Event(event) => event.seq,
            Self::Move(_, _, to) => to.since.0.0,
            Self::Node(node, _) => node.since.0.0,
            Self::Service(deployment, _) => deployment.applied_at.0.0,
            Self::Replica(..) => self.place().map_or(0, |place| place.since.0.0),
        }
    }
}

/// Cpu and memory as the rebalancer judges them, else as they were last measured.
pub(super) fn level(
    node: &Node,
    levels: Option<&NodeLevels>,
) -> (Option<Pressure>, Option<Pressure>) {
    let measured = |share: Option<u32>| share.map(Pressure::from_millionths);
    match levels.and_then(|levels| levels.smoothed) {
        Some(smoothed) => (Some(smoothed.cpu), Some(smoothed.memory)),
        None => (
            node.pressure.and_then(|it| measured(it.cpu)),
            node.pressure.and_then(|it| measured(it.memory)),
        ),
    }
}
