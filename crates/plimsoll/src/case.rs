//! A case: nodes, deployments and what runs now, written by hand. It is read from YAML or JSON and becomes a state
//! only through commands, so a case can never be a cell that could not exist. `docs/reference/case-format.md` lists
//! its words.

mod build;
mod entries;

use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::{State, Timestamp};

use crate::entries::{Kind, parse};
use crate::input::Place;
use crate::snippet::Page;
use crate::trouble::Trouble;

const KIND: Kind = Kind {
    word: "case",
    least: "`nodes:` and `deployments:`",
    reference: "docs/reference/case-format.md",
};

/// A cell at one moment, ready to be decided on.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) state: State,
    pub(crate) signals: Signals,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

/// Reads the case an argument names.
pub(crate) fn read(argument: &str) -> Result<Cell, Trouble> {
    let place = Place::of(argument);
    let page = Page { name: place.shown(), text: place.read_text()? };
    let case = parse(&page.text, KIND).map_err(|mistake| mistake.on(&page))?;
    build::build(case, &page, &place.directory())
}
