//! What operators do on purpose: a rolling update, and a node that is drained with its data.

use plimsoll_lab::NAMES;

use super::stack::Stack;
use crate::hosts::routed::must_do;

#[test]
fn no_row_and_no_request_is_lost_when_everything_is_updated_and_a_node_drained_with_its_data() {
    let Some(stack) = Stack::up(&[]) else { return };
    let writers = stack.write();

    let (visitors, before) = (stack.visit(), stack.database(stack.home(0, "shop_rows")));
    stack.apply(2);
    visitors.were_answered("a rolling update");
    let home = stack.home(0, "shop_rows");
    assert_ne!(stack.database(home), before, "it is another container");
    writers.miss_nothing(&stack.cell, "a rolling update");

    let visitors = stack.visit();
    must_do(&stack.cell, 0, &format!("node drain {} --move-volumes", NAMES[home]));
    stack.until_steady(0);
    visitors.were_answered("a drain");
    let now = stack.home(0, "shop_rows");
    assert_ne!(now, home, "the data is elsewhere");
    assert!(!stack.database(now).is_empty(), "and the database with it");
    writers.miss_nothing(&stack.cell, "a drain that moved the data");

    // And back to where an old copy is, which must go first.
    must_do(&stack.cell, 0, &format!("node uncordon {}", NAMES[home]));
    let refused = stack.cell.run(0, &format!("volume move shop_rows {}", NAMES[home]));
    assert_ne!(refused.code(), 0, "{}", refused.text());
    must_do(&stack.cell, 0, &format!("volume rm shop_rows --node {}", NAMES[home]));
    must_do(&stack.cell, 0, &format!("volume move shop_rows {}", NAMES[home]));
    stack.until_steady(0);
    assert_eq!(stack.home(0, "shop_rows"), home);
    writers.miss_nothing(&stack.cell, "a move back");
}
