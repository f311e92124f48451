//! How a deployment gets there: as lines drawn in place for a terminal, and as a line for each change elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use owo_colors::OwoColorize;
use plimsoll_api::view::{Deployment, Status};
use plimsoll_model::{Millis, Timestamp};

use crate::age::took;
use crate::output::count;
use crate::replica_line::{ReplicaLine, coloured, is_ready, ready, said, silence};
use crate::table::Table;

/// What has been told of each replica and node.
#[derive(Debug, Default)]
pub(super) struct ProgressStory {
    told: BTreeMap<String, String>,
    /// Replicas that were ever not ready: the others need no line.
    touched: BTreeSet<String>,
}

impl ProgressStory {
    /// What there is to tell that was not told before, a line each.
    pub(super) fn changes(&mut self, status: &Status, deployment: &Deployment) -> Vec<String> {
        let mut facts = troubles(status);
        for service in &deployment.services {
            if let Some(why) = &service.unplaced {
                facts.insert(format!("{}/{}", deployment.name, service.name), said(why));
            }
            for replica in &service.replicas {
                if !is_ready(service, replica) {
                    self.touched.insert(replica.id.clone());
                }
                if self.touched.contains(&replica.id) {
                    facts.insert(
                        replica.id.clone(),
                        ReplicaLine::within(deployment, service, replica).sentence(),
                    );
                }
            }
        }
        for subject in self.told.keys() {
            let is_replica = self.touched.contains(subject);
            let end = if is_replica { coloured("gone") } else { "recovered".to_owned() };
            facts.entry(subject.clone()).or_insert(end);
        }
        let is_news = |(subject, fact): &(&String, &String)| self.told.get(*subject) != Some(*fact);
        let lines = facts.iter().filter(is_news).map(|(subject, fact)| format!("{subject} {fact}"));
        let lines = lines.collect();
        self.told = facts;
        lines
    }

    /// All of it as it stands, as far as it fits; what is done is left out first.
    pub(super) fn lines(
        &self,
        status: &Status,
        deployment: &Deployment,
        at: Millis,
        now: Timestamp,
        (width, height): (usize, usize),
    ) -> Vec<String> {
        let (is, wanted) = ready(deployment);
        let (name, revision) = (deployment.name.bold(), deployment.revision);
        let at = took(at);
        let mut lines = vec![if deployment.is_deleted {
            format!("{name} is being deleted, {at}")
        } else {
            format!("{name} revision {revision}: {is} of {wanted} replicas ready, {at}")
        }];
        for (subject, trouble) in troubles(status) {
            lines.push(format!("  {subject} {}", trouble.red()));
        }
        // One line stays free for the cursor, and one for the count of what is left out.
        let room = height.saturating_sub(lines.len() + 2);
        let mut table = self.table(deployment, now, false).within(Some(width));
        if table.lines().count() > room {
            table = self.table(deployment, now, true).within(Some(width));
        }
        let all = table.lines().count();
        lines.extend(table.lines().take(room).map(str::to_owned));
        if all > room {
            lines.push(format!("  … {}", count(all - room, "more line")).dimmed().to_string());
        }
        lines
    }

    fn table(&self, deployment: &Deployment, now: Timestamp, is_short: bool) -> Table {
        let mut table = Table::list(4).least(1, "completed".len());
        for service in &deployment.services {
            if let Some(why) = &service.unplaced {
                let lacks = "pending".yellow().to_string();
                table.row([service.name.clone(), lacks, String::new(), said(why)]);
            }
            let shown = service.replicas.iter().filter(|replica| {
                self.touched.contains(&replica.id) && !(is_short && is_ready(service, replica))
            });
            for replica in shown {
                let line = ReplicaLine::within(deployment, service, replica);
                let detail = format!("{}{}", line.detail, line.countdown(now));
                let node = line.node.unwrap_or_default();
                table.row([replica.id.clone(), coloured(&line.state), node, detail]);
            }
        }
        table
    }
}

/// Nodes whose runtime does not answer: nothing gets anywhere on them.
fn troubles(status: &Status) -> BTreeMap<String, String> {
    let silent = status.nodes.iter().filter_map(|node| Some((node, silence(node)?)));
    silent.map(|(node, silence)| (node.name.clone(), format!("waits: {silence}"))).collect()
}

#[cfg(test)]
mod tests;
