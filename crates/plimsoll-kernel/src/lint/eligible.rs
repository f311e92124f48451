//! Nothing goes to a node that is down, cordoned, draining, not listed, that does not meet the constraints, or whose runtime
//! cannot run it.

use plimsoll_model::Mode;

use super::BatchPlan;

pub(super) fn check(plan: &BatchPlan<'_>) -> Vec<String> {
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
        let lacks = &node.facts.runtime.lacks;
        for capability in lacks.iter().filter(|it| new.spec.container.needs(**it)) {
            say(&format!("has a runtime that cannot {capability}"));
        }
    }
    broken
}
