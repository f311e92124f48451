//! What differs between two looks at the cell, a line each.

use std::collections::BTreeMap;

use plimsoll_api::view::{Progress, Status};

use crate::replica_line::{ReplicaLine, availability, coloured, progress_word, said, silence};

pub(super) fn changes(before: &Status, after: &Status) -> Vec<String> {
    let (before, after) = (facts(before), facts(after));
    let fresh = after.iter().filter(|(subject, fact)| before.get(*subject) != Some(*fact));
    let gone = before.keys().filter(|subject| !after.contains_key(*subject));
    fresh
        .map(|(subject, fact)| format!("{subject} {fact}"))
        .chain(gone.map(|subject| format!("{subject} {}", coloured("gone"))))
        .collect()
}

/// Nothing in them changes by itself as time passes.
fn facts(status: &Status) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let leader = status.cell.leader.as_deref().unwrap_or("nobody");
    facts.insert(format!("cell {}", status.cell.name), format!("is led by {leader}"));
    for node in &status.nodes {
        let trouble = silence(node).map(|silence| format!(": {silence}"));
        let word = if node.status == "ready" { availability(node) } else { &node.status };
        let fact = format!("is {}{}", coloured(word), trouble.unwrap_or_default());
        facts.insert(format!("node {}", node.name), fact);
    }
    for deployment in &status.deployments {
        let mut fact =
            format!("revision {} is {}", deployment.revision, coloured(progress_word(deployment)));
        if let Progress::Stuck { why } = &deployment.progress {
            let why: Vec<String> =
                why.iter().map(|reason| format!("{} {}", reason.subject, said(reason))).collect();
            fact.extend([": ", &why.join("; ")]);
        }
        facts.insert(deployment.name.clone(), fact);
        for service in &deployment.services {
            for replica in &service.replicas {
                let line = ReplicaLine::within(deployment, service, replica);
                facts.insert(replica.id.clone(), line.sentence());
            }
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use plimsoll_api::view::ReasonCode;

    use crate::sample::{With, deployment, in_state, reason, status, unpulled, with_progress};

    #[test]
    fn each_change_is_a_line() {
        let before = status(vec![deployment("shop").service("web", 3), deployment("blog")]);
        let why =
            vec![reason("shop-web-3", ReasonCode::ImagePullFailed, "web:1.99: manifest unknown")];
        let shop = deployment("shop")
            .service("web", 3)
            .replica("shop-web-1", |it| it.now = Some(in_state("ash", 3, "degraded")))
            .replica("shop-web-3", |it| it.now = Some(unpulled("ash")));
        let mut after = status(vec![with_progress(shop, Progress::Stuck { why })]);
        after.nodes[0].runtime.as_mut().unwrap().trouble = Some("connection refused".into());
        let lines = changes(&before, &after).join("\n") + "\n";
        expect![[r#"
            node ash is active: docker does not answer: connection refused (retrying)
            shop revision 3 is stuck: shop-web-3 image_pull_failed: web:1.99: manifest unknown
            shop-web-1 degraded on ash
            shop-web-3 pending on ash: image_pull_failed: web:1.99: manifest unknown
            blog gone
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&lines).to_string());
        assert_eq!(changes(&after, &after), Vec::<String>::new());
    }
}
