//! A plan as it is printed: a table for each thing that becomes of replicas, and what services lack meanwhile.

use std::fmt::Write as _;

use plimsoll_api::view::{Plan, ScoreParts};

use crate::replica_line::plain;
use crate::table::Table;

/// Whether the score of each choice is shown, with its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scores {
    Shown,
    Hidden,
}

/// What becomes of replicas. Rounds are shown where there is more than one.
pub(crate) fn tables(plan: &Plan, scores: Scores) -> String {
    let tables =
        [rollouts(plan), placed(plan), moved(plan), retired(plan), stays(plan), unplaced(plan)];
    let has_rounds = rounds(plan).any(|round| round > 1);
    let rendered = tables.into_iter().filter(|table| !table.is_empty()).map(|mut table| {
        if !has_rounds {
            table = table.without("ROUND");
        }
        if scores == Scores::Hidden {
            table = table.without("SCORE").without("WHY");
        }
        table.render()
    });
    rendered.collect::<Vec<_>>().join("\n")
}

/// `5 placed, 1 moved, 2 stay, 1 unplaced`
pub(crate) fn summary(plan: &Plan) -> String {
    let missing: u32 = plan.unplaced.iter().map(|unplaced| unplaced.missing).sum();
    let mut parts = vec![
        format!("{} placed", plan.placed.len()),
        format!("{} moved", plan.moved.len()),
        format!("{} stay", plan.stays.len()),
    ];
    if !plan.retired.is_empty() {
        parts.push(format!("{} retired", plan.retired.len()));
    }
    parts.push(format!("{missing} unplaced"));
    parts.join(", ")
}

/// Which services have fewer replicas meanwhile, a line each; nothing where none has.
pub(crate) fn shortfalls(plan: &Plan) -> String {
    let mut text = String::new();
    for short in &plan.short {
        let _ = writeln!(text, "{} falls to {} of {}", short.service, short.least, short.of);
    }
    text
}

/// Likewise, of a plan to its end, which also says where none has.
pub(crate) fn counts(plan: &Plan) -> String {
    let disturbs = !plan.moved.is_empty() || !plan.retired.is_empty();
    if plan.short.is_empty() && disturbs {
        "every service keeps its full count\n".to_owned()
    } else {
        shortfalls(plan)
    }
}

/// The named parts of a score.
pub(crate) fn parts(ScoreParts { zone, node, headroom, preferred }: ScoreParts) -> String {
    format!("zone {zone}, node {node}, headroom {headroom}, preferred {preferred}")
}

fn rounds(plan: &Plan) -> impl Iterator<Item = u32> {
    let placed = plan.placed.iter().map(|it| it.round);
    let moved = plan.moved.iter().map(|it| it.round);
    placed.chain(moved).chain(plan.retired.iter().map(|it| it.round))
}

fn rollouts(plan: &Plan) -> Table {
    let mut table = Table::new(["ROLLOUT", "RESULT", "DETAIL"]);
    for it in &plan.rollouts {
        table.row([it.service.clone(), it.result.clone(), it.detail.clone()]);
    }
    table
}

fn placed(plan: &Plan) -> Table {
    let mut table = Table::new(["PLACED", ">ROUND", "NODE", ">SCORE", "WHY"]);
    for it in &plan.placed {
        table.row([
            it.replica.clone(),
            it.round.to_string(),
            it.node.clone(),
            number(it.score),
            it.parts.map_or_else(|| "one on every node that may hold it".to_owned(), parts),
        ]);
    }
    table
}

fn moved(plan: &Plan) -> Table {
    let names = ["MOVED", ">ROUND", "FROM", "TO", "CAUSE", "HOW", ">SCORE", "WHY"];
    let mut table = Table::new(names);
    for it in &plan.moved {
        table.row([
            it.replica.clone(),
            it.round.to_string(),
            it.from.clone(),
            it.to.clone(),
            it.cause.to_string(),
            if it.is_stop_first { "stop-first" } else { "start-first" }.to_owned(),
            number(it.score),
            it.parts.map_or_else(|| "recreated in its own place".to_owned(), parts),
        ]);
    }
    table
}

fn retired(plan: &Plan) -> Table {
    if plan.retired.iter().all(|it| it.preempted_by.is_none()) {
        let mut table = Table::new(["RETIRED", ">ROUND", "NODE"]);
        for it in &plan.retired {
            table.row([it.replica.clone(), it.round.to_string(), it.node.clone()]);
        }
        return table;
    }
    let mut table = Table::new(["RETIRED", ">ROUND", "NODE", "PREEMPTED BY"]);
    for it in &plan.retired {
        let by = it.preempted_by.clone().unwrap_or_else(|| "-".to_owned());
        table.row([it.replica.clone(), it.round.to_string(), it.node.clone(), by]);
    }
    table
}

fn stays(plan: &Plan) -> Table {
    let mut table = Table::new(["STAYS", "NODE", "REASON", "DETAIL"]);
    for it in &plan.stays {
        let rest = if it.is_stopped { "; it is stopped" } else { "" };
        table.row([
            it.replica.clone(),
            it.node.clone(),
            it.reason.to_string(),
            plain(&it.detail) + rest,
        ]);
    }
    table
}

