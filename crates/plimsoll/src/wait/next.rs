//! Why a deployment did not get there, a line for each reason, and the next step for each kind of reason.

use std::collections::BTreeSet;

use plimsoll_api::view::{Deployment, Node, Reason, ReasonCode};
use plimsoll_model::Millis;

use super::judge::WaitVerdict;
use crate::age::took;
use crate::error::CliError;
use crate::replica_line::{plain, ready, silence};
use crate::table::Table;

/// More lines than this are a report; the page of the deployment has them all.
const MAX_REASONS: usize = 10;

pub(super) fn trouble(
    name: &str,
    revision: Option<u64>,
    deployment: Option<&Deployment>,
    verdict: WaitVerdict,
    at: Millis,
) -> CliError {
    let revision = revision.map(|revision| format!(" revision {revision}")).unwrap_or_default();
    let ready = deployment.map(ready).map(|(ready, wanted)| {
        let is = if ready == 1 { "is" } else { "are" };
        format!(": {ready} of {wanted} replicas {is} ready")
    });
    let ready = ready.unwrap_or_default();
    let at = took(at);
    match verdict {
        WaitVerdict::Stuck(reasons) => {
            let message = format!("{name}{revision} is stuck{ready}");
            explained(CliError::refused(message), name, &reasons)
        }
        WaitVerdict::Late(reasons) => {
            let message = format!("{name}{revision} is not steady after {at}{ready}");
            let trouble = explained(CliError::failed(message), name, &reasons);
            trouble.hint(format!("it continues; `plimsoll status {name} -w` shows how"))
        }
        WaitVerdict::Superseded { by } => {
            let message = format!("{name} went on to revision {by} before{revision} was steady");
            let hint = format!("`plimsoll history {name}` says who applied it");
            CliError::refused(message).hint(hint)
        }
        WaitVerdict::Gone => {
            let message = format!("{name} was deleted before it was steady");
            CliError::refused(message).hint("`plimsoll audit --type undeployed` says who did it")
        }
        WaitVerdict::Steady | WaitVerdict::Waiting => {
            CliError::failed(format!("{name} is not done"))
        }
    }
}

/// Nothing starts on a node whose runtime does not answer.
pub(super) fn unavailable(node: &Node) -> Option<Reason> {
    Some(Reason::new(&node.name, ReasonCode::RuntimeUnavailable, silence(node)?))
}

fn explained(trouble: CliError, name: &str, reasons: &[Reason]) -> CliError {
    let mut table = Table::list(3);
    for reason in reasons.iter().take(MAX_REASONS) {
        table.row([reason.subject.clone(), reason.word.to_string(), plain(&reason.text)]);
    }
    let text = table.render();
    let mut trouble = text.lines().fold(trouble, CliError::line);
    if reasons.len() > MAX_REASONS {
        let more = reasons.len() - MAX_REASONS;
        trouble = trouble.line(format!("  … {more} more; `plimsoll status {name}` has them all"));
    }
    let mut words = BTreeSet::new();
    for reason in reasons {
        if words.insert(reason.word)
            && let Some(step) = reason.advice()
        {
            trouble = trouble.hint(step);
        }
    }
    trouble
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::sample::{With, deployment, in_state, node, reason};

    fn text(verdict: WaitVerdict) -> String {
        let shop = deployment("shop")
            .service("web", 3)
            .replica("shop-web-2", |replica| replica.now = Some(in_state("ash", 3, "pending")))
            .replica("shop-web-3", |replica| replica.now = Some(in_state("ash", 3, "pending")));
        trouble("shop", Some(3), Some(&shop), verdict, Millis(612_000)).text()
    }

    #[test]
    fn every_kind_of_reason_has_a_next_step() {
        let why = vec![
            reason("shop-web-2", ReasonCode::ImagePullFailed, "nginx:1.99: manifest\nunknown"),
            reason("shop-web-3", ReasonCode::ImagePullFailed, "nginx:1.99: manifest unknown"),
            reason("shop-db-1", ReasonCode::RestartExhausted, "exited with status 1, 3 times"),
        ];
        expect![[r#"
            error: shop revision 3 is stuck: 1 of 3 replicas is ready
              shop-web-2  image_pull_failed  nginx:1.99: manifest unknown
              shop-web-3  image_pull_failed  nginx:1.99: manifest unknown
              shop-db-1   restart_exhausted  exited with status 1, 3 times
            hint: check the image's name and tag, and that the node can reach its registry; then apply again
            hint: `plimsoll logs shop-db-1` shows why; applying again, also the same file, retries
        "#]].assert_eq(&text(WaitVerdict::Stuck(why.clone())));
        expect![[r#"
            error: shop revision 3 is not steady after 10m 12s: 1 of 3 replicas is ready
              shop-web-2  image_pull_failed  nginx:1.99: manifest unknown
            hint: check the image's name and tag, and that the node can reach its registry; then apply again
            hint: it continues; `plimsoll status shop -w` shows how
        "#]].assert_eq(&text(WaitVerdict::Late(why[..1].to_vec())));
        let mut ash = node("ash");
        ash.runtime.as_mut().unwrap().trouble = Some("docker does not answer: no socket".into());
        let silent = unavailable(&ash).into_iter();
        let starting = reason("shop-web-2", ReasonCode::Starting, "ash was told to start it");
        expect![[r#"
            error: shop revision 3 is not steady after 10m 12s: 1 of 3 replicas is ready
              ash         runtime_unavailable  docker does not answer: no socket (retrying)
              shop-web-2  starting             ash was told to start it
            hint: start the container engine of the node; replicas that do not run there are replaced after a minute, and the node resumes by itself
            hint: it continues; `plimsoll status shop -w` shows how
        "#]]
        .assert_eq(&text(WaitVerdict::Late(silent.chain([starting]).collect())));
        expect![[r#"
            error: shop went on to revision 4 before revision 3 was steady
            hint: `plimsoll history shop` says who applied it
        "#]]
        .assert_eq(&text(WaitVerdict::Superseded { by: 4 }));
        expect![[r#"
            error: shop was deleted before it was steady
            hint: `plimsoll audit --type undeployed` says who did it
        "#]]
        .assert_eq(&text(WaitVerdict::Gone));
    }
}
