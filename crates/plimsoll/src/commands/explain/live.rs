//! Why replicas of a running cell are where they are, as its daemon says.

use std::fmt::Write as _;

use plimsoll_api::client::Client;
use plimsoll_api::view::{
    Explanation, Gate, Move, MoveReview, NodeAccount, NodeVerdict, PreemptionVerdict, Reason,
    Replica, WeighedMove,
};
use plimsoll_model::Pressure;

use crate::age::until;
use crate::error::CliError;
use crate::output::{Format, print};
use crate::replica_line::{ReplicaLine, plain};
use crate::schedule_lines;
use crate::subject;
use crate::table::Table;
use crate::wait::now;

/// Of how many moves off a node the gates are shown.
const SHOWN: usize = 3;

pub(super) async fn run(
    client: &Client,
    subject: Option<&str>,
    format: Format,
) -> Result<(), CliError> {
    let status = client.status().await?;
    if let Some(node) = subject.filter(|text| status.nodes.iter().any(|node| node.name == *text)) {
        let account = client.explain_node(node).await?;
        return print(format, &account, of_node);
    }
    let found = subject.map(|text| subject::find(&status, text)).transpose()?;
    if let Some(subject::Subject::Replica(_, service, replica)) = found {
        let explanation = client.explain(&replica.id).await?;
        let schedule = service.schedule.as_ref().map(|it| schedule_lines::summary(it, now()));
        let schedule = schedule.map(|it| format!("schedule: {it}\n")).unwrap_or_default();
        let standing = standing(replica) + &schedule;
        return print(format, &explanation, |it| text(it, &standing));
    }
    let replicas = if let Some(found) = found {
        found.replicas()
    } else {
        let services = status.deployments.iter().flat_map(|deployment| &deployment.services);
        services.flat_map(|service| &service.replicas).collect()
    };
    let mut all = Vec::new();
    for replica in replicas {
        match client.explain(&replica.id).await {
            Ok(explanation) => all.push(explanation),
            // It has gone since the list was made.
            Err(error) if error.is_refusal() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let schedules = match found {
        Some(subject::Subject::Service(_, service)) => {
            let schedule = service.schedule.as_ref();
            schedule.map(|it| format!("schedule: {}\n", schedule_lines::summary(it, now())))
        }
        _ => None,
    };
    print(format, &all, |all| schedules.unwrap_or_default() + &short(all))
}

fn short(all: &[Explanation]) -> String {
    let mut table = Table::new(["REPLICA", "NODE", "WHY"]);
    for Explanation { replica, node, why, .. } in all {
        table.row([replica.clone(), node.clone().unwrap_or_else(|| "-".to_owned()), plain(why)]);
    }
    table.render()
}

/// `starting on ash: unhealthy: …`, where its node says what is the matter with it.
fn standing(replica: &Replica) -> String {
    let has_reason = replica.now.as_ref().is_some_and(|now| now.reason.is_some());
    if has_reason { format!("{}\n", ReplicaLine::of(replica).sentence()) } else { String::new() }
}

pub(crate) fn text(explanation: &Explanation, standing: &str) -> String {
    let Explanation { replica, service, node, why, nodes, .. } = explanation;
    let is = node.as_ref().map_or_else(|| "is nowhere".to_owned(), |node| format!("is on {node}"));
    let mut table = Table::list(3);
    for verdict in nodes {
        let (word, detail) = words(verdict, service);
        table.row([verdict.node.clone(), word, detail]);
    }
    let moving = explanation.moving.as_ref().map(moving).unwrap_or_default();
    let rescheduling = explanation.rescheduling.as_ref();
    let rescheduling =
        rescheduling.map(|it| format!("rescheduler: {}\n", plain(&it.text))).unwrap_or_default();
    let reviewed = |it: &MoveReview| format!("reviewed: {}\n", plain(&it.text));
    let reviews: String = explanation.reviews.iter().take(SHOWN).map(reviewed).collect();
    let note = |note: &Reason| format!("note: {}\n", plain(&note.text));
    let notes: String = explanation.notes.iter().map(note).collect();
    let table = table.render();
    let why = plain(why);
    let preemption = preemption(&explanation.preemption);
    format!(
        "{replica} {is}: {why}\n{standing}{moving}{rescheduling}{reviews}{notes}{table}{preemption}"
    )
}

/// Whom it could preempt, node by node.
fn preemption(verdicts: &[PreemptionVerdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let mut table = Table::list(3);
    for it in verdicts {
        let word = match &it.reason {
            Some(reason) => reason.clone(),
            None if it.is_best => "preempts".to_owned(),
            None => "could preempt".to_owned(),
        };
        let detail = it.detail.as_deref().map_or_else(|| it.victims.join(", "), plain);
        table.row([it.node.clone(), word, detail]);
    }
    format!("preemption:\n{}", table.render())
}

/// What the rebalancer has to say of a node.
pub(crate) fn of_node(account: &NodeAccount) -> String {
    let mut text = format!("{}\n", plain(&account.why));
    if let Some(fill) = &account.fill {
        let _ = writeln!(text, "{}", plain(&fill.text));
    }
    text.push_str(&gates(&account.gates));
    for WeighedMove { replica, dst, relief, gates: of_move } in account.moves.iter().take(SHOWN) {
        let relief = Pressure::from_millionths(*relief);
        let _ = writeln!(text, "{replica} to {dst} would relieve {relief}");
        text.push_str(&gates(of_move));
    }
    let more = account.moves.len().saturating_sub(SHOWN);
    if more > 0 {
        let _ = writeln!(text, "and {more} more that relieve it less; `-o json` has all");
    }
    text
}

fn gates(gates: &[Gate]) -> String {
    let mut table = Table::list(4);
    for Gate { gate, found, limit, passes } in gates {
        let is = if *passes { "passes" } else { "blocks" };
        table.row([gate.clone(), is.to_owned(), plain(found), format!("limit {limit}")]);
    }
    table.render()
}

/// `moves ash → birch (misplaced): start; given up in 58s unless it comes further`
fn moving(under: &Move) -> String {
    let Move { from, to, cause, step, deadline, reason, .. } = under;
    let mut text = match cause {
        Some(cause) if from == to => format!("is being replaced on {to} ({cause}): {step}"),
        Some(cause) => format!("moves {from} → {to} ({cause}): {step}"),
        None => format!("moved from {from}: {step}"),
    };
    if let Some(reason) = reason {
        text.extend([", ", &plain(&reason.text)]);
    }
    if let Some(deadline) = deadline {
        text.extend(["; given up ", &until(*deadline, now()), " unless it comes further"]);
    }
    text + "\n"
}

fn words(verdict: &NodeVerdict, service: &str) -> (String, String) {
    let mut detail: Vec<String> = Vec::new();
    detail.extend(verdict.filter.as_ref().map(|filter| plain(&filter.text)));
    if !verdict.parts.is_empty() {
        // In the order in which they outweigh each other, then whatever else a later daemon counts.
        let known = ["zone", "node", "headroom", "preferred"];
        let others = verdict.parts.keys().map(String::as_str).filter(|name| !known.contains(name));
        let names = known.into_iter().chain(others);
        let parts: Vec<String> = names
            .filter_map(|name| verdict.parts.get(name).map(|part| format!("{name} {part}")))
            .collect();
        detail.push(parts.join(", "));
    }
    if verdict.filter.is_none() && verdict.replicas > 0 {
        detail.push(format!("has {} of {service}", verdict.replicas));
    }
    if verdict.is_here {
        detail.push("here".to_owned());
    }
    let word = match (&verdict.filter, verdict.score) {
        (Some(filter), _) => filter.word.to_string(),
        (None, Some(score)) => score.to_string(),
        (None, None) => "takes one".to_owned(),
    };
    (word, detail.join("; "))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::sample::reason;
    use plimsoll_api::view::{FillStatus, ReasonCode, RescheduleVerdict};

    #[test]
    fn every_gate_of_a_node_is_told_with_its_number_and_its_limit() {
        let gate = |gate: &str, found: &str, limit: &str, passes| Gate {
            gate: gate.into(),
            found: found.into(),
            limit: limit.into(),
            passes,
        };
        let account = NodeAccount {
            node: "birch".into(),
            why: "nothing moves off birch: dst_cap is 0.80, and must be < 0.75".into(),
            fill: Some(FillStatus {
                has: 9,
                fair_share: 8,
                losses: 0,
                stage: "filled".into(),
                next_at: None,
                text: "birch has 9 replicas, its fair share is 8: not filled any further".into(),
            }),
            gates: vec![gate("trigger", "0.9125", "0.85", true)],
            moves: vec![WeighedMove {
                replica: "shop-web-2".into(),
                dst: "ash".into(),
                relief: 240_000,
                gates: vec![gate("dst_cap", "0.80", "0.75", false)],
            }],
        };
        expect![[r#"
            nothing moves off birch: dst_cap is 0.80, and must be < 0.75
            birch has 9 replicas, its fair share is 8: not filled any further
              trigger  passes  0.9125  limit 0.85
            shop-web-2 to ash would relieve 0.24
              dst_cap  blocks  0.80  limit 0.75
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&of_node(&account)).to_string());
    }

    #[test]
    fn every_node_has_its_say() {
        let parts = [("zone", 7_545), ("node", 1_845), ("headroom", 410), ("preferred", 200)];
        let verdict = |node: &str, is_here| NodeVerdict {
            node: node.into(),
            is_here,
            replicas: 0,
            score: Some(10_000),
            parts: parts.iter().map(|(name, part)| ((*name).to_owned(), *part)).collect(),
            filter: None,
        };
        let mut birch = verdict("birch", false);
        birch.replicas = 1;
        let mut cedar = verdict("cedar", false);
        cedar.score = None;
        cedar.parts.clear();
        cedar.filter = Some(reason("cedar", ReasonCode::NotReady, "the node is down"));
        let explanation = Explanation {
            replica: "shop-web-2".into(),
            service: "shop/web".into(),
            mode: "spread".into(),
            node: Some("ash".into()),
            why: "existing placements on eligible nodes stay".into(),
            moving: Some(Move {
                replica: "shop-web-2".to_owned(),
                from: "cedar".to_owned(),
                to: "ash".to_owned(),
                cause: Some(ReasonCode::Misplaced),
                step: "start".to_owned(),
                since: crate::sample::ago(2),
                deadline: None,
                reason: None,
            }),
            rescheduling: Some(RescheduleVerdict {
                stays: Some("not_better".into()),
                best: Some("birch".into()),
                score_best: Some(10_000),
                score_current: Some(10_000),
                threshold: Some(610),
                text: "stays: the difference of 0 is not above the threshold of 610".into(),
            }),
            reviews: vec![MoveReview {
                replica: "shop-web-2".into(),
                src: "cedar".into(),
                dst: "ash".into(),
                by: "rebalancer".into(),
                began: crate::sample::ago(700),
                reviewed: crate::sample::ago(90),
                predicted: 240_000,
                realised: Some(200_000),
                not_judged: None,
                text: "shop-web-2 cedar → ash by the rebalancer: predicted 0.24, realised 0.20"
                    .into(),
            }],
            notes: vec![reason(
                "shop/web",
                ReasonCode::ImageNotPinned,
                "web:1 is used by its tag: the registry did not answer",
            )],
            preemption: vec![
                PreemptionVerdict {
                    node: "ash".into(),
                    is_best: true,
                    victims: vec!["low-batch-1".into()],
                    reason: None,
                    detail: None,
                },
                PreemptionVerdict {
                    node: "birch".into(),
                    is_best: false,
                    victims: Vec::new(),
                    reason: Some("still_no_room".into()),
                    detail: Some("0 may make way, and then: asks for 3 cpu, 1 free".into()),
                },
            ],
            nodes: vec![verdict("ash", true), birch, cedar],
        };
        expect![[r#"
            shop-web-2 is on ash: existing placements on eligible nodes stay
            moves cedar → ash (misplaced): start
            rescheduler: stays: the difference of 0 is not above the threshold of 610
            reviewed: shop-web-2 cedar → ash by the rebalancer: predicted 0.24, realised 0.20
            note: web:1 is used by its tag: the registry did not answer
              ash    10000      zone 7545, node 1845, headroom 410, preferred 200; here
              birch  10000      zone 7545, node 1845, headroom 410, preferred 200; has 1 of shop/web
              cedar  not_ready  the node is down
            preemption:
              ash    preempts       low-batch-1
              birch  still_no_room  0 may make way, and then: asks for 3 cpu, 1 free
        "#]]
        .assert_eq(&text(&explanation, ""));
        let short = short(std::slice::from_ref(&explanation));
        expect![[r#"
            REPLICA     NODE  WHY
            shop-web-2  ash   existing placements on eligible nodes stay
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&short).to_string());
    }
}