fn unplaced(plan: &Plan) -> Table {
    let mut table = Table::new(["UNPLACED", ">MISSING", "REASON", "DETAIL"]);
    for it in &plan.unplaced {
        table.row([
            it.service.clone(),
            it.missing.to_string(),
            it.reason.to_string(),
            plain(&it.detail),
        ]);
    }
    table
}

fn number(score: Option<u16>) -> String {
    score.map_or_else(|| "-".to_owned(), |score| score.to_string())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::{
        PlannedMove, PlannedPlacement, PlannedRetirement, PlannedRolloutStop, PlannedStay,
        ReasonCode, Shortfall, UnplacedReplicas,
    };

    use super::*;

    fn text(plan: &Plan, scores: Scores) -> String {
        let text = tables(plan, scores) + "\n" + &summary(plan) + "\n" + &counts(plan);
        anstream::adapter::strip_str(&text).to_string()
    }

    fn a_move(replica: &str, to: &str, is_stop_first: bool, round: u32) -> PlannedMove {
        PlannedMove {
            replica: replica.into(),
            service: "shop/web".into(),
            from: "ash".into(),
            to: to.into(),
            cause: ReasonCode::Misplaced,
            is_stop_first,
            round,
            score: Some(10_000),
            parts: Some(ScoreParts { zone: 7545, node: 1845, headroom: 410, preferred: 200 }),
        }
    }

    #[test]
    fn a_plan_says_what_becomes_of_each_replica_and_who_is_missed() {
        let plan = Plan {
            placed: vec![PlannedPlacement {
                replica: "shop-cache-1".into(),
                service: "shop/cache".into(),
                node: "birch".into(),
                round: 1,
                score: None,
                parts: None,
            }],
            moved: vec![
                a_move("shop-web-1", "birch", false, 1),
                a_move("shop-web-12", "cedar", true, 2),
            ],
            retired: vec![PlannedRetirement {
                replica: "mon-agent-ash".into(),
                service: "mon/agent".into(),
                node: "ash".into(),
                round: 1,
                preempted_by: None,
            }],
            stays: vec![PlannedStay {
                replica: "shop-db-1".into(),
                service: "shop/db".into(),
                node: "ash".into(),
                reason: ReasonCode::Stateful,
                detail: "its data lives on its node".into(),
                is_stopped: true,
            }],
            unplaced: vec![UnplacedReplicas {
                service: "shop/train".into(),
                missing: 2,
                reason: ReasonCode::NoEligibleNode,
                detail: "0 of 3 nodes can take it: 3 no_gpu".into(),
                why: serde_json::Value::Null,
            }],
            short: vec![Shortfall { service: "shop/db".into(), least: 0, of: 1 }],
            rollouts: vec![PlannedRolloutStop {
                service: "shop/web".into(),
                result: "aborted".into(),
                detail: "1 of 3 replicas failed".into(),
            }],
        };
        expect![[r#"
            ROLLOUT   RESULT   DETAIL
            shop/web  aborted  1 of 3 replicas failed

            PLACED        ROUND  NODE
            shop-cache-1      1  birch

            MOVED        ROUND  FROM  TO     CAUSE      HOW
            shop-web-1       1  ash   birch  misplaced  start-first
            shop-web-12      2  ash   cedar  misplaced  stop-first

            RETIRED        ROUND  NODE
            mon-agent-ash      1  ash

            STAYS      NODE  REASON    DETAIL
            shop-db-1  ash   stateful  its data lives on its node; it is stopped

            UNPLACED    MISSING  REASON            DETAIL
            shop/train        2  no_eligible_node  0 of 3 nodes can take it: 3 no_gpu

            1 placed, 2 moved, 1 stay, 1 retired, 2 unplaced
            shop/db falls to 0 of 1
        "#]]
        .assert_eq(&text(&plan, Scores::Hidden));
        expect![[r#"
            ROLLOUT   RESULT   DETAIL
            shop/web  aborted  1 of 3 replicas failed

            PLACED        ROUND  NODE   SCORE  WHY
            shop-cache-1      1  birch      -  one on every node that may hold it

            MOVED        ROUND  FROM  TO     CAUSE      HOW          SCORE  WHY
            shop-web-1       1  ash   birch  misplaced  start-first  10000  zone 7545, node 1845, headroom 410, preferred 200
            shop-web-12      2  ash   cedar  misplaced  stop-first   10000  zone 7545, node 1845, headroom 410, preferred 200

            RETIRED        ROUND  NODE
            mon-agent-ash      1  ash

            STAYS      NODE  REASON    DETAIL
            shop-db-1  ash   stateful  its data lives on its node; it is stopped

            UNPLACED    MISSING  REASON            DETAIL
            shop/train        2  no_eligible_node  0 of 3 nodes can take it: 3 no_gpu

            1 placed, 2 moved, 1 stay, 1 retired, 2 unplaced
            shop/db falls to 0 of 1
        "#]].assert_eq(&text(&plan, Scores::Shown));
    }

    #[test]
    fn one_round_needs_no_number() {
        let moved = vec![a_move("shop-web-1", "birch", false, 1)];
        let plan = Plan { moved, ..Plan::default() };
        expect![[r#"
            MOVED       FROM  TO     CAUSE      HOW
            shop-web-1  ash   birch  misplaced  start-first

            0 placed, 1 moved, 0 stay, 0 unplaced
            every service keeps its full count
        "#]]
        .assert_eq(&text(&plan, Scores::Hidden));
    }
}
