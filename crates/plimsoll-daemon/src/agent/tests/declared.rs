//! Volumes that images declare: nothing starts before the cell has noted them.

use plimsoll_model::spec::DeclaredVolumes;

use super::*;
use crate::link::Declared;

const DB: &str = "shop/db/1";

fn declaring(paths: &[&str]) -> Script {
    let declared = paths.iter().map(|path| (*path).to_owned()).collect();
    Script { declared, ..Script::default() }
}

/// The order as it comes once the cell knows of the volume.
fn granted(mut order: DesiredReplica) -> DesiredReplica {
    let paths: BTreeSet<String> = ["/data".to_owned()].into();
    let spec = Arc::make_mut(&mut order.spec);
    spec.declared = DeclaredVolumes { paths, is_told: true };
    order.declared = [("/data".to_owned(), "db.1.x".to_owned())].into();
    order
}

impl Bench {
    /// The next word on what an image declares.
    async fn declared(&mut self) -> Declared {
        loop {
            match self.reports.recv().await.expect("the agent lives") {
                Report::Declared(declared) => return declared,
                report => self.note(report),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_image_declares_is_told_and_nothing_starts_before_the_cell_has_noted_it() {
    let mut bench = Bench::new();
    bench.runtime.on("db", declaring(&["/data"]));
    bench.ask([(DB, one(wanted(1, spec("db"))))]);
    let declared = bench.declared().await;
    assert_eq!(declared.paths, ["/data".to_owned()].into());
    assert_eq!(declared.spec, spec("db").hash);
    assert_eq!(bench.declared().await, declared, "until somebody answers");
    assert!(bench.here().await.is_empty());
    bench.ask([(DB, one(granted(wanted(1, spec("db")))))]);
    let took = bench.until(DB, 1, ObservedState::Running).await;
    assert!(took < Duration::from_secs(6), "it starts at once: {took:?}");
    let mounted = bench.runtime.declared(&tag(DB, 1));
    assert_eq!(mounted, [("/data".to_owned(), "db.1.x".to_owned())].into());
    // Its next container has it too, and nobody waits.
    let brief =
        Assignments { wanted: vec![granted(wanted(2, spec("db")))], leaving: vec![Generation(1)] };
    bench.ask([(DB, brief)]);
    bench.until(DB, 2, ObservedState::Running).await;
    assert_eq!(bench.runtime.declared(&tag(DB, 2)), mounted);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarts_before_the_answer_finds_out_again() {
    let mut bench = Bench::new();
    bench.runtime.on("db", declaring(&["/data"]));
    bench.ask([(DB, one(wanted(1, spec("db"))))]);
    bench.declared().await;
    let mut bench = bench.killed().await;
    bench.ask([(DB, one(granted(wanted(1, spec("db")))))]);
    bench.until(DB, 1, ObservedState::Running).await;
    assert_eq!(bench.runtime.declared(&tag(DB, 1)).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_file_mounts_is_not_told_and_too_many_are_not_started() {
    let mut bench = Bench::new();
    bench.runtime.on("db", declaring(&["/data"]));
    bench.ask([(DB, one(wanted(1, spec("db").volume("d"))))]);
    bench.until(DB, 1, ObservedState::Running).await;
    assert!(bench.runtime.declared(&tag(DB, 1)).is_empty());
    let many: Vec<String> = (0..40).map(|n| format!("/{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    bench.runtime.on("odd", declaring(&many));
    bench.ask([(WEB, one(wanted(2, spec("odd"))))]);
    bench.until(WEB, 2, ObservedState::Pending).await;
    let why = bench.last_code().to_string();
    assert!(why.contains("declares 40 volumes"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn what_was_assumed_and_is_not_so_is_told_and_waited_for_by_nobody() {
    let mut bench = Bench::new();
    let mut order = granted(wanted(1, spec("app")));
    Arc::make_mut(&mut order.spec).declared.is_told = false;
    bench.ask([(DB, one(order))]);
    assert_eq!(bench.declared().await.paths, BTreeSet::new());
    bench.until(DB, 1, ObservedState::Running).await;
    assert!(bench.runtime.declared(&tag(DB, 1)).is_empty(), "nothing hides what the image has");
}
