use expect_test::expect;

use super::*;
use crate::sample::{
    NOW, With, ago, deployment, in_state, node, reason, running, status, unpulled, with_progress,
};

fn shown(status: &Status, width: Option<usize>) -> String {
    anstream::adapter::strip_str(&text(status, NOW, width, Fold::Nothing)).to_string()
}

fn busy() -> Status {
    let why = vec![reason("shop-web-3", ReasonCode::ImagePullFailed, "web:1.99: manifest unknown")];
    let shop = deployment("shop")
        .service("db", 1)
        .service("web", 3)
        .replica("shop-web-1", |replica| {
            replica.now = Some(running("ash", 2));
            replica.next = Some(in_state("ash", 3, "starting"));
        })
        .replica("shop-web-2", |replica| {
            replica.now = Some(running("birch", 3));
            replica.next = Some(in_state("ash", 3, "pulling"));
            replica.cause = Some(ReasonCode::NodeLost);
        })
        .replica("shop-web-3", |replica| replica.now = Some(unpulled("ash")));
    let blog = deployment("blog").service("site", 2);
    status(vec![blog, with_progress(shop, Progress::Stuck { why })])
}

#[test]
fn a_calm_cell_is_a_short_page() {
    let mut shop = deployment("shop").service("db", 1).service("web", 2);
    shop.services[1].ports = vec!["8080:80/tcp".into()];
    shop.services[1].replay = Some("off".into());
    expect![[r#"
        cell demo: ash leads, 1 node ready

        NAME            STATE      NODE  AGE  FAILS  DETAIL
        shop            steady                       revision 3, applied 4m ago by ada
          db            1/1                          db:1.27
            shop-db-1   running    ash    4m      0
          web           2/2                          web:1.27; 8080:80/tcp, replay: off
            shop-web-1  running    ash    4m      0
            shop-web-2  running    ash    4m      0
    "#]]
    .assert_eq(&shown(&status(vec![shop]), None));
    expect![[r#"
        cell demo: ash leads, 1 node ready

        Nothing is deployed. Begin with: plimsoll apply -f compose.yaml
    "#]]
    .assert_eq(&shown(&status(vec![]), None));
}

#[test]
fn what_is_under_way_and_what_is_wrong_stand_beside_their_replica() {
    expect![[r#"
        cell demo: ash leads, 1 node ready

        NAME             STATE      NODE   AGE  FAILS  DETAIL
        blog             steady                        revision 3, applied 4m ago by ada
          site           2/2                           site:1.27
            blog-site-1  running    ash     4m      0
            blog-site-2  running    ash     4m      0

        shop             stuck                         revision 3, applied 4m ago by ada
          db             1/1                           db:1.27
            shop-db-1    running    ash     4m      0
          web            2/3                           web:1.27; 1 of 3 renewed
            shop-web-1   running    ash     4m      0  replacing: the new one is starting
            shop-web-2   running    birch   4m      0  moving to ash (node_lost): pulling there
            shop-web-3   pending    ash     3s      3  image_pull_failed: web:1.99: manifest unknown; next try in 8s
    "#]].assert_eq(&shown(&busy(), None));
}

#[test]
fn a_narrow_terminal_breaks_the_details() {
    expect![[r#"
        cell demo: ash leads, 1 node ready

        NAME             STATE      NODE   AGE  FAILS  DETAIL
        blog             steady                        revision 3, applied 4m ago by ada
          site           2/2                           site:1.27
            blog-site-1  running    ash     4m      0
            blog-site-2  running    ash     4m      0

        shop             stuck                         revision 3, applied 4m ago by ada
          db             1/1                           db:1.27
            shop-db-1    running    ash     4m      0
          web            2/3                           web:1.27; 1 of 3 renewed
            shop-web-1   running    ash     4m      0  replacing: the new one is
                                                       starting
            shop-web-2   running    birch   4m      0  moving to ash (node_lost):
                                                       pulling there
            shop-web-3   pending    ash     3s      3  image_pull_failed: web:1.99:
                                                       manifest unknown; next try in 8s
    "#]]
    .assert_eq(&shown(&busy(), Some(80)));
    assert!(shown(&busy(), Some(80)).lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn troubles_of_the_cell_stand_at_the_top() {
    let mut status = status(vec![deployment("shop").service("web", 1)]);
    status.cell.leader = None;
    status.nodes[0].runtime.as_mut().unwrap().trouble =
        Some("cannot connect to /run/docker.sock:\n connection refused".into());
    status.nodes.push(node("birch"));
    status.nodes[1].status = "down".into();
    status.nodes.push(node("cedar"));
    status.nodes[2].availability = "draining".into();
    expect![[r#"
        cell demo: no node leads, 2 of 3 nodes ready
        as of 0s ago: ash has had no leader since then
        no scheduling without a leader; replicas keep running
        ash: docker does not answer: cannot connect to /run/docker.sock: connection refused (retrying)
        birch is down for 1d
        cedar is draining

        NAME            STATE      NODE  AGE  FAILS  DETAIL
        shop            steady                       revision 3, applied 4m ago by ada
          web           1/1                          web:1.27
            shop-web-1  running    ash    4m      0
    "#]].assert_eq(&shown(&status, None));
}

#[test]
fn a_service_without_a_place_says_why() {
    let mut shop = deployment("shop").service("web", 1);
    shop.services[0].wanted = 3;
    shop.services[0].unplaced = Some(reason(
        "shop/web",
        ReasonCode::NoEligibleNode,
        "0 of 1 nodes can take it: 1 port_taken",
    ));
    let why = vec![reason("shop/web", ReasonCode::NoEligibleNode, "0 of 1 nodes can take it")];
    expect![[r#"
        cell demo: ash leads, 1 node ready

        NAME            STATE      NODE  AGE  FAILS  DETAIL
        shop            stuck                        revision 3, applied 4m ago by ada
          web           1/3                          web:1.27; no_eligible_node: 0 of 1 nodes can take it: 1 port_taken
            shop-web-1  running    ash    4m      0
    "#]]
        .assert_eq(&shown(&status(vec![with_progress(shop, Progress::Stuck { why })]), None));
}

#[test]
fn a_node_that_has_given_everything_away_is_drained_and_no_longer_draining() {
    let mut status = status(vec![]);
    status.nodes = vec![node("ash"), node("birch"), node("cedar")];
    for (at, replicas) in [(1, 2), (2, 0)] {
        (status.nodes[at].availability, status.nodes[at].replicas) = ("draining".into(), replicas);
    }
    expect![[r#"
        cell demo: ash leads, 3 nodes ready
        birch is draining
        cedar is drained

        Nothing is deployed. Begin with: plimsoll apply -f compose.yaml
    "#]]
    .assert_eq(&shown(&status, None));
}

#[test]
fn a_page_that_does_not_fit_leaves_out_what_needs_no_attention() {
    let folded = |height| {
        let lines = lines(&busy(), NOW, 120, height);
        assert!(lines.len() <= height, "{height}");
        anstream::adapter::strip_str(&(lines.join("\n") + "\n")).to_string()
    };
    expect![[r#"
        cell demo: ash leads, 1 node ready

        NAME            STATE      NODE   AGE  FAILS  DETAIL
        blog            steady                        revision 3, applied 4m ago by ada
          site          2/2                           site:1.27
        shop            stuck                         revision 3, applied 4m ago by ada
          db            1/1                           db:1.27
          web           2/3                           web:1.27; 1 of 3 renewed
            shop-web-1  running    ash     4m      0  replacing: the new one is starting
            shop-web-2  running    birch   4m      0  moving to ash (node_lost): pulling there
            shop-web-3  pending    ash     3s      3  image_pull_failed: web:1.99: manifest unknown; next try in 8s
    "#]].assert_eq(&folded(11));
    expect![[r#"
        cell demo: ash leads, 1 node ready

        1 deployment steady
        NAME            STATE      NODE   AGE  FAILS  DETAIL
        shop            stuck                         revision 3, applied 4m ago by ada
          db            1/1                           db:1.27
          web           2/3                           web:1.27; 1 of 3 renewed
            shop-web-1  running    ash     4m      0  replacing: the new one is starting
        … 2 more lines; `plimsoll status DEPLOYMENT -w` shows one
    "#]]
    .assert_eq(&folded(9));
    expect![[r#"
        cell demo: ash leads, 1 node ready

        1 deployment steady
        … 7 more lines; `plimsoll status DEPLOYMENT -w` shows one
    "#]]
    .assert_eq(&folded(4));
}

#[test]
fn a_rollout_that_stalled_says_so_once_and_not_that_others_wait_behind_it() {
    let stalled = "the new spec did not become healthy";
    let shop = deployment("shop")
        .service("web", 3)
        .replica("shop-web-1", |replica| {
            replica.waiting = Some(reason("shop-web-1", ReasonCode::Stalled, stalled));
        })
        .replica("shop-web-2", |replica| replica.now = Some(running("ash", 2)));
    let turn = "its turn to get the new spec will come";
    let why = vec![
        reason("shop-web-1", ReasonCode::Stalled, stalled),
        reason("shop-web-2", ReasonCode::Outdated, turn),
        reason("shop-web-3", ReasonCode::Outdated, turn),
    ];
    let shop = with_progress(shop, Progress::Stuck { why });
    assert_eq!(unsaid(&shop), ["stalled: the new spec did not become healthy"]);
}

#[test]
fn a_rollout_that_pauses_or_goes_back_says_so() {
    let mut shop = deployment("shop").service("web", 3);
    let rollout = |phase: &str| plimsoll_api::view::Rollout {
        phase: phase.into(),
        revision: 3,
        from: Some(2),
        since: ago(9),
        why: None,
        updated: 1,
        failed: Vec::new(),
    };
    for (phase, says) in [("rolling", false), ("paused", true), ("undoing", true)] {
        shop.services[0].rollout = Some(rollout(phase));
        assert_eq!(of_service(&shop.services[0], NOW).contains(phase), says, "{phase}");
    }
}
