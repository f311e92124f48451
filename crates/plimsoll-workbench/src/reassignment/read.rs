//! Instances as the challenge wrote them: integers with white space between them, a model and an assignment each, and a
//! table of what teams published.

use std::path::Path;

use plimsoll_optimize::problem::{
    Balance, MAX_COUNT, Machine, MoveWeights, Problem, Process, Resource, Service,
};

use super::{Instance, InstanceError};
use crate::trace::read::{TraceFile, files_ending};

/// The table of published costs, and its column of the winning team.
const REFERENCE: &str = "reference";
const WINNER: &str = "s41_300s";

pub(super) fn instances(directory: &Path, only: &[String]) -> Result<Vec<Instance>, InstanceError> {
    let texts = files_ending(directory, ".txt")?;
    let names: Vec<String> =
        texts.iter().filter_map(|it| Some(it.name.strip_prefix("model_")?.to_owned())).collect();
    let path = || directory.to_owned();
    if names.is_empty() {
        return Err(InstanceError::Empty(path()));
    }
    if let Some(missing) = only.iter().find(|name| !names.contains(name)) {
        let name = missing.clone();
        return Err(InstanceError::NoInstance { path: path(), name, known: names });
    }
    let tables = files_ending(directory, ".csv")?;
    let table = match tables.iter().find(|it| it.name == REFERENCE) {
        Some(table) => table.text()?,
        None => String::new(),
    };
    let wanted = names.into_iter().filter(|name| only.is_empty() || only.contains(name));
    let instance = |name: String| {
        let file = |prefix: &str| texts.iter().find(|it| it.name == format!("{prefix}_{name}"));
        let model = file("model").expect("names are those of the models");
        let missing = || InstanceError::NoAssignment { path: path(), name: name.clone() };
        let problem = problem(model, file("assignment").ok_or_else(missing)?)?;
        Ok(Instance { winner: winner(&table, &name), problem, name })
    };
    wanted.map(instance).collect()
}

/// The winning team's cost; none where the table has no such row or column.
fn winner(table: &str, name: &str) -> Option<i64> {
    let mut lines = table.lines();
    let column = lines.next()?.split(',').position(|head| head == WINNER)?;
    let row = lines.find(|line| line.split(',').next() == Some(name))?;
    row.split(',').nth(column)?.parse().ok()
}

/// The numbers of a file, one after another.
struct Numbers<'a> {
    file: &'a TraceFile,
    rest: std::str::SplitWhitespace<'a>,
    read: usize,
}

impl<'a> Numbers<'a> {
    fn new(file: &'a TraceFile, text: &'a str) -> Self {
        Self { file, rest: text.split_whitespace(), read: 0 }
    }

    fn malformed(&self, message: String) -> InstanceError {
        InstanceError::Malformed { path: self.file.path.clone(), message }
    }

    fn next(&mut self) -> Result<i64, InstanceError> {
        let Some(word) = self.rest.next() else {
            return Err(self.malformed(format!("it ends after {} numbers", self.read)));
        };
        self.read += 1;
        let number = word.parse();
        number.map_err(|_| self.malformed(format!("number {}: {word:?} is no integer", self.read)))
    }

    /// A count or an index.
    fn size(&mut self) -> Result<usize, InstanceError> {
        let number = self.next()?;
        let size = usize::try_from(number).ok().filter(|size| *size <= MAX_COUNT);
        size.ok_or_else(|| {
            self.malformed(format!("number {}: {number} is not from 0 to {MAX_COUNT}", self.read))
        })
    }

    fn many<T>(
        &mut self,
        count: usize,
        one: impl Fn(&mut Self) -> Result<T, InstanceError>,
    ) -> Result<Vec<T>, InstanceError> {
        (0..count).map(|_| one(self)).collect()
    }

    fn end(mut self) -> Result<(), InstanceError> {
        match self.rest.next() {
            None => Ok(()),
            Some(_) => Err(self.malformed(format!("it goes on after {} numbers", self.read))),
        }
    }
}

fn problem(model: &TraceFile, assignment: &TraceFile) -> Result<Problem, InstanceError> {
    let (text, start_text) = (model.text()?, assignment.text()?);
    let mut from = Numbers::new(model, &text);
    let count = from.size()?;
    let resources = from.many(count, |it| {
        Ok(Resource { is_transient: it.next()? != 0, load_weight: it.next()? })
    })?;
    let machines = from.size()?;
    let machines = from.many(machines, |it| {
        Ok(Machine {
            neighborhood: it.size()?,
            location: it.size()?,
            capacity: it.many(count, Numbers::next)?,
            safety: it.many(count, Numbers::next)?,
            move_costs: it.many(machines, Numbers::next)?,
        })
    })?;
    let services = from.size()?;
    let services = from.many(services, |it| {
        let (spread_min, needed) = (it.size()?, it.size()?);
        Ok(Service { spread_min, depends_on: it.many(needed, Numbers::size)? })
    })?;
    let processes = from.size()?;
    let processes = from.many(processes, |it| {
        Ok(Process {
            service: it.size()?,
            requirement: it.many(count, Numbers::next)?,
            move_cost: it.next()?,
        })
    })?;
    let balances = from.size()?;
    let balances = from.many(balances, |it| {
        Ok(Balance { of: it.size()?, to: it.size()?, target: it.next()?, weight: it.next()? })
    })?;
    let weights =
        MoveWeights { process: from.next()?, service: from.next()?, machine: from.next()? };
    from.end()?;
    let mut from = Numbers::new(assignment, &start_text);
    let start = from.many(processes.len(), Numbers::size)?;
    from.end()?;
    Ok(Problem { resources, machines, services, processes, balances, weights, start })
}
