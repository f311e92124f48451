//! Why a deployment did not get there, a line for each reason, and the next step for each kind of reason.

use plimsoll_daemon::view::{Deployment, Node, Reason};
use plimsoll_model::Millis;

use super::judge::Verdict;
use crate::age::took;
use crate::glance::{plain, ready, silence};
use crate::table::Table;
use crate::trouble::Trouble;

/// As the API calls it when it warns.
const UNAVAILABLE: &str = "runtime_unavailable";

/// More lines than this are a report; the page of the deployment has them all.
const MAX_REASONS: usize = 10;

pub(super) fn trouble(
    name: &str,
    revision: Option<u64>,
    deployment: Option<&Deployment>,
    verdict: Verdict,
    at: Millis,
) -> Trouble {
    let revision = revision.map(|revision| format!(" revision {revision}")).unwrap_or_default();
    let ready = deployment.map(ready).map(|(ready, wanted)| {
        let is = if ready == 1 { "is" } else { "are" };
        format!(": {ready} of {wanted} replicas {is} ready")
    });
    let ready = ready.unwrap_or_default();
    let at = took(at);
    match verdict {
        Verdict::Stuck(reasons) => {
            let message = format!("{name}{revision} is stuck{ready}");
            explained(Trouble::refused(message), name, &reasons)
        }
        Verdict::Late(reasons) => {
            let message = format!("{name}{revision} is not steady after {at}{ready}");
            let trouble = explained(Trouble::refused(message), name, &reasons);
            trouble.hint(format!("it goes on; `plimsoll status {name} -w` shows how"))
        }
        Verdict::Superseded { by } => {
            let message = format!("{name} went on to revision {by} before{revision} was steady");
            let hint = format!("`plimsoll history {name}` says who applied it");
            Trouble::refused(message).hint(hint)
        }
        Verdict::Gone => {
            let message = format!("{name} was deleted before it was steady");
            Trouble::refused(message).hint("`plimsoll audit --type undeployed` says who did it")
        }
        Verdict::Steady | Verdict::Waiting => Trouble::failed(format!("{name} is not done")),
    }
}

/// Nothing starts on a node whose runtime does not answer.
pub(super) fn unavailable(node: &Node) -> Option<Reason> {
    let (subject, text) = (node.name.clone(), silence(node)?);
    Some(Reason { subject, word: UNAVAILABLE.to_owned(), text })
}

fn explained(trouble: Trouble, name: &str, reasons: &[Reason]) -> Trouble {
    let mut table = Table::list(3);
    for reason in reasons.iter().take(MAX_REASONS) {
        table.row([reason.subject.clone(), reason.word.clone(), plain(&reason.text)]);
    }
    let text = table.render();
    let mut trouble = text.lines().fold(trouble, Trouble::line);
    if reasons.len() > MAX_REASONS {
        let more = reasons.len() - MAX_REASONS;
        trouble = trouble.line(format!("  … {more} more; `plimsoll status {name}` has them all"));
    }
    let mut words: Vec<&str> = Vec::new();
    for reason in reasons {
        if !words.contains(&reason.word.as_str()) {
            words.push(&reason.word);
            if let Some(step) = step(reason) {
                trouble = trouble.hint(step);
            }
        }
    }
    trouble
}

