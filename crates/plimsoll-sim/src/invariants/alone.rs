//! One bad service stops nobody: what the state refuses for it is tried twice and then left, it says so, and no other service
//! ever has to.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{Millis, Revision, ServiceKey, Timestamp};

use super::Invariant;
use super::reasons::is_refused;
use crate::world::{PoisonRefusal, World};

/// Less than the first wait of a service whose decisions are refused.
const WITHIN: Millis = Millis::seconds(25);

/// Twice, and twice again where another batch was overtaken in between.
const MOST: usize = 4;

/// How long a service may be left alone before it says so: a turn and its commit, with much to spare.
const PATIENCE: Millis = Millis::seconds(5);

#[derive(Debug, Default)]
pub(super) struct Alone {
    /// Services that were poisoned at some time.
    ever: BTreeSet<ServiceKey>,
    tries: BTreeMap<ServiceKey, Tries>,
    waiting: BTreeMap<ServiceKey, Waiting>,
}

/// Since when its leader leads, and the revision: with either another, it is another decision.
type DecidedBy = (Timestamp, Option<Revision>);

#[derive(Debug)]
struct Tries {
    by: DecidedBy,
    at: Vec<Timestamp>,
}

#[derive(Debug)]
struct Waiting {
    by: DecidedBy,
    since: Timestamp,
    /// Since when it does not say so.
    silent: Option<Timestamp>,
}

impl Invariant for Alone {
    fn name(&self) -> &'static str {
        "alone"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        self.ever.extend(world.poisoned.iter().cloned());
        if let Some(refusal) = &world.poison_refusal {
            self.refused(world, refusal)?;
        }
        self.is_said(world)?;
        if world.is_cycle {
            for (key, _) in world.state.services().iter().filter(|(_, it)| is_refused(it)) {
                if !self.ever.contains(key) {
                    return Err(format!(
                        "{key} waits for a decision, and nothing is wrong with it"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Alone {
    fn refused(&mut self, world: &World<'_>, refusal: &PoisonRefusal) -> Result<(), String> {
        let (now, key) = (world.now(), &refusal.service);
        let by = decided_by(world, key);
        let tries = self.tries.entry(key.clone()).or_insert_with(|| Tries { by, at: Vec::new() });
        if tries.by != by {
            *tries = Tries { by, at: Vec::new() };
        }
        tries.at.retain(|at| now.since(*at) < WITHIN);
        tries.at.push(now);
        if refusal.waits {
            let waiting = Waiting { by, since: now, silent: None };
            self.waiting.insert(key.clone(), waiting);
        }
        let count = tries.at.len();
        if count > MOST {
            return Err(format!("a decision for {key} was tried {count} times within {WITHIN}"));
        }
        Ok(())
    }

    fn is_said(&mut self, world: &World<'_>) -> Result<(), String> {
        let now = world.now();
        self.waiting.retain(|key, waiting| {
            let is_same = waiting.by == decided_by(world, key);
            is_same && now.since(waiting.since) < WITHIN && world.state.service(key).is_some()
        });
        for (key, waiting) in &mut self.waiting {
            if world.state.service(key).is_some_and(is_refused) {
                waiting.silent = None;
            } else if now.since(*waiting.silent.get_or_insert(now)) > PATIENCE {
                return Err(format!("{key} is left alone and does not say so"));
            }
        }
        Ok(())
    }
}

fn decided_by(world: &World<'_>, key: &ServiceKey) -> DecidedBy {
    let led_since = Timestamp(world.now().0 - world.led_for().0);
    let deployment = world.state.deployments().get(&key.deployment);
    (led_since, deployment.map(|deployment| deployment.revision))
}
