//! What replicas use, smoothed like the pressure of nodes: a moment's burst is not what a replica weighs.

use std::collections::BTreeMap;

use plimsoll_model::{Bytes, Generation, MilliCpus, Millis, Pressure, ReplicaId, Timestamp};

use super::{Ewma, Usage};

/// The means of every replica that was measured of late. A new generation begins anew: it may be another program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usages {
    replicas: BTreeMap<ReplicaId, Mean>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mean {
    generation: Generation,
    /// In thousandths of a core.
    cpu: Ewma,
    /// In KiB.
    memory: Ewma,
}

impl Usages {
    pub fn feed(
        &mut self,
        replica: &ReplicaId,
        generation: Generation,
        at: Timestamp,
        usage: Usage,
        window: Millis,
    ) {
        let [cpu, memory] = [count(usage.cpu.0), count(usage.memory.0 / 1024)];
        let seed = Mean { generation, cpu: Ewma::seed(at, cpu), memory: Ewma::seed(at, memory) };
        match self.replicas.get_mut(replica).filter(|mean| mean.generation == generation) {
            Some(mean) => {
                mean.cpu.feed(at, cpu, window);
                mean.memory.feed(at, memory, window);
            }
            None => {
                self.replicas.insert(replica.clone(), seed);
            }
        }
    }

    /// Forgets what was not measured since.
    pub fn forget_before(&mut self, since: Timestamp) {
        self.replicas.retain(|_, mean| mean.cpu.at() >= since);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ReplicaId, Usage)> {
        self.replicas.iter().map(|(replica, mean)| {
            let cpu = MilliCpus(u64::from(mean.cpu.value().millionths()));
            let memory = Bytes(u64::from(mean.memory.value().millionths()) * 1024);
            (replica, Usage { cpu, memory })
        })
    }
}

/// A mean takes any count that fits.
fn count(of: u64) -> Pressure {
    Pressure::from_millionths(u32::try_from(of).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::replica_id;

    use super::*;

    const WINDOW: Millis = Millis::minutes(5);

    fn used(usages: &Usages) -> Vec<(String, u64, u64)> {
        usages.iter().map(|(id, it)| (id.to_string(), it.cpu.0, it.memory.0 >> 20)).collect()
    }

    #[test]
    fn a_burst_moves_the_mean_a_little_and_another_generation_begins_anew() {
        let web = replica_id("shop/web/1");
        let mut usages = Usages::default();
        let mut feed = |generation: u64, second: u64, cpu: u64, mebibytes: u64| {
            let usage = Usage { cpu: MilliCpus(cpu), memory: Bytes(mebibytes << 20) };
            usages.feed(&web, Generation(generation), Timestamp(second * 1_000), usage, WINDOW);
            used(&usages)
        };
        assert_eq!(feed(1, 0, 200, 100), [("shop/web/1".to_owned(), 200, 100)]);
        assert_eq!(feed(1, 30, 1_000, 100), [("shop/web/1".to_owned(), 276, 100)]);
        assert_eq!(feed(2, 60, 1_000, 300), [("shop/web/1".to_owned(), 1_000, 300)]);
    }

    #[test]
    fn what_is_not_measured_any_more_is_forgotten() {
        let mut usages = Usages::default();
        let usage = Usage { cpu: MilliCpus(100), memory: Bytes(1 << 20) };
        usages.feed(&replica_id("shop/web/1"), Generation(1), Timestamp(1_000), usage, WINDOW);
        usages.feed(&replica_id("shop/web/2"), Generation(2), Timestamp(9_000), usage, WINDOW);
        usages.forget_before(Timestamp(5_000));
        assert_eq!(used(&usages), [("shop/web/2".to_owned(), 100, 1)]);
    }
}
