//! A scenario: a cell and what befalls it over time, written by hand and read from YAML or JSON. What can be told to
//! be wrong before the run is refused here, at its line. `docs/reference/scenario-format.md` lists its words.

mod build;
mod entries;
mod events;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use plimsoll_model::{NodeFacts, ServiceKey};
use plimsoll_sim::chaos::Chaos;
use plimsoll_sim::{Action, Scenario};

use crate::entries::{Kind, parse};
use crate::input::Place;
use crate::snippet::Page;
use crate::trouble::Trouble;

const KIND: Kind = Kind {
    word: "scenario",
    least: "`length:` and `nodes:`",
    reference: "docs/reference/scenario-format.md",
};

/// A scenario as it was written: the script is the same for every seed, the chaos is not.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) scenario: Scenario,
    pub(crate) chaos: Option<Chaos>,
}

/// Reads the scenario an argument names.
pub(crate) fn read(argument: &str) -> Result<Written, Trouble> {
    let place = Place::of(argument);
    let page = Page { name: place.shown(), text: place.read_text()? };
    let stem = match &place {
        Place::Stdin => None,
        Place::File(path) => path.file_stem().and_then(|stem| stem.to_str()),
    };
    from_page(&page, &place.directory(), stem.unwrap_or("scenario"))
}

/// Reads one that is already here; without a name of its own it goes by the one given.
pub(crate) fn from_page(page: &Page, directory: &Path, name: &str) -> Result<Written, Trouble> {
    let entry = parse(&page.text, KIND).map_err(|mistake| mistake.on(page))?;
    build::build(&entry, page, directory, name)
}

impl Written {
    /// What this seed makes of it.
    pub(crate) fn seeded(&self, seed: u64) -> Scenario {
        let mut scenario = self.scenario.clone();
        if let Some(chaos) = self.chaos {
            chaos.unleash(&mut scenario, seed);
        }
        scenario
    }

    /// Every service that is there at the start or comes later.
    pub(crate) fn services(&self) -> BTreeSet<ServiceKey> {
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
    pub(crate) fn nodes(&self) -> BTreeMap<&str, &NodeFacts> {
        let later = self.scenario.script.iter().filter_map(|(_, action)| match action {
            Action::Join(node, facts) => Some((node, facts)),
            _ => None,
        });
        let all = self.scenario.nodes.iter().chain(later);
        all.map(|(node, facts)| (node.as_str(), facts)).collect()
    }
}
