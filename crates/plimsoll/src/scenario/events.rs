//! What befalls the cell: each event must find what it speaks of, so the script is gone through in order, with a cell
//! that knows which nodes and deployments there are by then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use plimsoll_model::{
    Author, Change, ClusterId, Command, DeploymentName, Millis, NodeFacts, NodeId, Refusal, State,
    Term, Timestamp, Writer,
};
use plimsoll_sim::Action;
use serde_saphyr::{Location, Spanned};

use super::entries::EventEntry;
use crate::entries::deployment::{self, DeploymentEntry, Services};
use crate::entries::node::{Names, NodeEntry};
use crate::near;
use crate::snippet::{Mistake, Page};
use crate::trouble::Trouble;

type OfNode = fn(NodeId) -> Action;

/// The cell as far as the script has come.
pub(super) struct Progress<'p> {
    page: &'p Page,
    directory: &'p Path,
    names: Names,
    state: State,
    now: Millis,
    /// Nodes that crashed or were cut off, and when.
    gone: BTreeMap<NodeId, Millis>,
    /// Every image there ever was.
    pub(super) images: BTreeSet<String>,
    /// Random faults take nodes and give them back at their own times.
    is_chaotic: bool,
}

impl<'p> Progress<'p> {
    pub(super) fn new(page: &'p Page, directory: &'p Path, is_chaotic: bool) -> Self {
        Self {
            page,
            directory,
            names: Names::default(),
            state: State::new(ClusterId::new("scenario").expect("a valid name")),
            now: Millis(0),
            gone: BTreeMap::new(),
            images: BTreeSet::new(),
            is_chaotic,
        }
    }

    pub(super) fn refuse(&self, mistake: Mistake) -> Trouble {
        mistake.on(self.page)
    }

    pub(super) fn join(&mut self, entry: &NodeEntry) -> Result<Vec<(NodeId, NodeFacts)>, Mistake> {
        if let Some((key, at)) = entry.momentary() {
            let message = format!("`{key}` says how a node is now, and a scenario begins afresh");
            return Err(Mistake::new(at, message)
                .hint("let it happen: `events: [{at: 10m, drain: ash}]`, or give `usage`"));
        }
        let at = entry.name.referenced;
        let nodes = entry.nodes()?;
        for (node, facts) in &nodes {
            self.names.add(node, at)?;
            let change = Change::PutNode { node: node.clone(), facts: facts.clone() };
            self.apply(change).map_err(|refusal| Mistake::new(at, refusal.to_string()))?;
        }
        Ok(nodes)
    }

    pub(super) fn deploy(
        &mut self,
        entry: &Spanned<DeploymentEntry>,
    ) -> Result<(DeploymentName, Services), Trouble> {
        let (name, services) = deployment::load(entry, self.page, self.directory)?;
        let (deployment, specs) = (name.clone(), services.clone());
        self.apply(Change::Deploy { deployment, services: specs, routes: Vec::new() }).map_err(
            |refusal| {
                let message = format!("deployment {name} is refused: {refusal}");
                Mistake::new(entry.referenced, message).on(self.page)
            },
        )?;
        self.images.extend(services.values().map(|spec| spec.container.image.clone()));
        Ok((name, services))
    }

    /// What happens at one time: one thing, but an entry with a `count` joins several nodes.
    pub(super) fn event(&mut self, entry: &Spanned<EventEntry>) -> Result<Vec<Action>, Trouble> {
        self.now = entry.value.at.value.0;
        one_thing(entry).map_err(|mistake| mistake.on(self.page))?;
        let (event, page) = (&entry.value, self.page);
        let of_nodes: [(OfNode, _); 7] = [
            (Action::Crash, &event.crash),
            (Action::Cut, &event.cut),
            (Action::Return, &event.comes_back),
            (Action::Cordon, &event.cordon),
            (Action::Uncordon, &event.uncordon),
            (Action::Drain, &event.drain),
            (Action::Kill, &event.kill),
        ];
        for (action, node) in of_nodes {
            if let Some(node) = node {
                let action = self.of_node(action, node).map_err(|mistake| mistake.on(page))?;
                return Ok(vec![action]);
            }
        }
        if let Some(node) = &event.join {
            let nodes = self.join(node).map_err(|mistake| mistake.on(page))?;
            return Ok(nodes.into_iter().map(|(node, facts)| Action::Join(node, facts)).collect());
        }
        if let Some(deployment) = &event.deploy {
            let (name, services) = self.deploy(deployment)?;
            return Ok(vec![Action::Deploy(name, services)]);
        }
        if let Some(name) = &event.undeploy {
            self.undeploy(name).map_err(|mistake| mistake.on(page))?;
            return Ok(vec![Action::Undeploy(name.value.clone())]);
        }
        if let Some(is_new) = event.new_leader.as_ref().filter(|is_new| !is_new.value) {
            let mistake = Mistake::new(is_new.referenced, "`new_leader: false` does nothing");
            return Err(mistake.hint("write `new_leader: true`, or remove the event").on(page));
        }
        let new_leader = event.new_leader.iter().map(|_| Action::NewLeader);
        let broken = event.breaks.iter().map(|image| Action::Break(image.value.clone()));
        let mended = event.mend.iter().map(|image| Action::Mend(image.value.clone()));
        Ok(new_leader.chain(broken).chain(mended).collect())
    }

