//! A scenario: a cell and what befalls it over time, written by hand and read from YAML or JSON. What can be told to
//! be wrong before the run is refused here, at its line. `docs/reference/scenario-format.md` lists its words.

mod build;
mod entries;
mod events;
mod shape;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_compose::Diagnostic;
use plimsoll_model::{NodeFacts, ServiceKey};
use plimsoll_sim::chaos::Chaos;
use plimsoll_sim::{Action, Scenario};

use crate::entries::{FileKind, parse};
use crate::error::Result;
use crate::input::Input;

const KIND: FileKind = FileKind {
    word: "scenario",
    least: "`length:` and `nodes:`",
    reference: "docs/reference/scenario-format.md",
};

/// A scenario as it was written: the script is the same for every seed, the chaos is not.
#[derive(Debug, Clone)]
pub struct WrittenScenario {
    pub scenario: Scenario,
    pub chaos: Option<Chaos>,
    /// What its compose files ask for in vain.
    pub warnings: Vec<Diagnostic>,
}

/// Reads a scenario; without a name of its own it goes by that of its file.
pub fn read(input: &Input) -> Result<WrittenScenario> {
    let text = input.read_text()?;
    let stem = match input {
        Input::Stdin => None,
        Input::File(path) => path.file_stem().and_then(|stem| stem.to_str()),
    };
    let entry = parse(&text.text, KIND).map_err(|mistake| mistake.on(&text))?;
    build::build(&entry, &text, &input.directory(), stem.unwrap_or("scenario"))
}

impl WrittenScenario {
    /// What this seed makes of it.
    pub fn seeded(&self, seed: u64) -> Scenario {
        let mut scenario = self.scenario.clone();
        if let Some(chaos) = self.chaos {
            chaos.unleash(&mut scenario, seed);
        }
        scenario
    }

    /// Every service that is there at the start or comes later.
    pub fn services(&self) -> BTreeSet<ServiceKey> {
        let later = self.scenario.script.iter().filter_map(|(_, action)| match action {
            Action::Deploy(name, services) => Some((name, services)),
            _ => None,
        });
        let all = self.scenario.deployments.iter().chain(later);
        all.flat_map(|(name, services)| {
            services.keys().map(|service| ServiceKey::new(name.clone(), service.clone()))
        })
        .collect()
    }

    /// Every node that is there at the start or joins later.
    pub fn nodes(&self) -> BTreeMap<&str, &NodeFacts> {
        let later = self.scenario.script.iter().filter_map(|(_, action)| match action {
            Action::Join(node, facts) => Some((node, facts)),
            _ => None,
        });
        let all = self.scenario.nodes.iter().chain(later);
        all.map(|(node, facts)| (node.as_str(), facts)).collect()
    }
}
