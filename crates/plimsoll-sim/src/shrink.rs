//! The least scenario that still breaks the same promise: events, nodes, services and what they ask for are taken away as
//! long as the failure stays. Deterministic, and bounded in how many runs it takes.

use std::sync::Arc;

use plimsoll_model::spec::UpdatePolicy;
use plimsoll_model::{Millis, Mode, NodeId, Resources, ServiceKey, ServiceSpec, SpecHash};

use crate::chaos::order;
use crate::invariants::settled;
use crate::run::{InvariantFailure, SETTLING, run};
use crate::scenario::{Action, Scenario, Services};

/// What is left of a scenario.
#[derive(Debug)]
pub struct Shrunk {
    pub scenario: Scenario,
    pub failure: InvariantFailure,
    /// How many runs it took.
    pub runs: u32,
}

/// Shrinks a scenario that fails with this seed, in at most so many runs. None where it does not fail.
pub fn shrink(scenario: &Scenario, seed: u64, max_runs: u32) -> Option<Shrunk> {
    let failure = run(scenario, seed, &mut |_| {}).failure?;
    let kind = kind(scenario, &failure);
    let mut shrinking =
        Shrinking { scenario: scenario.clone(), failure, kind, seed, left: max_runs };
    loop {
        let before = (shrinking.scenario.clone(), shrinking.left);
        shrinking.end_early();
        shrinking.drop_events();
        shrinking.drop_deployments();
        shrinking.drop_nodes();
        shrinking.drop_usage();
        shrinking.long_entries();
        shrinking.simplify_specs();
        shrinking.fewer_replicas();
        shrinking.simplify_nodes();
        if shrinking.scenario == before.0 || shrinking.left == 0 {
            break;
        }
    }
    let Shrinking { scenario, failure, left, .. } = shrinking;
    Some(Shrunk { scenario, failure, runs: max_runs - left })
}

/// What a failure is about, without the names in it.
fn kind(scenario: &Scenario, failure: &InvariantFailure) -> String {
    let is_name = |word: &str| {
        let joins = scenario.script.iter().filter_map(|(_, action)| action.node());
        let mut nodes = scenario.nodes.keys().chain(joins);
        nodes.any(|node| node.as_str() == word.trim_end_matches(','))
    };
    let is_word = |word: &&str| {
        word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b':') && !is_name(word)
    };
    let words = failure.broken.what.split(' ').filter(is_word).take(5);
    format!("{} {}", failure.broken.invariant, words.collect::<Vec<_>>().join(" "))
}

struct Shrinking {
    scenario: Scenario,
    failure: InvariantFailure,
    kind: String,
    seed: u64,
    left: u32,
}

impl Shrinking {
    /// Keeps the candidate if it fails the same way.
    fn consider(&mut self, candidate: Scenario) -> bool {
        if self.left == 0 || candidate == self.scenario {
            return false;
        }
        self.left -= 1;
        let Some(failure) = run(&candidate, self.seed, &mut |_| {}).failure else { return false };
        let is_same = kind(&candidate, &failure) == self.kind;
        if is_same {
            (self.scenario, self.failure) = (candidate, failure);
        }
        is_same
    }

    /// What comes after the failure does not matter; what never settles needs the time for it.
    fn end_early(&mut self) {
        let mut candidate = self.scenario.clone();
        if self.failure.broken.invariant == settled::NAME {
            let least = candidate.last_action().0 + SETTLING.0;
            candidate.length = Millis(least.next_multiple_of(60_000)).min(candidate.length);
        } else {
            let end = self.failure.at;
            candidate.script.retain(|(at, _)| *at <= end);
            candidate.length = Millis((end.0 + 1).next_multiple_of(60_000)).min(candidate.length);
        }
        self.consider(candidate);
    }

