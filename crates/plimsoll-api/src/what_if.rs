//! What people suppose, by the names that they give: the nodes and services of a cell that are meant, or why nothing is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::what_if::Supposition;
use plimsoll_model::state::MAX_CAPACITY;
use plimsoll_model::{
    Bytes, DeploymentName, MilliCpus, Mode, NodeFacts, NodeId, Resources, ServiceKey, SpecHash,
    State, Zone,
};

use crate::suggest;
use crate::view::{Problem, ProblemCode, WhatIf};

/// The most nodes that can be supposed to join at once: as many as a large cell has.
pub const MAX_ADDED: u32 = 10_000;

/// What is meant in this cell.
pub fn supposition(state: &State, asked: &WhatIf) -> Result<Supposition, Problem> {
    match asked {
        WhatIf::Drain { nodes } => Ok(Supposition::Drain(known_nodes(state, nodes)?)),
        WhatIf::Lose { nodes } => Ok(Supposition::Lose(known_nodes(state, nodes)?)),
        WhatIf::Add { count, milli_cpus, memory, gpus, zone } => {
            let capacity = Resources {
                cpu: MilliCpus(*milli_cpus),
                memory: Bytes(*memory),
                gpus: *gpus,
                ..Resources::NONE
            };
            added(state, *count, capacity, zone.as_deref())
        }
        WhatIf::Apply { deployment, services, routes } => {
            let deployment = DeploymentName::new(deployment)
                .map_err(|error| Problem::new(ProblemCode::BadName, error.to_string()))?;
            if services.is_empty() {
                let message = format!("{deployment} names no services");
                return Err(Problem::new(ProblemCode::NoServices, message));
            }
            let services = services.iter().map(|(name, spec)| {
                let mut spec = spec.clone();
                spec.hash = SpecHash::of(&spec.container);
                (name.clone(), Arc::new(spec))
            });
            let (services, routes) = (services.collect(), routes.clone());
            Ok(Supposition::Deploy { deployment, services, routes })
        }
        WhatIf::Scale { services } => scaled(state, services),
        WhatIf::Rebalance => Ok(Supposition::Rebalance),
    }
}

fn known_nodes(state: &State, names: &[String]) -> Result<BTreeSet<NodeId>, Problem> {
    if names.is_empty() {
        return Err(bad("it names no node".to_owned()).hint("name one, or several: n3,n4"));
    }
    let known = |name: &String| {
        let found = state.nodes().get_key_value(name.as_str()).map(|(node, _)| node.clone());
        found.ok_or_else(|| {
            let names = state.nodes().keys().map(NodeId::as_str);
            let problem = Problem::new(ProblemCode::NoSuchNode, format!("there is no node {name}"));
            problem.hint(suggest::hint(name, "node", names))
        })
    };
    names.iter().map(known).collect()
}

/// Like the first node that is ready, but for what is said of it.
fn added(
    state: &State,
    count: u32,
    capacity: Resources,
    zone: Option<&str>,
) -> Result<Supposition, Problem> {
    if !(1..=MAX_ADDED).contains(&count) {
        let message = format!("{count} nodes cannot be added");
        return Err(bad(message).hint(format!("say a number from 1 to {MAX_ADDED}")));
    }
    let most = MAX_CAPACITY;
    if capacity.cpu.0 > most.cpu.0 || capacity.memory.0 > most.memory.0 || capacity.gpus > most.gpus
    {
        let message = "no node has that much".to_owned();
        let hint = format!("at most {} cores and {} of memory", most.cpu.0 / 1_000, most.memory);
        return Err(bad(message).hint(hint));
    }
    if capacity.cpu.0 == 0 || capacity.memory.0 == 0 {
        let message = "a node has cpus and memory".to_owned();
        return Err(bad(message).hint("say how much: --cpus 8 --memory 32g"));
    }
    let zone = zone.map(Zone::new).transpose();
    let zone = zone.map_err(|error| Problem::new(ProblemCode::BadName, error.to_string()))?;
    let like = state.nodes().values().find(|node| node.is_open()).map(|node| node.facts.clone());
    let facts = NodeFacts {
        capacity,
        zone,
        labels: BTreeMap::new(),
        address: None,
        api: None,
        ..like.unwrap_or_else(|| NodeFacts::new(capacity))
    };
    Ok(Supposition::Add { count, facts: Box::new(facts) })
}

fn scaled(state: &State, asked: &BTreeMap<String, u32>) -> Result<Supposition, Problem> {
    if asked.is_empty() {
        return Err(Problem::new(ProblemCode::NothingToScale, "it names no service to scale"));
    }
    let mut counts = BTreeMap::new();
    for (name, count) in asked {
        let key = find_service(state, name)?;
        let spec = state.service(&key).and_then(|service| service.desired());
        if spec.is_some_and(|spec| spec.placement.mode == Mode::Global) {
            let message = format!(
                "service \"{}\" uses placement=global; it runs one replica per ready node",
                key.service
            );
            return Err(Problem::new(ProblemCode::GlobalReplicas, message));
        }
        counts.insert(key, *count);
    }
    Ok(Supposition::Scale(counts))
}