/// What to do about it; none where there is nothing to do but wait.
fn step(reason: &Reason) -> Option<String> {
    let subject = &reason.subject;
    Some(match reason.word.as_str() {
        "image_pull_failed" => "check the image's name and tag, and that the node can reach its \
                                registry; then apply again"
            .to_owned(),
        "restart_exhausted" | "exited" | "unhealthy" | "out_of_memory" => format!(
            "`plimsoll logs {subject}` says why it ended; applying again, also the same file, tries again"
        ),
        "stalled" => format!(
            "the new spec did not become healthy, and what ran before runs on: see `plimsoll logs {subject}`, \
             correct it and apply again"
        ),
        "rolled_back" => {
            let deployment = subject.split('/').next().unwrap_or(subject);
            format!(
                "the new spec failed, and what ran before runs on: `plimsoll rollout status {deployment}` says what \
                 failed; correct it and apply again"
            )
        }
        "paused" => {
            let deployment = subject.split('/').next().unwrap_or(subject);
            format!(
                "`plimsoll rollout resume {deployment}` goes on, `plimsoll rollout abort {deployment}` takes it back"
            )
        }
        "start_failed" => "put right what the error names, then apply again".to_owned(),
        "no_eligible_node" | "no_nodes" => {
            format!("`plimsoll explain {subject}` says what each node lacks")
        }
        "cannot_satisfy_host_placement" => {
            "start the nodes it names, or change the service's hosts".to_owned()
        }
        "stateful" => "its data is on its node: bring that node back".to_owned(),
        UNAVAILABLE => "start it; the node goes on by itself once it answers".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::sample::{With, deployment, in_state, node, reason};

    fn text(verdict: Verdict) -> String {
        let shop = deployment("shop")
            .service("web", 3)
            .replica("shop-web-2", |replica| replica.now = Some(in_state("ash", 3, "pending")))
            .replica("shop-web-3", |replica| replica.now = Some(in_state("ash", 3, "pending")));
        trouble("shop", Some(3), Some(&shop), verdict, Millis(612_000)).text()
    }

    #[test]
    fn every_kind_of_reason_has_a_next_step() {
        let why = vec![
            reason("shop-web-2", "image_pull_failed", "nginx:1.99: manifest\nunknown"),
            reason("shop-web-3", "image_pull_failed", "nginx:1.99: manifest unknown"),
            reason("shop-db-1", "restart_exhausted", "exited with status 1, 3 times"),
        ];
        expect![[r#"
            error: shop revision 3 is stuck: 1 of 3 replicas is ready
              shop-web-2  image_pull_failed  nginx:1.99: manifest unknown
              shop-web-3  image_pull_failed  nginx:1.99: manifest unknown
              shop-db-1   restart_exhausted  exited with status 1, 3 times
            hint: check the image's name and tag, and that the node can reach its registry; then apply again
            hint: `plimsoll logs shop-db-1` says why it ended; applying again, also the same file, tries again
        "#]].assert_eq(&text(Verdict::Stuck(why.clone())));
        expect![[r#"
            error: shop revision 3 is not steady after 10m 12s: 1 of 3 replicas is ready
              shop-web-2  image_pull_failed  nginx:1.99: manifest unknown
            hint: check the image's name and tag, and that the node can reach its registry; then apply again
            hint: it goes on; `plimsoll status shop -w` shows how
        "#]].assert_eq(&text(Verdict::Late(why[..1].to_vec())));
        let mut ash = node("ash");
        ash.runtime.as_mut().unwrap().trouble = Some("docker does not answer: no socket".into());
        let silent = unavailable(&ash).into_iter();
        let starting = reason("shop-web-2", "starting", "ash was told to start it");
        expect![[r#"
            error: shop revision 3 is not steady after 10m 12s: 1 of 3 replicas is ready
              ash         runtime_unavailable  docker does not answer: no socket (retrying)
              shop-web-2  starting             ash was told to start it
            hint: start it; the node goes on by itself once it answers
            hint: it goes on; `plimsoll status shop -w` shows how
        "#]]
        .assert_eq(&text(Verdict::Late(silent.chain([starting]).collect())));
        expect![[r#"
            error: shop went on to revision 4 before revision 3 was steady
            hint: `plimsoll history shop` says who applied it
        "#]]
        .assert_eq(&text(Verdict::Superseded { by: 4 }));
        expect![[r#"
            error: shop was deleted before it was steady
            hint: `plimsoll audit --type undeployed` says who did it
        "#]]
        .assert_eq(&text(Verdict::Gone));
    }
}
