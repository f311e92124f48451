//! What is where and how, as a page: the cell in a line, its troubles loudly, then deployments, services, replicas.

use std::collections::BTreeSet;

use owo_colors::OwoColorize;
use plimsoll_api::view::{
    CellSummary, Deployment, Node, Progress, Reason, ReasonCode, Service, Status,
};
use plimsoll_model::Timestamp;

use crate::age::age;
use crate::consistency::stale;
use crate::output::count;
use crate::replica_line::{ReplicaLine, availability, coloured, progress_word, said, silence};
use crate::schedule_lines;
use crate::table::Table;

/// As wide as the longest state, so that the page keeps still while replicas change theirs.
const STATE_WIDTH: usize = "completed".len();

/// What begins when something else is done.
const IN_TURN: [ReasonCode; 2] = [ReasonCode::Outdated, ReasonCode::Restart];

/// What is left out of a page that would not fit: first what needs no attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fold {
    Nothing,
    /// Replicas of services that are as they should be.
    Replicas,
    /// Services of deployments that are as they should be.
    Services,
    /// Those deployments altogether; they are counted.
    Deployments,
}

/// The whole page.
pub(crate) fn text(status: &Status, now: Timestamp, width: Option<usize>, fold: Fold) -> String {
    let mut page = cell_line(&status.cell, &status.nodes);
    for trouble in troubles(status, now) {
        page.extend([trouble.red().to_string().as_str(), "\n"]);
    }
    page.push('\n');
    if status.deployments.is_empty() {
        page.push_str("Nothing is deployed. Begin with: plimsoll apply -f compose.yaml\n");
        return page;
    }
    let mut table = Table::new(["NAME", "STATE", "NODE", ">AGE", ">FAILS", "DETAIL"])
        .least(1, STATE_WIDTH)
        .least(3, 3);
    let is_left_out = |deployment: &&Deployment| {
        fold >= Fold::Deployments && deployment.progress == Progress::Steady
    };
    for (at, deployment) in status.deployments.iter().filter(|it| !is_left_out(it)).enumerate() {
        if at > 0 && fold == Fold::Nothing {
            table.blank();
        }
        rows(&mut table, deployment, now, fold);
    }
    let steady = status.deployments.iter().filter(is_left_out).count();
    if steady > 0 {
        let line = format!("{} steady", count(steady, "deployment"));
        page.extend([line.green().to_string().as_str(), "\n"]);
    }
    if !table.is_empty() {
        page.push_str(&table.within(width));
    }
    page
}

/// The page of a terminal with so many lines: folded until it fits, and cut if nothing else helps.
pub(crate) fn lines(status: &Status, now: Timestamp, width: usize, height: usize) -> Vec<String> {
    let page = |fold| -> Vec<String> {
        text(status, now, Some(width), fold).lines().map(str::to_owned).collect()
    };
    let mut lines = page(Fold::Nothing);
    for fold in [Fold::Replicas, Fold::Services, Fold::Deployments] {
        if lines.len() > height {
            lines = page(fold);
        }
    }
    if lines.len() > height {
        let shown = height.saturating_sub(1);
        let more = count(lines.len() - shown, "more line");
        lines.truncate(shown);
        lines.push(
            format!("… {more}; `plimsoll status DEPLOYMENT -w` shows one").dimmed().to_string(),
        );
    }
    lines
}

/// `cell demo: ash leads, 1 node ready`
fn cell_line(cell: &CellSummary, nodes: &[Node]) -> String {
    let leads = match &cell.leader {
        Some(leader) => format!("{leader} leads"),
        None => "no node leads".red().bold().to_string(),
    };
    let ready = nodes.iter().filter(|node| node.status == "ready").count();
    let nodes = if ready == nodes.len() {
        format!("{} ready", count(ready, "node"))
    } else {
        format!("{ready} of {} ready", count(nodes.len(), "node"))
    };
    format!("{} {}: {leads}, {nodes}\n", "cell".dimmed(), cell.name.bold())
}

/// What should not be overlooked, a line each.
fn troubles(status: &Status, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::from_iter(stale(&status.cell.freshness()));
    if let Some(problem) = &status.cell.trouble {
        lines.push(format!("{}: {}", problem.code, problem.message));
    }
    if status.cell.leader.is_none() {
        lines.push("no scheduling without a leader; replicas keep running".to_owned());
    }
    for node in &status.nodes {
        let name = &node.name;
        if node.status == "down" {
            lines.push(format!("{name} is down for {}", age(node.since, now)));
            continue;
        }
        lines.extend(silence(node).map(|silence| format!("{name}: {silence}")));
        if node.availability != "active" {
            lines.push(format!("{name} is {}", availability(node)));
        }
    }
    lines
}

