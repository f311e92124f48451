//! Nothing goes to a node that is down, cordoned, draining, not listed, or that does not meet the constraints.

use plimsoll_model::Mode;

use super::Plan;

pub(super) fn check(plan: &Plan<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for new in &plan.new {
        let mut say =
            |why: &str| broken.push(format!("{} goes to {}, which {why}", new.replica, new.node));
        let Some(node) = plan.node(new) else {
            say("does not exist");
            continue;
        };
        // In its own place a replica may be renewed on a node that is closed to others.
        if !node.is_open() && !new.is_in_place {
            say("is not open");
        }
        if let Mode::Hosts { hosts, .. } = &new.spec.placement.mode
            && !hosts.contains(new.node)
        {
            say("is not listed");
        }
        for constraint in &new.spec.placement.constraints {
            if !node.facts.meets(new.node, constraint) {
                say(&format!("does not meet {constraint}"));
            }
        }
    }
    broken
}
