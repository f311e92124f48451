//! Explanations of a described cell, as they are printed.

use plimsoll_workbench::explain::{NodeExplanation, SubjectExplanation};

use crate::plan_table::parts;
use crate::table::Table;

/// One explanation: a sentence, and a line for each node.
pub(super) fn text(of: &SubjectExplanation) -> String {
    let mut table = Table::list(3);
    for node in &of.nodes {
        let (word, detail) = words(node, &of.service);
        table.row([node.node.to_string(), word, detail]);
    }
    format!("{} {}: {}\n{}", of.subject, of.headline, of.why, table.render())
}

/// One line each.
pub(super) fn short(all: &[SubjectExplanation]) -> String {
    let mut table = Table::new(["REPLICA", "NODE", "OUTCOME", "WHY"]);
    for of in all {
        let node = of.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        table.row([of.subject.clone(), node, of.outcome.to_owned(), of.why.clone()]);
    }
    table.render()
}

fn words(node: &NodeExplanation, service: &str) -> (String, String) {
    if let Some(holds) = &node.holds {
        return ("holds".to_owned(), holds.clone());
    }
    let mut detail: Vec<String> = Vec::new();
    detail.extend(node.filter.as_ref().map(|filter| filter.detail.clone()));
    detail.extend(node.parts.map(|score| parts(score.into())));
    if node.filter.is_none() && node.replicas > 0 {
        detail.push(format!("has {} of {service}", node.replicas));
    }
    detail.extend(node.preemption.clone());
    detail.extend(node.place.map(str::to_owned));
    let word = match (&node.filter, node.score) {
        (Some(filter), _) => filter.word.clone(),
        (None, Some(score)) => score.to_string(),
        (None, None) => "takes one".to_owned(),
    };
    (word, detail.join("; "))
}
