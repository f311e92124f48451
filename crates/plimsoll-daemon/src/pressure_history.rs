//! How busy nodes were in the last hour. A leader notes it in every cycle of the rebalancer, for people who watch; nothing is
//! decided by it, and a new leader begins anew.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_api::view::{CellPressure, LevelSample, NodeLevels, PressureQuery, Time};
use plimsoll_kernel::Policy;
use plimsoll_kernel::rebalance::Rebalancer;
use plimsoll_model::{NodeId, State, Timestamp};

/// How many samples of a node are kept: an hour, two a minute.
const MAX_SAMPLES: usize = 120;

#[derive(Debug, Default)]
pub struct PressureHistory {
    nodes: BTreeMap<NodeId, VecDeque<LevelSample>>,
}

impl PressureHistory {
    /// Takes note of how busy nodes are now. What has left the cell is forgotten.
    pub fn note(&mut self, state: &State, rebalancer: &Rebalancer, now: Timestamp) {
        self.nodes.retain(|node, _| state.node(node).is_some());
        for levels in rebalancer.levels() {
            let replicas = state.load(levels.node).map_or(0, |load| load.replicas);
            let sample = LevelSample {
                at: Time(now),
                cpu: levels.smoothed.cpu,
                memory: levels.smoothed.memory,
                replicas,
            };
            let samples = self.nodes.entry(levels.node.clone()).or_default();
            if samples.len() == MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(sample);
        }
    }

    /// What is asked for of it, beside how busy nodes are now.
    pub fn told(
        &self,
        state: &State,
        rebalancer: Option<&Rebalancer>,
        policy: &Policy,
        query: &PressureQuery,
    ) -> CellPressure {
        let levels = rebalancer.into_iter().flat_map(Rebalancer::levels);
        let levels: BTreeMap<_, _> = levels.map(|it| (it.node, it)).collect();
        let is_asked =
            |node: &&NodeId| query.node.as_ref().is_none_or(|asked| *asked == node.as_str());
        let nodes = state.nodes().keys().filter(is_asked).map(|node| {
            let now = levels.get(node);
            let predicted = now.filter(|now| now.predicted != now.smoothed);
            let samples = self.nodes.get(node).filter(|_| query.history);
            NodeLevels {
                node: node.to_string(),
                smoothed: now.map(|now| now.smoothed.into()),
                predicted: predicted.map(|now| now.predicted.into()),
                samples: samples.into_iter().flatten().copied().collect(),
            }
        });
        CellPressure {
            trigger: policy.rebalance.trigger,
            destination_cap: policy.rebalance.dst_cap,
            interval_ms: policy.sample_interval.0,
            nodes: nodes.collect(),
        }
    }
}
