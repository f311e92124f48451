//! The progress of a deployment as the API says it. Whether it is steady, working or stuck is settled in the kernel; here
//! comes in what only this process knows, and the list of reasons is bounded.

use plimsoll_kernel::condition::ReplicaCondition;
use plimsoll_kernel::progress::{
    DeploymentProgress, EdgeReports, ProgressItem, ProgressReason, ProgressSubject, progress,
};
use plimsoll_model::{DeploymentName, NodeId, ServiceKey};

use super::{Services, Source};
use plimsoll_api::view::{Progress, Reason, ReasonCode};

/// How many reasons a deployment gives; replicas say the rest themselves.
const MAX_REASONS: usize = 50;

pub(super) fn of(source: &Source<'_>, name: &DeploymentName, services: &Services<'_>) -> Progress {
    let services = services.iter().copied();
    match progress(source.state, source.policy, services, source, source.here.now) {
        DeploymentProgress::Steady => Progress::Steady,
        DeploymentProgress::Working(items) => {
            Progress::Working { doing: bounded(source, name, items) }
        }
        DeploymentProgress::Stuck(items) => Progress::Stuck { why: bounded(source, name, items) },
    }
}

fn bounded(source: &Source<'_>, name: &DeploymentName, items: Vec<ProgressItem>) -> Vec<Reason> {
    let more = items.len().saturating_sub(MAX_REASONS);
    let shown = items.into_iter().take(MAX_REASONS).map(|item| renewed(source, item));
    let mut reasons: Vec<Reason> = shown.map(|it| Reason::of(&it.subject, &it.reason)).collect();
    if more > 0 {
        reasons.push(Reason::new(name, ReasonCode::More, format!("and {more} more")));
    }
    reasons
}

/// The same with what the replica's last check printed.
fn renewed(source: &Source<'_>, mut item: ProgressItem) -> ProgressItem {
    if let (ProgressSubject::Replica(id), ProgressReason::Replica(condition)) =
        (&item.subject, &mut item.reason)
        && let Some(replica) = source.state.replica(id)
    {
        let (startup, assignment) = match condition {
            ReplicaCondition::Moving { successor, .. } => {
                (successor, replica.successor.as_ref().map(|successor| &successor.assignment))
            }
            ReplicaCondition::Starting { startup, .. } => (startup, replica.assignment.as_ref()),
            _ => return item,
        };
        if let (Some(seen), Some(assignment)) = (&mut startup.observed, assignment) {
            seen.code = source.observed_code(id, assignment.generation, Some(seen));
        }
    }
    item
}

impl EdgeReports for Source<'_> {
    fn unbound_ports(&self, service: &ServiceKey) -> Vec<String> {
        let own = self.ingress.unbound_ports.iter().filter(|((of, _), _)| of == service);
        own.map(|(_, why)| why.clone()).collect()
    }

    fn runtime_down(&self, node: &NodeId) -> Option<(String, String)> {
        let runtime = self.measured.nodes.get(node)?.runtime.as_ref()?;
        Some((runtime.name.clone(), runtime.trouble.clone()?))
    }
}
