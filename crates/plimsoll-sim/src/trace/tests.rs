use std::thread;

use super::*;

/// What every node of these cells has: sixteen cores and 64 GiB.
const NODE: Resources =
    Resources { cpu: MilliCpus(16_000), memory: Bytes(64 << 30), ..Resources::NONE };

/// More by hand: `PLIMSOLL_SIM_SEEDS=60000 cargo test --release -p plimsoll-sim trace`
fn seeds() -> u64 {
    option_env!("PLIMSOLL_SIM_SEEDS").and_then(|count| count.parse().ok()).unwrap_or(3_000)
}

/// Checks every seed, on all cores.
fn for_each_seed(check: impl Fn(u64) + Sync) {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    thread::scope(|scope| {
        for nth in 0..threads {
            let check = &check;
            scope.spawn(move || {
                (nth..seeds()).step_by(usize::try_from(threads).unwrap()).for_each(check);
            });
        }
    });
}

fn quiet(trace: &Trace, conditions: &Conditions) -> Replayed {
    replay(trace, conditions, &mut |_| {})
}

/// A cell drawn from the seed: three to ten nodes, some much fuller than others, with the given number of samples.
/// `swing` is how far a task strays from what it usually asks for, in percent of it.
fn any_trace(seed: u64, samples: usize, swing: u64) -> Trace {
    let mut rng = SimRng::new(seed.wrapping_mul(0x9e37));
    let nodes = 3 + usize::try_from(rng.below(8)).unwrap();
    let count = nodes * (3 + usize::try_from(rng.below(8)).unwrap());
    let crowded = rng.below(nodes as u64);
    let tasks = (0..count).map(|_| {
        // A third of all tasks begin on one node.
        let is_crowded = rng.percent(33);
        let first = if is_crowded { crowded } else { rng.below(nodes as u64) };
        let usual = [rng.below(6_000), rng.below(12) << 30];
        let mut drawn = |usual: u64| usual * (100 - swing + rng.below(2 * swing + 1)) / 100;
        let demand = (0..samples).map(|_| ReplicaUsage {
            cpu: MilliCpus(drawn(usual[0])),
            memory: Bytes(drawn(usual[1])),
        });
        Task {
            demand: demand.collect(),
            first: usize::try_from(first).unwrap(),
            limit: Resources::NONE,
            reservation: Resources::NONE,
        }
    });
    Trace { name: format!("seed {seed}"), nodes, capacity: NODE, tasks: tasks.collect() }
}

#[test]
fn whatever_happens_one_replica_moves_in_a_cycle_and_none_twice_within_its_cooldown() {
    for_each_seed(|seed| {
        let trace = any_trace(seed, 30, 40);
        let limits = RebalanceLimits::default();
        let conditions = Conditions {
            move_cycles: 1 + seed % 4,
            noise: Pressure::percent(u32::try_from(seed % 3).unwrap() * 5),
            leader_cycles: seed % 2 * 15,
            seed,
            ..Conditions::default()
        };
        let replayed = quiet(&trace, &conditions);
        let moves = &replayed.moves;
        for (nth, one) in moves.iter().enumerate() {
            let before = &moves[..nth];
            assert!(before.iter().all(|it| it.at < one.at), "seed {seed}: two in one cycle");
            let rested = |it: &&Move| it.task == one.task;
            if let Some(last) = before.iter().rev().find(rested) {
                let rested = one.at.0 - last.at.0;
                assert!(
                    rested >= limits.cooldown_replica.0,
                    "seed {seed}: again after {rested} ms"
                );
            }
            let into = before.iter().rev().find(|it| it.dst == one.dst);
            let rested = into.map_or(u64::MAX, |last| one.at.0 - last.at.0);
            assert!(rested >= limits.cooldown_node.0, "seed {seed}: {rested} ms after another");
        }
    });
}

