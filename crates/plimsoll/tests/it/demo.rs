//! `plimsoll demo`.

use expect_test::expect;

use crate::run::{directory, plimsoll};

#[test]
fn the_demo_tells_of_a_lost_node() {
    let ran = plimsoll("demo");
    expect![[r#"
        exit 0
        --- stdout
        A simulated cell: the shipped scheduler under a virtual clock, no containers.

        Placement. A book shop comes to 4 nodes in 2 zones. After 18s all of its 10 replicas run:
          ash      north  agent-ash, api-2, web-2
          birch    north  agent-birch, web-3
          cedar    south  agent-cedar, api-1, db-1, web-1
          dogwood  south  agent-dogwood

        A node is lost. After 10m cedar loses power.
           10m 00s  agent-cedar, api-1, db-1, web-1 end with it
           10m 15s  cedar is down: not heard for 15s; it has 5s to return
           10m 20s  api-1 goes to dogwood: zone south has the fewest api (score 10000, next is birch with 7485)
           10m 20s  db-1 waits: its data lives on its node
           10m 20s  web-1 goes to dogwood: zone south has the fewest web (score 10000, next is ash with 4970)
                    agent-cedar is not replaced: global runs one on each node, and the others have theirs

        Recovery. Images are pulled, containers start and become healthy.
           10m 30s  web-1 runs on dogwood
           10m 34s  api-1 runs on dogwood
                    All that can run without cedar does, 34s after the loss.

        The node returns. After 30m cedar has power again.
           30m 00s  cedar is ready
           30m 05s  db-1 runs on cedar
           30m 06s  agent-cedar runs on cedar
                    Nothing moved back: a replica on a node that may hold it stays there.

        What was shown. 8 promises held at each of 402 steps.
        There were never fewer than 1 of 2 api and 2 of 3 web running. The hour took 2 moves, each off cedar, and the
        data never left it. At the end the cell was at rest, with every replica where it may be.

        Try next:
          plimsoll sim run scenarios/lost-node.yaml --story  another, from a file you can change
          plimsoll validate -f compose.yaml                  what plimsoll makes of a file of yours
    "#]].assert_eq(&ran.text());
    assert!(ran.stdout().lines().count() <= 45, "a story is short");
}

#[test]
fn the_demo_needs_no_file() {
    let here = directory("demo_alone", []);
    assert_eq!(here.run("demo").text(), plimsoll("demo").text());
}
