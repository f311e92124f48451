//! Nothing goes to a node that is down, cordoned, draining, not listed, that does not meet the constraints, or whose runtime
//! cannot run it.

use std::path::Path;

use plimsoll_model::Mode;
use plimsoll_model::spec::MountSource;

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
            if !node.facts.meets(new.node, plan.role(new.node), constraint) {
                say(&format!("does not meet {constraint}"));
            }
        }
        let lacks = &node.facts.runtime.lacks;
        for capability in lacks.iter().filter(|it| new.spec.container.needs(**it)) {
            say(&format!("has a runtime that cannot {capability}"));
        }
        // Who is no admin binds below a root of the node, and is nobody's root.
        let (container, runtime) = (&new.spec.container, &node.facts.runtime);
        if container.asked_by.is_some() {
            for mount in &container.mounts {
                if let MountSource::Bind { path, .. } = &mount.source
                    && !runtime.bind_roots.iter().any(|root| Path::new(path).starts_with(root))
                {
                    say(&format!("has no bind root for {path}"));
                }
            }
            let user = container.user.as_deref().unwrap_or("root");
            if runtime.root_is_host && matches!(user, "" | "0" | "root") {
                say("would run it as root");
            }
        }
    }
    broken
}