/// Under constant load a move takes at least 0.10 of what its source is hot in, which is at 0.85 or more, to a node that
/// stays below 0.75 in both. So what all nodes together have above 0.75 falls by 0.10 with each, and there can be no more
/// moves than that allows.
const FALL: f64 = 0.10;

#[test]
fn under_constant_load_moves_come_to_an_end_and_none_makes_the_hottest_hotter() {
    for_each_seed(|seed| {
        let trace = any_trace(seed, 72, 0);
        let conditions = Conditions { move_cycles: 1 + seed % 3, seed, ..Conditions::default() };
        let replayed = quiet(&trace, &conditions);
        let mut loads = Loads::of(&trace);
        let bound = loads.excess() / FALL;
        let found = replayed.moves.len();
        assert!(f64::from(u32::try_from(found).unwrap()) <= bound, "seed {seed}: {found} moves");
        for one in &replayed.moves {
            let before = loads.hottest();
            loads.carry(&trace, one);
            let after = loads.of_node(one.dst);
            assert!(after < before, "seed {seed}: {after} above {before} by {one:?}");
        }
    });
}

/// What nodes are really asked for, as shares of what they have.
struct Loads(Vec<[f64; 2]>);

impl Loads {
    fn of(trace: &Trace) -> Self {
        let mut loads = Self(vec![[0.0; 2]; trace.nodes]);
        for task in &trace.tasks {
            loads.add(task.first, task, 1.0);
        }
        loads
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn add(&mut self, node: usize, task: &Task, sign: f64) {
        let ReplicaUsage { cpu, memory } = task.demand[0];
        self.0[node][0] += sign * cpu.0 as f64 / NODE.cpu.0 as f64;
        self.0[node][1] += sign * memory.0 as f64 / NODE.memory.0 as f64;
    }

    fn carry(&mut self, trace: &Trace, one: &Move) {
        self.add(one.src, &trace.tasks[one.task], -1.0);
        self.add(one.dst, &trace.tasks[one.task], 1.0);
    }

    fn of_node(&self, node: usize) -> f64 {
        self.0[node][0].max(self.0[node][1])
    }

    fn hottest(&self) -> f64 {
        (0..self.0.len()).map(|node| self.of_node(node)).fold(0.0, f64::max)
    }

    fn excess(&self) -> f64 {
        self.0.iter().flatten().map(|load| (load - 0.75).max(0.0)).sum()
    }
}

#[test]
fn noise_on_samples_makes_nothing_go_to_and_fro() {
    for_each_seed(|seed| {
        let trace = any_trace(seed, 36, 0);
        let noise = Pressure::percent(10);
        let conditions = Conditions { noise, seed, ..Conditions::default() };
        let moves = quiet(&trace, &conditions).moves;
        for (nth, one) in moves.iter().enumerate() {
            let mut left = moves[..nth].iter().filter(|it| it.task == one.task).map(|it| it.src);
            assert!(left.all(|src| src != one.dst), "seed {seed}: it returns by {one:?}");
        }
    });
}

/// A day of ten nodes and 160 tasks, made up: some are steady, some swell by day, some flare up for half an hour.
fn made_up_day() -> Trace {
    let mut rng = SimRng::new(20_110_303);
    let (nodes, count, samples) = (10, 160, 288);
    let tasks = (0..count).map(|_| {
        let (usual, most) = (100 + rng.below(500), 500 + rng.below(4_000));
        let kind = rng.below(3);
        let (begins, phase) = (rng.below(samples), rng.below(samples));
        let demand = (0..samples).map(|nth| {
            let noise = rng.below(usual / 2);
            // A tent: up to noon, down to midnight.
            let tent = (nth + phase) % samples;
            let tent = tent.min(samples - tent) * 2;
            let more = match kind {
                0 => 0,
                1 => most * tent / samples / 2,
                _ if (begins..begins + 6).contains(&nth) => most,
                _ => 0,
            };
            ReplicaUsage { cpu: MilliCpus(usual + noise + more), memory: Bytes(1 << 30) }
        });
        let demand = demand.collect();
        let first = usize::try_from(rng.below(nodes)).unwrap();
        Task { first, limit: Resources::NONE, reservation: Resources::NONE, demand }
    });
    let tasks = tasks.collect();
    Trace { name: "made up".to_owned(), nodes: 10, capacity: NODE, tasks }
}

#[test]
fn a_made_up_day_is_hot_for_a_fraction_of_the_time_and_nothing_is_taken_back() {
    let day = made_up_day();
    let (without, with) = (quiet(&day, &Conditions::off()), quiet(&day, &Conditions::default()));
    assert_eq!(without.moves, []);
    assert_eq!((without.ticks.len(), with.ticks.len()), (2_880, 2_880));
    let hot = |it: &Replayed| it.measured.shares()[0].millionths();
    assert_eq!(with.undone(), 0);
    // Whole numbers throughout: every machine counts the same.
    assert_eq!((hot(&without), hot(&with), with.moves.len()), (118_542, 34_236, 14));
}

#[test]
fn a_replay_counts_by_hand() {
    let steady = |first, cpu| Task {
        first,
        limit: Resources::NONE,
        reservation: Resources::NONE,
        demand: vec![ReplicaUsage { cpu: MilliCpus(cpu), memory: Bytes(0) }; 2],
    };
    // 15.6 of 16 cores on the one, 2 on the other.
    let tasks = vec![steady(0, 3_600), steady(0, 6_000), steady(0, 6_000), steady(1, 2_000)];
    let trace = Trace { name: "two".to_owned(), nodes: 2, capacity: NODE, tasks };
    let replayed = quiet(&trace, &Conditions::default());
    assert_eq!(
        replayed.moves,
        [Move {
            at: CYCLE,
            task: 1,
            src: 0,
            dst: 1,
            relief: Pressure::from_millionths(375_000),
            by: MovingLoop::Rebalancer
        }]
    );
    let Measured { all, hot, saturated, .. } = replayed.measured;
    assert_eq!((all, hot, saturated), (40, 2, 0), "hot until the third cycle");
    let [hot, _, unmet] = replayed.measured.shares();
    assert_eq!((hot, unmet), (Pressure::percent(5), Pressure::ZERO));
    let last = replayed.ticks.last().unwrap();
    assert_eq!((last.moves, last.hot, last.most), (1, 0, Pressure::percent(60)));
}

#[test]
fn demand_is_linear_between_samples_and_the_last_one_holds() {
    let usage = |cpu| ReplicaUsage { cpu: MilliCpus(cpu), memory: Bytes(0) };
    let (limit, reservation) = (Resources::NONE, Resources::NONE);
    let task = Task { first: 0, limit, reservation, demand: vec![usage(100), usage(200)] };
    let at: Vec<u64> = [0, 1, 9, 10, 15, 19].map(|cycle| task.at(cycle).cpu.0).into();
    assert_eq!(at, [100, 110, 190, 200, 200, 200]);
}

#[test]
fn a_move_taken_back_within_the_hour_counts_as_undone() {
    let one = |minutes, src, dst| Move {
        at: Millis::minutes(minutes),
        task: 7,
        src,
        dst,
        relief: Pressure::percent(20),
        by: MovingLoop::Rebalancer,
    };
    let replayed = |moves| Replayed {
        measured: Measured::default(),
        ticks: Vec::new(),
        moves,
        skips: BTreeMap::new(),
        record: LoopRecord::default(),
    };
    for (case, moves, undone) in [
        ("there and back", vec![one(0, 1, 2), one(60, 2, 1)], 1),
        ("too long after", vec![one(0, 1, 2), one(61, 2, 1)], 0),
        ("on to another", vec![one(0, 1, 2), one(20, 2, 3)], 0),
    ] {
        assert_eq!(replayed(moves).undone(), undone, "{case}");
    }
}
