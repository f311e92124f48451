//! What this node has seen or done and the cell has not written yet. Only the latest word on each thing is kept, so that a
//! burst of changes is one entry of the log, and a cell without a leader costs no memory.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_model::{DeploymentName, Generation, ReplicaId, ServiceKey, SpecHash};
use plimsoll_runtime::VolumeRef;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::frame::Report;

/// How long the first word waits for others to go with it.
const GATHER: Duration = Duration::from_millis(5);

/// What a report is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Container(ReplicaId, Generation),
    Volumes(DeploymentName),
    Volume(VolumeRef),
    VolumeMove(Generation),
    /// Commands of one person in one replica: the server that asked has written down each.
    Command(ReplicaId, String),
    Authority,
    Image(ServiceKey, SpecHash),
}

impl About {
    fn of(report: &Report) -> Self {
        match report {
            Report::Seen(seen) => Self::Container(seen.replica.clone(), seen.generation),
            Report::Cleared(cleared) => Self::Volumes(cleared.deployment.clone()),
            Report::VolumeRemoved { volume, .. } => Self::Volume(volume.clone()),
            Report::VolumesCopied { order, .. } => Self::VolumeMove(*order),
            Report::Served(served) => {
                Self::Command(served.replica.clone(), served.asked_by.clone())
            }
            Report::Followed { .. } => Self::Authority,
            Report::Declared(declared) => Self::Image(declared.service.clone(), declared.spec),
        }
    }
}

#[derive(Debug)]
pub(super) struct Outbox {
    reports: mpsc::UnboundedReceiver<Report>,
    waiting: BTreeMap<About, Report>,
    /// Sent, and not known to be written.
    sent: BTreeMap<About, Report>,
    seq: u64,
}

impl Outbox {
    pub(super) fn new(reports: mpsc::UnboundedReceiver<Report>) -> Self {
        Self { reports, waiting: BTreeMap::new(), sent: BTreeMap::new(), seq: 0 }
    }

    /// The next reports to send, once the last ones are written. Never returns when the agent is gone.
    pub(super) async fn next(&mut self) -> (u64, Vec<Report>) {
        if !self.sent.is_empty() {
            std::future::pending::<()>().await;
        }
        if self.waiting.is_empty() {
            match self.reports.recv().await {
                Some(report) => self.take(report),
                None => std::future::pending().await,
            }
            sleep(GATHER).await;
        }
        while let Ok(report) = self.reports.try_recv() {
            self.take(report);
        }
        self.seq += 1;
        self.sent = std::mem::take(&mut self.waiting);
        (self.seq, self.sent.values().cloned().collect())
    }

    /// The reports of this number are in the log, or refused for good.
    pub(super) fn written(&mut self, seq: u64) {
        if seq == self.seq {
            self.sent.clear();
        }
    }

    /// Whoever the last ones were sent to is gone: they go to the next. What is newer stands.
    pub(super) fn resend(&mut self) {
        for (key, report) in std::mem::take(&mut self.sent) {
            self.waiting.entry(key).or_insert(report);
        }
    }

    fn take(&mut self, report: Report) {
        self.waiting.insert(About::of(&report), report);
    }
}