/// A service by its name alone where only one deployment has it, else with its deployment.
fn find_service(state: &State, name: &str) -> Result<ServiceKey, Problem> {
    let deployed = || state.services().iter().filter(|(_, it)| it.desired().is_some());
    let found: Vec<ServiceKey> = deployed()
        .map(|(key, _)| key)
        .filter(|key| key.service.as_str() == name || key.to_string() == name)
        .cloned()
        .collect();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            // As it was typed: with the deployment or without.
            let is_full = name.contains('/');
            let names = deployed()
                .map(|(key, _)| if is_full { key.to_string() } else { key.service.to_string() });
            let names: BTreeSet<String> = names.collect();
            let problem =
                Problem::new(ProblemCode::NoSuchService, format!("there is no service {name}"));
            Err(problem.hint(suggest::hint(name, "service", names.iter().map(String::as_str))))
        }
        several => {
            let names: Vec<String> = several.iter().map(ToString::to_string).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let message = format!("{} deployments have a service {name}", several.len());
            Err(bad(message).hint(format!("say which: {}", suggest::or(&names))))
        }
    }
}

fn bad(message: String) -> Problem {
    Problem::new(ProblemCode::BadSupposition, message)
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cell, cpus, global, spread};

    use super::*;

    fn state() -> State {
        let cell = cell().node("ash", cpus(4)).node("birch", cpus(4));
        let cell = cell.deploy("shop", [("web", spread(2)), ("agent", global())]);
        cell.deploy("blog", [("web", spread(1)), ("comments", spread(1))]).state
    }

    fn refused(asked: &WhatIf) -> String {
        let problem = supposition(&state(), asked).unwrap_err();
        format!("{}: {} ({})", problem.code, problem.message, problem.hint.unwrap_or_default())
    }

    #[test]
    fn what_cannot_be_supposed_is_refused_with_the_next_step() {
        let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let scale = |name: &str| WhatIf::Scale { services: [(name.to_owned(), 3)].into() };
        let add = |count, milli_cpus, memory, zone: Option<&str>| WhatIf::Add {
            count,
            milli_cpus,
            memory,
            gpus: 0,
            zone: zone.map(str::to_owned),
        };
        let said: Vec<String> = [
            WhatIf::Drain { nodes: nodes(&[]) },
            WhatIf::Drain { nodes: nodes(&["ash", "brich"]) },
            WhatIf::Lose { nodes: nodes(&["zzzzz"]) },
            scale("wbe"),
            scale("web"),
            scale("shop/agent"),
            WhatIf::Scale { services: BTreeMap::new() },
            add(0, 8_000, 1 << 30, None),
            add(1, 0, 1 << 30, None),
            add(1, u64::MAX, 1, None),
            add(1, 1_000, 1 << 30, Some("No Zone")),
            WhatIf::Apply { deployment: "shop".into(), services: BTreeMap::new(), routes: vec![] },
        ]
        .iter()
        .map(refused)
        .collect();
        expect_test::expect![[r#"
            bad_supposition: it names no node (name one, or several: n3,n4)
            no_such_node: there is no node brich (did you mean birch?)
            no_such_node: there is no node zzzzz (a node is ash or birch)
            no_such_service: there is no service wbe (did you mean web?)
            bad_supposition: 2 deployments have a service web (say which: blog/web or shop/web)
            global_replicas: service "agent" uses placement=global; it runs one replica per ready node (set placement to spread or pack to choose a number)
            nothing_to_scale: it names no service to scale (name services and numbers, as in web=3)
            bad_supposition: 0 nodes cannot be added (say a number from 1 to 10000)
            bad_supposition: a node has cpus and memory (say how much: --cpus 8 --memory 32g)
            bad_supposition: no node has that much (at most 1000000 cores and 1 PiB of memory)
            bad_name: zone name "No Zone" has ' '; use letters, digits, '-', '_' and '.', starting with a letter or digit (use lower-case letters, digits and hyphens)
            no_services: shop names no services (to remove a deployment, delete it)
        "#]].assert_eq(&(said.join("\n") + "\n"));
    }

    #[test]
    fn a_service_is_known_by_its_name_alone_where_only_one_has_it() {
        for (name, key) in [("comments", "blog/comments"), ("shop/web", "shop/web")] {
            let asked = WhatIf::Scale { services: [(name.to_owned(), 3)].into() };
            let found = supposition(&state(), &asked).unwrap();
            assert_eq!(found, Supposition::Scale([(key.parse().unwrap(), 3)].into()), "{name}");
        }
    }
}
