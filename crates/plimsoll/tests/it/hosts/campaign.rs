//! Faults one after another, drawn from a seed, while clients write. A longer campaign by hand:
//! `PLIMSOLL_LAB_FAULTS=100 PLIMSOLL_LAB_SEED=7 cargo nextest run -p plimsoll campaign`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_lab::LabRng;

use super::fault::Fault;
use super::load::Load;
use super::{cell_of_three, verdict};

/// So many in the ordinary run of the tests.
const FAULTS: u64 = 15;
const SEED: u64 = 1;

/// How long a fault lasts, and how long there is peace before the next, in milliseconds. Some end before anyone notices,
/// some outlast several elections, and often the next begins before the last is got over.
const LASTS: (u64, u64) = (100, 3_000);
const PEACE: (u64, u64) = (0, 1_500);

#[test]
fn no_sequence_of_faults_loses_a_write_or_a_replica() {
    let Some(mut cell) = cell_of_three() else { return };
    let (faults, seed) = (setting("FAULTS", FAULTS), setting("SEED", SEED));
    println!(
        "{faults} faults of seed {seed}; replay with PLIMSOLL_LAB_FAULTS and PLIMSOLL_LAB_SEED"
    );
    cell.write_shop();
    let applied = cell.run(1, "apply -f compose.yaml");
    assert!(applied.code() == 0, "{}", applied.text());
    let load = Load::on(&cell, seed);
    let (mut chance, begun) = (LabRng::new(seed), Instant::now());
    for nth in 1..=faults {
        let fault = Fault::draw(&mut chance, cell.nodes().len());
        let lasts = Duration::from_millis(chance.between(LASTS.0, LASTS.1));
        let peace = Duration::from_millis(chance.between(PEACE.0, PEACE.1));
        let (at, writes) = (begun.elapsed().as_secs_f32(), load.acknowledged());
        println!("{at:7.2} s  {nth:3}  {fault} for {lasts:?}, after {writes} writes");
        fault.begin(&mut cell);
        sleep(lasts);
        fault.end(&mut cell);
        sleep(peace);
        cell.must_live();
    }
    let nodes: Vec<usize> = cell.nodes().collect();
    cell.until_led(&nodes);
    load.goes_on(&cell, 20);
    verdict::shop_runs_once(&cell, 6);
    verdict::holds(&cell, load, &format!("{faults} faults of seed {seed}"));
}

fn setting(name: &str, otherwise: u64) -> u64 {
    let set = std::env::var(format!("PLIMSOLL_LAB_{name}")).ok();
    set.map_or(otherwise, |text| text.parse().expect("a number"))
}