    fn of_node(&mut self, action: OfNode, node: &Spanned<NodeId>) -> Result<Action, Mistake> {
        let (id, at) = (&node.value, node.referenced);
        if self.state.node(id).is_none() {
            let names = self.state.nodes().keys().map(NodeId::as_str);
            let hint = near::hint(id.as_str(), "node", names.collect::<Vec<_>>());
            return Err(
                Mistake::new(at, format!("there is no node {id} at {}", self.now)).hint(hint)
            );
        }
        let action = action(id.clone());
        if !self.is_chaotic {
            self.check_link(&action, id, at)?;
        }
        Ok(action)
    }

    /// A node is lost once, and comes back once.
    fn check_link(&mut self, action: &Action, id: &NodeId, at: Location) -> Result<(), Mistake> {
        match action {
            Action::Crash(_) | Action::Cut(_) => {
                if let Some(since) = self.gone.insert(id.clone(), self.now) {
                    let message = format!("{id} is gone already, since {since}");
                    return Err(Mistake::new(at, message)
                        .hint(format!("let it `return: {id}` before, or name another node")));
                }
            }
            Action::Return(_) if self.gone.remove(id).is_none() => {
                let message = format!("{id} is not gone at {}, so it cannot return", self.now);
                let gone: Vec<&str> = self.gone.keys().map(NodeId::as_str).collect();
                let hint = match gone.as_slice() {
                    [] => format!("let it `crash: {id}` or `cut: {id}` before"),
                    gone => format!("gone by then: {}", gone.join(", ")),
                };
                return Err(Mistake::new(at, message).hint(hint));
            }
            _ => {}
        }
        Ok(())
    }

    fn undeploy(&mut self, name: &Spanned<DeploymentName>) -> Result<(), Mistake> {
        let names: Vec<String> = self.state.deployments().keys().map(ToString::to_string).collect();
        let change = Change::Undeploy { deployment: name.value.clone() };
        self.apply(change).map_err(|_| {
            let message = format!("there is no deployment {} at {}", name.value, self.now);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let hint = near::hint(name.value.as_str(), "deployment", names);
            Mistake::new(name.referenced, message).hint(hint)
        })
    }

    fn apply(&mut self, change: Change) -> Result<(), Refusal> {
        let author = Author::new(Writer::Operator, "scenario");
        let command = Command::new(Timestamp(self.now.0), Term(1), author, vec![change.free()]);
        self.state.apply(&command).map(drop).map_err(|rejection| rejection.reason)
    }
}

/// Several things at once would have no order.
fn one_thing(entry: &Spanned<EventEntry>) -> Result<(), Mistake> {
    let event = &entry.value;
    let nodes = [&event.crash, &event.cut, &event.comes_back, &event.cordon, &event.uncordon];
    let more = [&event.drain, &event.kill];
    let others = [
        event.join.is_some(),
        event.new_leader.is_some(),
        event.deploy.is_some(),
        event.undeploy.is_some(),
        event.breaks.is_some(),
        event.mend.is_some(),
    ];
    let nodes = nodes.iter().chain(&more).map(|node| node.is_some());
    let found = nodes.chain(others).filter(|is_given| *is_given).count();
    match found {
        1 => Ok(()),
        0 => Err(Mistake::new(entry.referenced, "nothing happens at this time")
            .hint("add one of crash, cut, return, drain, join, deploy, new_leader, …")),
        _ => Err(Mistake::new(entry.referenced, format!("{found} things happen in one event"))
            .hint("write an event for each; several may be `at` the same time")),
    }
}
