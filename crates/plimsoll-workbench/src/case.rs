//! A case: nodes, deployments, what runs now and, for the rebalancer, what was measured. It is written by hand or by a running
//! cell, read from YAML or JSON, and becomes a state only through commands, so it can never be a cell that could not exist.
//! `docs/reference/case-format.md` lists its words.

mod build;
mod entries;
mod legacy;
mod measured;

#[cfg(test)]
mod tests;

use std::path::Path;

use plimsoll_compose::Diagnostic;
use plimsoll_kernel::rebalance::{MeasuredCycle, RebalanceMemory};
use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::{Millis, State, Timestamp};

use crate::entries::{FileKind, parse};
use crate::error::Result;
use crate::input::Input;
use crate::mistake::{InputText, Mistake};

const KIND: FileKind = FileKind {
    word: "case",
    least: "`nodes:` and `deployments:`",
    reference: "docs/reference/case-format.md",
};

/// A case as it was read.
#[derive(Debug, Clone)]
pub struct Case {
    pub cell: CellSnapshot,
    /// What was measured; none where the case says nothing of it.
    pub measured: Option<Measured>,
    /// What its compose files ask for in vain.
    pub warnings: Vec<Diagnostic>,
    text: InputText,
}

/// A cell at one moment, ready to be decided on.
#[derive(Debug, Clone)]
pub struct CellSnapshot {
    pub state: State,
    pub signals: Signals,
    pub policy: Policy,
    pub now: Timestamp,
}

/// What the rebalancer was told, one cycle after another, and what it remembered before.
#[derive(Debug, Clone)]
pub struct Measured {
    pub memory: RebalanceMemory,
    /// In order of time.
    pub cycles: Vec<MeasuredCycle>,
    /// How long a move takes.
    pub moves_take: Millis,
}

/// Reads a case.
pub fn read(input: &Input) -> Result<Case> {
    of_text(input.read_text()?, &input.directory())
}

/// Reads a case from its text, also in the form that those of the rebalancer had before there was one format. Compose files are
/// looked for in the directory.
pub fn of_text(text: InputText, directory: &Path) -> Result<Case> {
    let entry = if legacy::is_meant(&text.text) {
        parse(&text.text, KIND).and_then(legacy::translated)
    } else {
        parse(&text.text, KIND)
    };
    let entry = entry.map_err(|mistake| mistake.on(&text))?;
    build::build(&entry, text, directory)
}

impl Case {
    /// What was measured, which a case for the rebalancer must have.
    pub fn measured(&self) -> Result<&Measured> {
        self.measured.as_ref().ok_or_else(|| {
            let hint = format!("add what was measured, cycle by cycle: see {}", KIND.reference);
            let message = "`cycles` is missing".to_owned();
            Mistake { at: None, message, hint: Some(hint) }.on(&self.text)
        })
    }
}
