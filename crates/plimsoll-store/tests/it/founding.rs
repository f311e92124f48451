//! The first start is the one with the most steps. It may be cut short at any of them, and is then simply done again.

use plimsoll_store::disk::sim::SimDisk;
use plimsoll_store::{Embedded, Engine};

use crate::support::*;

/// Every operation on the disk is a step that the machine may stop at.
#[test]
fn a_first_start_cut_short_anywhere_is_done_again() {
    let steps = runtime().block_on(async {
        let disk = SimDisk::new();
        let engine = Embedded::start(on_sim(&disk)).await.unwrap();
        engine.shutdown().await.unwrap();
        disk.operations()
    });
    assert!(steps > 20, "it has {steps} steps");
    for step in 1..=steps + 2 {
        for seed in 0..3 {
            // A runtime each: what the stopped machine had running ends with it.
            let disk = runtime().block_on(async {
                let disk = SimDisk::new();
                disk.crash_at(step);
                let started = Embedded::start(on_sim(&disk)).await;
                if let Ok(engine) = started {
                    // It may be acknowledged, and then it must be there.
                    let acknowledged = engine.propose(join("ash")).await.is_ok();
                    let found = disk.after_crash(seed);
                    return (found, acknowledged);
                }
                (disk.after_crash(seed), false)
            });
            let (disk, acknowledged) = disk;
            runtime().block_on(async {
                let engine = Embedded::start(on_sim(&disk))
                    .await
                    .unwrap_or_else(|error| panic!("step {step}, seed {seed}: {error}"));
                if acknowledged {
                    assert!(engine.machine().read(|state| has_node(state, "ash")), "step {step}");
                }
                engine.propose(join("birch")).await.unwrap();
                assert_eq!(engine.members().len(), 1, "step {step}, seed {seed}");
                engine.shutdown().await.unwrap();
            });
        }
    }
}
