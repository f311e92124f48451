//! The same stack begun again: after it was deleted, and from a backup of the cell.

use std::fs;

use plimsoll_lab::NAMES;

use super::stack::Stack;
use crate::hosts::routed::must_do;
use crate::run::run_in;

#[test]
fn no_row_is_lost_when_the_stack_is_deleted_and_applied_again() {
    let Some(stack) = Stack::up(&[]) else { return };
    let writers = stack.write();
    let homes = ["shop_rows", "shop_cache"].map(|volume| stack.home(0, volume));
    for (at, what) in [(0, "deleted once"), (1, "deleted twice"), (2, "deleted three times")] {
        must_do(&stack.cell, at, "delete shop");
        stack.apply_at(at, 1);
        writers.miss_nothing(&stack.cell, what);
        assert_eq!(["shop_rows", "shop_cache"].map(|volume| stack.home(0, volume)), homes);
    }
}

#[test]
fn no_row_is_lost_when_the_cell_is_restored_from_a_backup_on_another_node() {
    let Some(mut stack) = Stack::up(&[]) else { return };
    let writers = stack.write();
    let home = stack.home(0, "shop_rows");
    // One that has neither: what it knows of the data it knows from the backup.
    let heir = (0..3).find(|at| *at != home && *at != stack.home(0, "shop_cache")).unwrap();
    must_do(&stack.cell, 0, "backup cell.backup");
    let key = stack.cell.backup_key(0).to_string();
    fs::write(stack.cell.dir.path().join("backup.key"), key).unwrap();
    writers.go_on(&stack.cell, "the backup");

    (0..3).for_each(|at| stack.cell.kill(at));
    for at in 0..3 {
        fs::rename(stack.cell.path(at), stack.cell.dir.path().join(format!("lost-{at}"))).unwrap();
    }
    let name = NAMES[heir];
    let restore =
        format!("restore cell.backup --key-file backup.key --data-dir {name} --name {name}");
    let restored = run_in(stack.cell.dir.path(), &restore, "", &[]);
    assert_eq!(restored.code(), 0, "{}", restored.text());
    stack.cell.up(heir, None);
    assert_eq!(stack.home(heir, "shop_rows"), home, "the cell knows where the data is");
    stack.cell.until("the database waits for its node", |cell| {
        cell.run(heir, "status shop").text().contains("its data lives on its node")
    });
    assert_eq!(stack.database(heir), "", "no empty database begins");
    for at in stack.cell.others(heir) {
        let token = stack.cell.token(heir);
        stack.cell.up(at, Some(&token));
    }
    stack.cell.until_heard(heir, 3);
    stack.until_steady(heir);
    assert_eq!(stack.home(heir, "shop_rows"), home);
    writers.miss_nothing(&stack.cell, "a restore of the cell");
}
