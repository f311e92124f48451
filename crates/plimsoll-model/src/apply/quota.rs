//! How many bytes deployments may take: all of it is in the memory of every server, in each snapshot and in each backup.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use super::deployments::Services;
use crate::command::Refusal;
use crate::ids::DeploymentName;
use crate::spec::RouteSpec;
use crate::state::{MAX_CELL_BYTES, MAX_HISTORY_BYTES, MAX_REVISION_BYTES, RevisionRecord, State};
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

/// Refuses a revision that is too large, or that the cell has no room for.
pub(super) fn check(
    state: &State,
    name: &DeploymentName,
    found: u64,
    history: &History,
) -> Result<(), Refusal> {
    if found > MAX_REVISION_BYTES {
        let what = format!("this revision of {name}");
        return Err(Refusal::Quota { what, found, max: MAX_REVISION_BYTES });
    }
    let others = state.deployments.iter().filter(|(other, _)| *other != name);
    let others: u64 = others.map(|(_, deployment)| deployment.bytes()).sum();
    let found = others.saturating_add(bytes(history));
    if found > MAX_CELL_BYTES {
        let what = format!("with {name}, what the cell keeps of all deployments");
        return Err(Refusal::Quota { what, found, max: MAX_CELL_BYTES });
    }
    Ok(())
}

fn bytes(history: &History) -> u64 {
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
    use crate::state::Deployment;
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
        let check = |deployment: &str, bytes: u64| {
            check(&state, &name(deployment), bytes, &history(&[bytes]))
        };
        check("shop", 10).unwrap();
        let refused = check("shop", 11).unwrap_err();
        let text = "with shop, what the cell keeps of all deployments takes 268435457 bytes, at most 268435456 are kept";
        assert_eq!(refused.to_string(), text);
        check("blog", 11).expect("what it replaces does not count");
    }
}
