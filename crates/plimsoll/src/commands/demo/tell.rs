//! The story, from what was watched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use owo_colors::OwoColorize;
use plimsoll_model::{Millis, Mode, NodeId, ReplicaId};
use plimsoll_sim::Scenario;

use super::watch::{Told, Watch};
use super::{BACK_AT, LOST_AT};
use crate::elapsed::elapsed;
use crate::output::count;
use crate::table::Table;

const NEXT: [(&str, &str); 2] = [
    ("plimsoll sim run scenarios/lost-node.yaml --story", "another, from a file you can change"),
    ("plimsoll validate -f compose.yaml", "what plimsoll makes of a file of yours"),
];

pub(super) fn story(scenario: &Scenario, node: &NodeId, watch: &Watch) -> String {
    let mut text =
        "A simulated cell: the shipped scheduler under a virtual clock, no containers.\n"
            .to_owned();
    placement(&mut text, scenario, watch);
    loss(&mut text, scenario, node, watch);
    recovery(&mut text, node, watch);
    back(&mut text, node, watch);
    proof(&mut text, scenario, node, watch);
    text
}

fn heading(text: &mut String, title: &str, sentence: &str) {
    let _ = writeln!(text, "\n{} {sentence}", title.bold());
}

fn line(text: &mut String, at: Millis, what: &str) {
    let _ = writeln!(text, "  {:>8}  {what}", elapsed(at));
}

/// `web-1`: the demo has one deployment.
fn short(replica: &ReplicaId) -> String {
    format!("{}-{}", replica.service.service, replica.slot)
}

fn placement(text: &mut String, scenario: &Scenario, watch: &Watch) {
    let zones: BTreeSet<_> = scenario.nodes.values().map(|facts| &facts.zone).collect();
    let sentence = format!(
        "A book shop comes to {} in {}. After {} all of its {} run:",
        count(scenario.nodes.len(), "node"),
        count(zones.len(), "zone"),
        elapsed(watch.complete_at),
        count(watch.homes.len(), "replica"),
    );
    heading(text, "Placement.", &sentence);
    let mut held: BTreeMap<&NodeId, Vec<String>> = BTreeMap::new();
    for (replica, node) in &watch.homes {
        held.entry(node).or_default().push(short(replica));
    }
    let mut table = Table::list(3);
    for (node, facts) in &scenario.nodes {
        let zone = facts.zone.as_ref().map_or("", |zone| zone.as_str());
        let replicas = held.remove(node).unwrap_or_default().join(", ");
        table.row([node.to_string(), zone.to_owned(), replicas]);
    }
    text.push_str(&table.render());
}

fn loss(text: &mut String, scenario: &Scenario, node: &NodeId, watch: &Watch) {
    heading(text, "A node is lost.", &format!("After {LOST_AT} {node} loses power."));
    let lost = watch.lines.iter().filter_map(|(_, told)| match told {
        Told::Ends(replica) => Some(short(replica)),
        _ => None,
    });
    let lost: Vec<String> = lost.collect();
    line(text, LOST_AT, &format!("{} end with it", lost.join(", ")));
    let (silence, grace) = (scenario.policy.node_ttl, scenario.policy.loss_grace);
    for (at, told) in &watch.lines {
        match told {
            Told::Down => line(
                text,
                *at,
                &format!("{node} is down: not heard for {silence}; it has {grace} to return"),
            ),
            Told::Moves { replica, dst, why } => {
                line(text, *at, &format!("{} goes to {dst}: {why}", short(replica)));
            }
            Told::Waits { replica, why } => {
                line(text, *at, &format!("{} waits: {why}", short(replica)));
            }
            Told::Ends(_) | Told::Runs(..) | Told::Ready => {}
        }
    }
    let global = |replica: &&ReplicaId| {
        let services = scenario.deployments.get(&replica.service.deployment);
        let spec = services.and_then(|services| services.get(&replica.service.service));
        spec.is_some_and(|spec| spec.placement.mode == Mode::Global)
    };
    let here = watch.homes.iter().filter(|(_, home)| *home == node).map(|(replica, _)| replica);
    for replica in here.filter(global) {
        let _ = writeln!(
            text,
            "            {} is not replaced: global runs one on each node, and the others have theirs",
            short(replica)
        );
    }
}

/// What came to run between two times, and when the last of it did.
fn begun(text: &mut String, watch: &Watch, from: Millis, to: Millis) -> Millis {
    let mut last = from;
    for (at, told) in watch.lines.iter().filter(|(at, _)| (from..to).contains(at)) {
        if let Told::Runs(replica, node) = told {
            line(text, *at, &format!("{} runs on {node}", short(replica)));
            last = *at;
        }
    }
    last
}

fn recovery(text: &mut String, node: &NodeId, watch: &Watch) {
    heading(text, "Recovery.", "Images are pulled, containers start and become healthy.");
    let last = begun(text, watch, LOST_AT, BACK_AT);
    let took = Millis((last.0 - LOST_AT.0) / 1_000 * 1_000);
    let _ =
        writeln!(text, "            All that can run without {node} does, {took} after the loss.");
}

fn back(text: &mut String, node: &NodeId, watch: &Watch) {
    heading(text, "The node returns.", &format!("After {BACK_AT} {node} has power again."));
    let ready = watch.lines.iter().filter(|(_, told)| matches!(told, Told::Ready));
    for (at, _) in ready {
        line(text, *at, &format!("{node} is ready"));
    }
    begun(text, watch, BACK_AT, Millis(u64::MAX));
    let is_move =
        |(at, told): &&(Millis, Told)| *at >= BACK_AT && matches!(told, Told::Moves { .. });
    let moved = watch.lines.iter().filter(is_move).count();
    let _ = writeln!(
        text,
        "            {} moved back: a replica on a node that may hold it stays there.",
        if moved == 0 { "Nothing".to_owned() } else { count(moved, "replica") }
    );
}

fn proof(text: &mut String, scenario: &Scenario, node: &NodeId, watch: &Watch) {
    let sentence = format!("{} promises held at each of {} steps.", watch.invariants, watch.steps);
    heading(text, "What was shown.", &sentence);
    let mut fewest = Vec::new();
    for (key, fewest_ran) in &watch.fewest {
        let services = &scenario.deployments[&key.deployment];
        let wanted = services[&key.service].placement.mode.replicas();
        if let Some(wanted) = wanted.filter(|wanted| *wanted > 1) {
            fewest.push(format!("{fewest_ran} of {wanted} {}", key.service));
        }
    }
    let _ = writeln!(
        text,
        "There were never fewer than {} running. The hour took {}, each off {node}, and the\n\
         data never left it. At the end the cell was at rest, with every replica where it may be.",
        fewest.join(" and "),
        count(watch.moves, "move"),
    );
    let _ = writeln!(text, "\n{}", "Try next:".bold());
    let mut table = Table::list(2);
    for (command, what) in NEXT {
        table.row([command.to_owned(), what.to_owned()]);
    }
    text.push_str(&table.render());
}
