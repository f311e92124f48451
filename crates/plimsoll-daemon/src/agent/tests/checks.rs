//! What is told of a replica whose check fails from the start.

use super::*;
use crate::measurements::FailedChecks;

impl Bench {
    fn checks(&self, replica: &str, generation: u64) -> Option<FailedChecks> {
        let key = (replica_id(replica), Generation(generation));
        self.measurements.lock().replicas.get(&key)?.failed_checks.clone()
    }

    fn failures(&self, replica: &str, generation: u64) -> u32 {
        let key = (replica_id(replica), Generation(generation));
        self.measurements.lock().replicas.get(&key).map_or(0, |measured| measured.failures)
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_get_well_says_why_from_its_first_check_on() {
    let mut bench = Bench::new();
    let script = Script { wellness: Wellness::Never, exec_failures: 1, ..Script::default() };
    bench.runtime.on("app", script);
    let mut slow = checked("app");
    let check = slow.container.healthcheck.as_mut().unwrap();
    check.start_period = Some(Millis::minutes(10));
    check.start_interval = Some(Millis::seconds(5));
    bench.ask([(WEB, one(wanted(1, slow)))]);
    bench.told_within(Duration::from_mins(9)).await;
    let told: Vec<&Seen> = bench.told.iter().map(|(.., seen)| seen).collect();
    let [.., (ObservedState::Starting, None), (ObservedState::Starting, Some(code))] = told[..]
    else {
        panic!("one entry of the log for the first check that failed, and no other: {told:?}");
    };
    let ObservedCode::Unhealthy { output } = code else { panic!("{code:?}") };
    assert!(output.contains("told to fail"), "the first: {output}");
    let failures = bench.failures(WEB, 1);
    assert!(failures > 100, "the others are counted: {failures}");
    let checks = bench.checks(WEB, 1).expect("they are measured");
    assert_eq!((checks.count, checks.last_output.as_str()), (failures, "exit status 1"));
    bench.runtime.on("app", Script::default());
    bench.until(WEB, 1, ObservedState::Running).await;
    assert_eq!(bench.failures(WEB, 1), 0);
    assert_eq!(bench.checks(WEB, 1), None);
}
