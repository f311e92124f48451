use expect_test::expect;
use plimsoll_api::view::ReasonCode;

use super::*;
use crate::sample::{NOW, With, deployment, in_state, reason, running, status, unpulled};

fn shop() -> Deployment {
    deployment("shop").service("db", 1).service("web", 3)
}

fn lines(story: &ProgressStory, deployment: &Deployment, size: (usize, usize)) -> String {
    let status = status(vec![deployment.clone()]);
    let lines = story.lines(&status, deployment, Millis(3_140), NOW, size);
    anstream::adapter::strip_str(&(lines.join("\n") + "\n")).to_string()
}

fn changes(story: &mut ProgressStory, deployment: &Deployment) -> String {
    let lines = story.changes(&status(vec![deployment.clone()]), deployment);
    let lines = lines.iter().flat_map(|line| [line.as_str(), "\n"]);
    anstream::adapter::strip_str(&lines.collect::<String>()).to_string()
}

#[test]
fn every_change_is_a_line_and_nothing_else_is() {
    let mut story = ProgressStory::default();
    let renewed = |state: &str| {
        shop().replica("shop-web-1", |replica| {
            replica.now = Some(running("ash", 2));
            replica.next = Some(in_state("ash", 3, state)).filter(|_| state != "running");
        })
    };
    let mut told = String::new();
    for deployment in
        [renewed("running"), renewed("pulling"), renewed("pulling"), renewed("starting"), shop()]
    {
        told.push_str(&changes(&mut story, &deployment));
        told.push_str("--\n");
    }
    expect![[r#"
        shop-web-1 running on ash: still revision 2
        --
        shop-web-1 running on ash: replacing: the new one is pulling
        --
        --
        shop-web-1 running on ash: replacing: the new one is starting
        --
        shop-web-1 running on ash
        --
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_replica_that_leaves_is_told_to_its_end() {
    let mut story = ProgressStory::default();
    let leaving = shop().replica("shop-web-3", |replica| {
        replica.leaving = replica.now.take().into_iter().collect();
    });
    let mut told = changes(&mut story, &leaving);
    let without = deployment("shop").service("db", 1).service("web", 2);
    told.push_str(&changes(&mut story, &without));
    told.push_str(&changes(&mut story, &without));
    expect![[r#"
        shop-web-3 stopping on ash
        shop-web-3 gone
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_job_that_is_done_is_completed() {
    let mut story = ProgressStory::default();
    let mut told = changes(
        &mut story,
        &shop().replica("shop-db-1", |it| it.now = Some(in_state("ash", 3, "starting"))),
    );
    let done = Some(reason("shop-db-1", ReasonCode::Completed, "it has done its job"));
    told.push_str(&changes(
        &mut story,
        &shop().replica("shop-db-1", |it| it.now.as_mut().unwrap().reason = done),
    ));
    expect![[r#"
        shop-db-1 starting on ash
        shop-db-1 completed on ash
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_terminal_shows_what_is_under_way() {
    let mut story = ProgressStory::default();
    let shop = shop()
        .replica("shop-web-1", |replica| replica.now = Some(in_state("ash", 3, "starting")))
        .replica("shop-web-3", |replica| replica.now = Some(unpulled("ash")));
    changes(&mut story, &shop);
    expect![[r#"
        shop revision 3: 2 of 4 replicas ready, 3.1 s
          shop-web-1  starting   ash
          shop-web-3  pending    ash  image_pull_failed: web:1.99: manifest unknown; next try in 8s
    "#]]
    .assert_eq(&lines(&story, &shop, (100, 24)));
    expect![[r#"
        shop revision 3: 2 of 4 replicas ready, 3.1 s
          shop-web-1  starting   ash
          shop-web-3  pending    ash
                image_pull_failed: web:1.99:
                manifest unknown; next try in 8s
    "#]]
    .assert_eq(&lines(&story, &shop, (40, 24)));
    expect![[r#"
        shop revision 3: 2 of 4 replicas ready, 3.1 s
          shop-web-1  starting   ash
          … 1 more line
    "#]]
    .assert_eq(&lines(&story, &shop, (100, 4)));
}

#[test]
fn a_runtime_that_does_not_answer_is_said() {
    let mut story = ProgressStory::default();
    let shop = shop().replica("shop-web-1", |it| it.now = Some(in_state("ash", 3, "pending")));
    let mut status = status(vec![shop.clone()]);
    let runtime = status.nodes[0].runtime.as_mut().unwrap();
    runtime.trouble = Some("connection refused".to_owned());
    let told = story.changes(&status, &shop).join("\n");
    expect![[r#"
        ash waits: docker does not answer: connection refused (retrying)
        shop-web-1 pending on ash
    "#]]
    .assert_eq(&(anstream::adapter::strip_str(&told).to_string() + "\n"));
}