    /// Halves first, then quarters, down to one event.
    fn drop_events(&mut self) {
        let mut size = self.scenario.script.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.scenario.script.len() && self.left > 0 {
                let mut candidate = self.scenario.clone();
                let end = (at + size).min(candidate.script.len());
                candidate.script.drain(at..end);
                if !self.consider(candidate) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn drop_deployments(&mut self) {
        let names: Vec<_> = self.scenario.deployments.keys().cloned().collect();
        for name in names {
            let mut candidate = self.scenario.clone();
            candidate.deployments.remove(&name);
            candidate.usage.retain(|key, _| key.deployment != name);
            candidate.script.retain(|(_, action)| action.deployment() != Some(&name));
            self.consider(candidate);
        }
        for key in self.keys() {
            let mut candidate = self.scenario.clone();
            candidate.usage.remove(&key);
            for services in every(&mut candidate, &key) {
                services.remove(&key.service);
                order::forget(services, &key.service);
            }
            candidate.script.retain(|(_, action)| match action {
                Action::Deploy(_, services) => !services.is_empty(),
                Action::Fail(service)
                | Action::Poison(service)
                | Action::Cure(service)
                | Action::Scale(service, _) => *service != key,
                _ => true,
            });
            candidate.deployments.retain(|_, services| !services.is_empty());
            self.consider(candidate);
        }
    }

    fn drop_nodes(&mut self) {
        let joined = self.scenario.script.iter().filter_map(|(_, action)| action.node());
        let mut names: Vec<NodeId> = self.scenario.nodes.keys().chain(joined).cloned().collect();
        names.sort();
        names.dedup();
        for name in names {
            let mut candidate = self.scenario.clone();
            candidate.nodes.remove(&name);
            candidate.script.retain(|(_, action)| action.node() != Some(&name));
            if !candidate.nodes.is_empty() {
                self.consider(candidate);
            }
        }
    }

    fn long_entries(&mut self) {
        let mut candidate = self.scenario.clone();
        candidate.policy.max_changes = plimsoll_kernel::batch::MAX_CHANGES;
        self.consider(candidate);
    }

    fn drop_usage(&mut self) {
        let mut candidate = self.scenario.clone();
        candidate.usage.clear();
        if self.consider(candidate) {
            return;
        }
        let keys: Vec<_> = self.scenario.usage.keys().cloned().collect();
        for key in keys {
            let mut candidate = self.scenario.clone();
            candidate.usage.remove(&key);
            self.consider(candidate);
        }
    }

    /// What a service asks for, field by field, everywhere at once and then in one place after the other.
    fn simplify_specs(&mut self) {
        for key in self.keys() {
            for simpler in SIMPLER {
                if self.respec(&key, None, *simpler) {
                    continue;
                }
                for nth in 0..every(&mut self.scenario.clone(), &key).count() {
                    self.respec(&key, Some(nth), *simpler);
                }
            }
        }
    }

    fn fewer_replicas(&mut self) {
        for key in self.keys() {
            for nth in 0..every(&mut self.scenario.clone(), &key).count() {
                while self.respec(&key, Some(nth), |spec| step_down(spec, |n| n / 2)) {}
                while self.respec(&key, Some(nth), |spec| step_down(spec, |n| n - 1)) {}
            }
        }
    }

    fn simplify_nodes(&mut self) {
        let names: Vec<NodeId> = self.scenario.nodes.keys().cloned().collect();
        for name in names {
            let mut candidate = self.scenario.clone();
            if let Some(facts) = candidate.nodes.get_mut(&name) {
                facts.zone = None;
                facts.labels.clear();
            }
            self.consider(candidate);
        }
    }

    /// Changes the service's spec in one place, or wherever it is applied.
    fn respec(
        &mut self,
        key: &ServiceKey,
        only: Option<usize>,
        change: impl Fn(&mut ServiceSpec),
    ) -> bool {
        let mut candidate = self.scenario.clone();
        for (nth, services) in every(&mut candidate, key).enumerate() {
            if only.is_none_or(|only| only == nth)
                && let Some(spec) = services.get_mut(&key.service)
            {
                let mut fresh = ServiceSpec::clone(spec);
                change(&mut fresh);
                if fresh.container != spec.container {
                    fresh.hash = SpecHash::of(&fresh.container);
                }
                *spec = Arc::new(fresh);
            }
        }
        self.consider(candidate)
    }

    /// Every service there ever is.
    fn keys(&self) -> Vec<ServiceKey> {
        let applied = self.scenario.script.iter().filter_map(|(_, action)| match action {
            Action::Deploy(name, services) => Some((name, services)),
            _ => None,
        });
        let all = self.scenario.deployments.iter().chain(applied);
        let keys = all.flat_map(|(deployment, services)| {
            services.keys().map(|name| ServiceKey::new(deployment.clone(), name.clone()))
        });
        let mut keys: Vec<ServiceKey> = keys.collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

/// One thing less to ask for.
const SIMPLER: &[fn(&mut ServiceSpec)] = &[
    |spec| spec.update = UpdatePolicy::default(),
    |spec| spec.depends_on.clear(),
    |spec| spec.schedule = None,
    |spec| spec.placement.constraints.clear(),
    |spec| spec.placement.preferences.clear(),
    |spec| spec.placement.max_per_node = None,
    |spec| spec.container.ports.clear(),
    |spec| {
        spec.container.mounts.clear();
        spec.container.volumes.clear();
    },
    |spec| {
        let own = [("default".to_owned(), plimsoll_model::spec::NetworkAttachment::default())];
        spec.container.networks = own.into();
    },
    |spec| spec.container.healthcheck = None,
    |spec| spec.container.reservations = Resources::NONE,
    |spec| {
        (spec.priority, spec.interruption_penalty) = (0, 0);
        spec.reschedule = plimsoll_model::spec::Reschedule::Default;
    },
    |spec| {
        if let Mode::Pack { replicas } | Mode::Binpack { replicas } | Mode::Hosts { replicas, .. } =
            spec.placement.mode
        {
            spec.placement.mode = Mode::Spread { replicas };
        }
    },
];

fn step_down(spec: &mut ServiceSpec, to: fn(u32) -> u32) {
    match &mut spec.placement.mode {
        Mode::Spread { replicas }
        | Mode::Pack { replicas }
        | Mode::Binpack { replicas }
        | Mode::Hosts { replicas, .. }
            if *replicas > 1 =>
        {
            *replicas = to(*replicas);
        }
        _ => {}
    }
}

/// Wherever the deployment of the service is applied.
fn every<'s>(
    scenario: &'s mut Scenario,
    key: &'s ServiceKey,
) -> impl Iterator<Item = &'s mut Services> {
    let first = scenario.deployments.get_mut(&key.deployment);
    let later = scenario.script.iter_mut().filter_map(|(_, action)| match action {
        Action::Deploy(name, services) if *name == key.deployment => Some(services),
        _ => None,
    });
    first.into_iter().chain(later)
}