fn rows(table: &mut Table, deployment: &Deployment, now: Timestamp, fold: Fold) {
    let word = progress_word(deployment);
    let mut detail = format!(
        "revision {}, applied {} ago by {}",
        deployment.revision,
        age(deployment.applied_at, now),
        deployment.applied_by,
    );
    for line in unsaid(deployment) {
        detail.extend(["; ", &line]);
    }
    let none = String::new;
    let name = deployment.name.bold().to_string();
    table.row([name, coloured(word), none(), none(), none(), detail]);
    if fold >= Fold::Services && deployment.progress == Progress::Steady {
        return;
    }
    for service in &deployment.services {
        table.row([
            format!("  {}", service.name),
            share(service),
            none(),
            none(),
            none(),
            of_service(service, now),
        ]);
        if fold >= Fold::Replicas && is_calm(service) {
            continue;
        }
        for replica in &service.replicas {
            let line = ReplicaLine::within(deployment, service, replica);
            let detail = format!("{}{}", line.detail, line.countdown(now));
            table.row([
                format!("    {}", replica.id),
                coloured(&line.state),
                line.node.unwrap_or_default(),
                line.since.map_or_else(none, |since| age(since, now)),
                failures(line.failures),
                detail,
            ]);
        }
    }
}

/// `3/3`
fn share(service: &Service) -> String {
    if let Some(schedule) = &service.schedule {
        let is_open = schedule.runs.last().is_some_and(|run| run.state == "open");
        return if is_open { coloured("running") } else { "scheduled".to_owned() };
    }
    let text = format!("{}/{}", service.running, service.wanted);
    if service.running < service.wanted { text.yellow().to_string() } else { text }
}

fn failures(failures: u32) -> String {
    let text = failures.to_string();
    if failures > 0 { text.yellow().to_string() } else { text }
}

fn of_service(service: &Service, now: Timestamp) -> String {
    let mut parts = vec![service.image.clone()];
    parts.extend(service.schedule.as_ref().map(|it| schedule_lines::summary(it, now)));
    parts.extend(Some(service.ports_line()).filter(|line| !line.is_empty()));
    if service.mode != "spread" {
        parts.push(service.mode.clone());
    }
    let phase = service.rollout.as_ref().map(|rollout| rollout.phase.as_str());
    if let Some("paused" | "undoing") = phase {
        parts.extend(phase.map(str::to_owned));
    }
    if service.current < service.running && service.schedule.is_none() {
        parts.push(format!("{} of {} renewed", service.current, service.wanted));
    }
    parts.extend(service.unplaced.as_ref().map(said));
    parts.join("; ")
}

fn is_calm(service: &Service) -> bool {
    service.current == service.wanted
        && service.unplaced.is_none()
        && service.replicas.iter().all(|replica| crate::replica_line::is_ready(service, replica))
}

/// Why the deployment is stuck, each reason once: a rollout that stalled, and what no line below says. That others wait
/// for their turn behind it says nothing more.
fn unsaid(deployment: &Deployment) -> Vec<String> {
    let why: &[Reason] = match &deployment.progress {
        Progress::Stuck { why } => why,
        Progress::Steady | Progress::Working { .. } => &[],
    };
    let mut words = BTreeSet::from(IN_TURN);
    let is_new =
        |reason: &&Reason| reason.word == ReasonCode::Stalled || !is_said(deployment, reason);
    why.iter().filter(is_new).filter(|reason| words.insert(reason.word)).map(said).collect()
}

/// Whether a line below the deployment's own has the word.
fn is_said(deployment: &Deployment, reason: &Reason) -> bool {
    deployment.services.iter().any(|service| {
        service.unplaced.as_ref().is_some_and(|said| said.word == reason.word)
            || service.replicas.iter().any(|replica| {
                let places = [&replica.now, &replica.next];
                let mut said = places
                    .into_iter()
                    .flatten()
                    .filter_map(|place| place.reason.as_ref())
                    .chain(&replica.waiting);
                said.any(|said| said.word == reason.word)
            })
    })
}

/// The last line of a page that is drawn again.
pub(super) fn footer(lost: Option<&str>) -> String {
    match lost {
        Some(lost) => format!("{lost}; retrying").red().to_string(),
        None => "q leaves".dimmed().to_string(),
    }
}

#[cfg(test)]
mod tests;
