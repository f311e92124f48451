//! How many bytes deployments may take: all of it is in the memory of every server, in each snapshot and in each backup.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use serde::Serialize;

use super::deployments::Services;
use crate::command::Refusal;
use crate::ids::DeploymentName;
use crate::spec::RouteSpec;
use crate::state::{
    Deployment, MAX_CELL_BYTES, MAX_HISTORY_BYTES, MAX_REVISION_BYTES, MAX_REVISIONS,
    RevisionRecord, State,
};
use crate::units::Revision;

pub(super) type History = BTreeMap<Revision, RevisionRecord>;

/// What a revision takes, as JSON: the same on every server.
pub(super) fn size(services: &Services, routes: &[RouteSpec]) -> u64 {
    written(services).saturating_add(written(routes))
}

/// Whether the oldest revision has to go. The newest stays, and is judged by itself.
pub(super) fn is_over(history: &History) -> bool {
    history.len() > 1 && bytes(history) > MAX_HISTORY_BYTES
}

impl State {
    /// Whether there is room for this as the next revision of a deployment. Asked before anything is written, so that what is
    /// refused costs the log nothing, and again when it is.
    pub fn check_quota(
        &self,
        name: &DeploymentName,
        services: &Services,
        routes: &[RouteSpec],
    ) -> Result<(), Refusal> {
        let current = self.deployments.get(name);
        let is_same = |r: &RevisionRecord| r.services == *services && r.routes == *routes;
        if current.and_then(Deployment::current).is_some_and(is_same) {
            return Ok(());
        }
        let found = size(services, routes);
        let before = current.into_iter().flat_map(|it| it.history.values()).map(|it| it.bytes);
        let mut kept: VecDeque<u64> = before.chain([found]).collect();
        while kept.len() > MAX_REVISIONS
            || kept.len() > 1 && kept.iter().sum::<u64>() > MAX_HISTORY_BYTES
        {
            kept.pop_front();
        }
        check(self, name, found, kept.iter().sum())
    }
}

/// Refuses a revision that is too large, or that the cell has no room for, beside what is kept of the deployment.
pub(super) fn check(
    state: &State,
    name: &DeploymentName,
    found: u64,
    kept: u64,
) -> Result<(), Refusal> {
    if found > MAX_REVISION_BYTES {
        let what = format!("this revision of {name}");
        return Err(Refusal::Quota { what, found, max: MAX_REVISION_BYTES });
    }
    let others = state.deployments.iter().filter(|(other, _)| *other != name);
    let others: u64 = others.map(|(_, deployment)| deployment.bytes()).sum();
    let found = others.saturating_add(kept);
    if found > MAX_CELL_BYTES {
        let what = format!("with {name}, what the cell keeps of all deployments");
        return Err(Refusal::Quota { what, found, max: MAX_CELL_BYTES });
    }
    Ok(())
}

pub(super) fn bytes(history: &History) -> u64 {
    history.values().map(|record| record.bytes).sum()
}

fn written(value: &(impl Serialize + ?Sized)) -> u64 {
    let mut counter = Counter(0);
    // It takes whatever comes. What is no JSON counts as far as it could be written: a server must not end over it.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

/// Counts what would be written.
struct Counter(u64);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::ids::ServiceName;
    use crate::testkit::{cell, spread};

    /// A past of revisions that take so much each.
    fn history(bytes: &[u64]) -> History {
        let cell = cell().deploy("shop", [("web", spread(1))]);
        let shop = &cell.state.deployments[&name("shop")];
        let record = shop.current().unwrap().clone();
        let record = |bytes: &u64| RevisionRecord { bytes: *bytes, ..record.clone() };
        (1..).map(Revision).zip(bytes.iter().map(record)).collect()
    }

    fn name(text: &str) -> DeploymentName {
        DeploymentName::new(text).unwrap()
    }

    #[test]
    fn the_oldest_revisions_go_until_the_rest_fits_and_two_always_do() {
        let mib = |count: u64| count << 20;
        for (case, bytes, left) in [
            ("all fit", vec![mib(1); 16], 16),
            ("one byte too much", [vec![1], vec![mib(1); 16]].concat(), 16),
            ("two of the largest", vec![MAX_REVISION_BYTES; 5], 2),
            ("the newest is never dropped", vec![MAX_HISTORY_BYTES + 1], 1),
        ] {
            let mut history = history(&bytes);
            let newest = *history.last_key_value().unwrap().0;
            while is_over(&history) {
                history.pop_first();
            }
            assert_eq!(history.len(), left, "{case}");
            assert_eq!(*history.last_key_value().unwrap().0, newest, "{case}");
        }
    }

    #[test]
    fn the_cell_keeps_so_much_of_all_deployments_together() {
        let mut state = cell().deploy("shop", [("web", spread(1))]).state;
        let full = Deployment { revision: Revision(1), history: history(&[MAX_CELL_BYTES - 10]) };
        state.deployments.insert(name("blog"), full);
        state.deployments.remove(&name("shop"));
        let check = |deployment: &str, bytes: u64| check(&state, &name(deployment), bytes, bytes);
        check("shop", 10).unwrap();
        let refused = check("shop", 11).unwrap_err();
        let text = "with shop, what the cell keeps of all deployments takes 268435457 bytes, at most 268435456 are kept";
        assert_eq!(refused.to_string(), text);
        check("blog", 11).expect("what it replaces does not count");

        // Asked beforehand it is the same, and what is there already has its room.
        let web = ServiceName::new("web").unwrap();
        let services: Services = [(web.clone(), Arc::new(spread(1)))].into();
        let early = state.check_quota(&name("shop"), &services, &[]).unwrap_err();
        assert!(matches!(early, Refusal::Quota { max: MAX_CELL_BYTES, .. }), "{early}");
        state.check_quota(&name("blog"), &services, &[]).expect("it is deployed so");
        let more: Services = [(web, Arc::new(spread(2)))].into();
        state.check_quota(&name("blog"), &more, &[]).expect("the oldest revision goes for it");
    }
}
