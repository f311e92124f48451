//! A replica in one line: the state it is in, where, and the one thing to know about it. Every page and every line of
//! progress says it in these words.

use owo_colors::OwoColorize;
use plimsoll_api::view::{
    Assignment, Deployment, Node, Progress, Reason, ReasonCode, Replica, Service, Time,
};
use plimsoll_model::Timestamp;

use crate::age::until;

/// What is worth a line of a replica. Nothing in it changes while the replica does not, save [`ReplicaLine::countdown`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaLine {
    pub(crate) state: String,
    pub(crate) node: Option<String>,
    pub(crate) since: Option<Time>,
    pub(crate) failures: u32,
    pub(crate) detail: String,
    pub(crate) next_try: Option<Time>,
}

impl ReplicaLine {
    pub(crate) fn of(replica: &Replica) -> Self {
        let Some(shown) = replica.now.as_ref().or(replica.leaving.first()) else {
            return Self::unknown();
        };
        let is_leaving = replica.now.is_none() && replica.next.is_none();
        // A job that is done is as good as one that runs; only people want to tell them apart.
        let is_done =
            shown.reason.as_ref().is_some_and(|reason| reason.word == ReasonCode::Completed);
        let state = match (is_leaving, is_done) {
            (true, _) => "stopping",
            (false, true) => ReasonCode::Completed.word(),
            (false, false) => &shown.state,
        };
        let mut detail: Vec<String> = Vec::new();
        detail.extend(shown.reason.as_ref().filter(|_| !is_done).map(said));
        detail.extend(replica.next.as_ref().map(|next| moving(shown, next, replica)));
        detail.extend(replica.waiting.as_ref().map(|why| format!("waits: {}", plain(&why.text))));
        if !is_leaving && !replica.leaving.is_empty() && replica.next.is_none() {
            detail.push("the old one stops".to_owned());
        }
        let next_try = shown.next_try.or(replica.next.as_ref().and_then(|next| next.next_try));
        Self {
            state: state.to_owned(),
            node: Some(shown.node.clone()),
            since: Some(shown.since),
            failures: shown.failures,
            detail: detail.join("; "),
            next_try,
        }
    }

    /// As [`ReplicaLine::of`], with what its service and deployment have in store for it.
    pub(crate) fn within(deployment: &Deployment, service: &Service, replica: &Replica) -> Self {
        let mut line = Self::of(replica);
        if deployment.is_deleted && line.node.is_some() {
            "stopping".clone_into(&mut line.state);
        }
        if let (Some(now), None) = (&replica.now, &replica.next)
            && now.spec != service.spec
            && line.detail.is_empty()
            && service.schedule.is_none()
            && !deployment.is_deleted
        {
            line.detail = format!("still revision {}", now.revision);
        }
        line
    }

    fn unknown() -> Self {
        let (node, since, next_try) = (None, None, None);
        Self { state: "gone".into(), node, since, failures: 0, detail: String::new(), next_try }
    }

    /// `; next try in 8s`
    pub(crate) fn countdown(&self, now: Timestamp) -> String {
        let Some(at) = self.next_try else { return String::new() };
        let between = if self.detail.is_empty() { "" } else { "; " };
        format!("{between}next try {}", until(at, now))
    }

    /// `starting on ash: …`
    pub(crate) fn sentence(&self) -> String {
        let mut text = coloured(&self.state);
        if let Some(node) = &self.node {
            text.extend([" on ", node]);
        }
        if !self.detail.is_empty() {
            text.extend([": ", &self.detail]);
        }
        text
    }
}

/// `replacing: the new one is starting`, `moving to birch (node_lost): starting there`.
fn moving(now: &Assignment, next: &Assignment, replica: &Replica) -> String {
    let why = next.reason.as_ref().map(|reason| format!(" ({})", said(reason)));
    let why = why.unwrap_or_default();
    if now.node == next.node {
        return format!("replacing: the new one is {}{why}", next.state);
    }
    let cause = replica.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    format!("moving to {}{cause}: {} there{why}", next.node, next.state)
}

/// `image_pull_failed: no such tag`
pub(crate) fn said(reason: &Reason) -> String {
    let text = plain(&reason.text);
    if text.is_empty() { reason.word.to_string() } else { format!("{}: {text}", reason.word) }
}

/// On one line and without anything that would steer a terminal: parts of it were written by others.
pub(crate) fn plain(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// `docker does not answer: connection refused (retrying)`; none while the node's runtime answers.
pub(crate) fn silence(node: &Node) -> Option<String> {
    let runtime = node.runtime.as_ref()?;
    let trouble = plain(runtime.trouble.as_ref()?);
    let opening = format!("{} does not answer", runtime.name);
    let is_said = trouble.starts_with(&opening);
    let text = if is_said { trouble } else { format!("{opening}: {trouble}") };
    Some(format!("{text} (retrying)"))
}

/// What an operator allows on the node: one that has given everything away is drained, and no longer draining.
pub(crate) fn availability(node: &Node) -> &str {
    let is_drained = node.availability == "draining" && node.replicas == 0;
    if is_drained { "drained" } else { &node.availability }
}

/// Whether it runs what it should, and nothing of it is on its way.
pub(crate) fn is_ready(service: &Service, replica: &Replica) -> bool {
    let runs = |now: &Assignment| now.state == "running" && now.spec == service.spec;
    replica.now.as_ref().is_some_and(runs) && replica.next.is_none() && replica.leaving.is_empty()
}

/// How many replicas are ready, and how many there should be.
pub(crate) fn ready(deployment: &Deployment) -> (u32, u32) {
    let all = deployment.services.iter();
    all.fold((0, 0), |(ready, wanted), service| {
        let here = service.replicas.iter().filter(|replica| is_ready(service, replica)).count();
        (ready + u32::try_from(here).unwrap_or(u32::MAX), wanted + service.wanted)
    })
}

pub(crate) fn progress_word(deployment: &Deployment) -> &'static str {
    match deployment.progress {
        _ if deployment.is_deleted => "deleting",
        Progress::Steady => "steady",
        Progress::Working { .. } => "working",
        Progress::Stuck { .. } => "stuck",
    }
}

/// How urgent a state is, whatever it is shown on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// As it should be.
    Fine,
    /// Somebody should look.
    Wrong,
    /// It changes.
    Busy,
    /// It is on its way out.
    Leaving,
    Unknown,
}

impl Urgency {
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "running" | "completed" | "steady" | "ready" => Self::Fine,
            "degraded"
            | "failed"
            | "lost"
            | "unknown"
            | "stuck"
            | "down"
            | "runtime_unavailable" => Self::Wrong,
            "assigned" | "pending" | "pulling" | "starting" | "working" | "cordoned"
            | "draining" => Self::Busy,
            "stopping" | "stopped" | "gone" | "deleting" => Self::Leaving,
            _ => Self::Unknown,
        }
    }
}

/// The word in the colour of its urgency.
pub(crate) fn coloured(word: &str) -> String {
    match Urgency::of(word) {
        Urgency::Fine => word.green().to_string(),
        Urgency::Wrong => word.red().to_string(),
        Urgency::Busy => word.yellow().to_string(),
        Urgency::Leaving => word.dimmed().to_string(),
        Urgency::Unknown => word.to_owned(),
    }
}
