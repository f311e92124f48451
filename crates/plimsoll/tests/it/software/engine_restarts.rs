//! Engines that are restarted or crash under running databases.

use super::stack::Stack;

#[test]
fn no_row_is_lost_when_engines_are_restarted_with_their_containers() {
    let Some(stack) = Stack::up(&[]) else { return };
    let writers = stack.write();
    for (home, what) in [("shop_rows", "a restart"), ("shop_cache", "another restart")] {
        let engine = &stack.engines.0[stack.home(0, home)];
        engine.halt().unwrap();
        engine.start().unwrap();
        stack.until_steady(0);
        writers.miss_nothing(&stack.cell, what);
    }
    let engine = &stack.engines.0[stack.home(0, "shop_rows")];
    engine.kill().unwrap();
    engine.start().unwrap();
    stack.until_steady(0);
    writers.miss_nothing(&stack.cell, "a crash of the engine");
}

#[test]
fn writers_notice_nothing_of_an_engine_that_leaves_its_containers_running() {
    let Some(stack) = Stack::up(&["--live-restore"]) else { return };
    let writers = stack.write();
    let home = stack.home(0, "shop_rows");
    let (before, engine) = (stack.database(home), &stack.engines.0[home]);
    engine.halt().unwrap();
    writers.go_on(&stack.cell, "the engine was stopped");
    engine.start().unwrap();
    stack.until_steady(0);
    writers.miss_nothing(&stack.cell, "a restart with live-restore");
    assert_eq!(stack.database(home), before, "it is the same container");

    engine.kill().unwrap();
    writers.go_on(&stack.cell, "the engine crashed");
    engine.start().unwrap();
    stack.until_steady(0);
    writers.miss_nothing(&stack.cell, "a crash with live-restore");
    assert_eq!(stack.database(home), before, "it is the same container");
}
