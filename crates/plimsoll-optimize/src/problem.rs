//! The machine reassignment problem as types: what there is, where it is, what is forbidden and what costs.

/// Machines, the processes on them, and what a layout of them costs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    pub resources: Vec<Resource>,
    pub machines: Vec<Machine>,
    pub services: Vec<Service>,
    pub processes: Vec<Process>,
    pub balances: Vec<Balance>,
    pub weights: MoveWeights,
    /// The machine that each process is on to begin with.
    pub start: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// A process that moved counts on its old machine and on its new one, as what is copied does during a move.
    pub is_transient: bool,
    /// The price of a unit above the safety capacity.
    pub load_weight: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Where services find those that they depend on: a zone.
    pub neighborhood: usize,
    /// What a service spreads over: a rack.
    pub location: usize,
    /// By resource; never exceeded.
    pub capacity: Vec<i64>,
    /// By resource; each unit above it costs.
    pub safety: Vec<i64>,
    /// The price of a process that began here, by the machine that it is on.
    pub move_costs: Vec<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// The fewest locations its processes are in.
    pub spread_min: usize,
    /// Each neighborhood with a process of this service has one of each of these.
    pub depends_on: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// No machine has two processes of one service.
    pub service: usize,
    /// By resource.
    pub requirement: Vec<i64>,
    /// The price of its being anywhere but where it began.
    pub move_cost: i64,
}

/// A price on room that nobody can use: `weight` for each unit by which `target` times what is free of one resource
/// exceeds what is free of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    pub of: usize,
    pub to: usize,
    pub target: i64,
    pub weight: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveWeights {
    /// Of the sum of processes' move costs.
    pub process: i64,
    /// Of the number of processes moved of the service with the most.
    pub service: i64,
    /// Of the sum of machines' move costs.
    pub machine: i64,
}

impl Default for MoveWeights {
    fn default() -> Self {
        Self { process: 1, service: 10, machine: 100 }
    }
}

/// The largest number in a problem; what they come to is checked as well.
pub const MAX_NUMBER: i64 = 1 << 31;

/// The most machines, services or processes: what a large challenge has, a few times over.
pub const MAX_COUNT: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    #[error("{count} {of}, of at most {most}")]
    TooMany { of: &'static str, count: usize, most: usize },
    #[error("{of} {index} has {found} numbers for {expected} of them")]
    Length { of: &'static str, index: usize, found: usize, expected: usize },
    #[error("{of} {index} names {to} {found}, and there are {count}")]
    Unknown { of: &'static str, index: usize, to: &'static str, found: usize, count: usize },
    #[error("{of} {index} has the number {found}, which is not between 0 and {MAX_NUMBER}")]
    Number { of: &'static str, index: usize, found: i64 },
    #[error("the cost of its layouts may not fit in 64 bits")]
    Overflow,
    #[error("{found} processes have a place to begin with, of {expected}")]
    Start { found: usize, expected: usize },
}

impl Problem {
    /// Whether its parts fit each other; that its start keeps the rules is for the [`referee`](crate::referee) to say.
    pub fn check(&self) -> Result<(), ProblemError> {
        let counts = [
            ("resources", self.resources.len(), crate::MAX_RESOURCES),
            ("machines", self.machines.len(), MAX_COUNT),
            ("services", self.services.len(), MAX_COUNT),
            ("processes", self.processes.len(), MAX_COUNT),
        ];
        if let Some((of, count, most)) = counts.into_iter().find(|(_, count, most)| count > most) {
            return Err(ProblemError::TooMany { of, count, most });
        }
        let resources = self.resources.len();
        let known = |of, index, to, found, count| {
            let error = ProblemError::Unknown { of, index, to, found, count };
            (found < count).then_some(()).ok_or(error)
        };
        for (index, machine) in self.machines.iter().enumerate() {
            let of = "machine";
            known(of, index, "neighborhood", machine.neighborhood, MAX_COUNT)?;
            known(of, index, "location", machine.location, MAX_COUNT)?;
            numbers(of, index, &machine.capacity, resources)?;
            numbers(of, index, &machine.safety, resources)?;
            numbers(of, index, &machine.move_costs, self.machines.len())?;
        }
        for (index, service) in self.services.iter().enumerate() {
            for dependency in &service.depends_on {
                known("service", index, "service", *dependency, self.services.len())?;
            }
        }
        for (index, process) in self.processes.iter().enumerate() {
            known("process", index, "service", process.service, self.services.len())?;
            numbers("process", index, &process.requirement, resources)?;
            numbers("process", index, &[process.move_cost], 1)?;
        }
        for (index, balance) in self.balances.iter().enumerate() {
            known("balance", index, "resource", balance.of, resources)?;
            known("balance", index, "resource", balance.to, resources)?;
            numbers("balance", index, &[balance.target, balance.weight], 2)?;
        }
        for (index, resource) in self.resources.iter().enumerate() {
            numbers("resource", index, &[resource.load_weight], 1)?;
        }
        let MoveWeights { process, service, machine } = self.weights;
        numbers("move weights", 0, &[process, service, machine], 3)?;
        let (found, expected) = (self.start.len(), self.processes.len());
        if found != expected {
            return Err(ProblemError::Start { found, expected });
        }
        for (index, machine) in self.start.iter().enumerate() {
            known("process", index, "machine", *machine, self.machines.len())?;
        }
        (self.largest_cost() < 1 << 60).then_some(()).ok_or(ProblemError::Overflow)
    }

    /// More than any layout costs.
    fn largest_cost(&self) -> i128 {
        let mut cost: i128 = 0;
        for (nth, resource) in self.resources.iter().enumerate() {
            let used = self.processes.iter().map(|it| i128::from(it.requirement[nth]));
            cost += i128::from(resource.load_weight) * used.sum::<i128>();
        }
        for balance in &self.balances {
            let free = self.machines.iter().map(|it| i128::from(it.capacity[balance.of]));
            let factor = i128::from(balance.weight) * i128::from(balance.target);
            cost += factor * free.sum::<i128>();
        }
        let MoveWeights { process, service, machine } = self.weights;
        let dearest = self.machines.iter().flat_map(|it| &it.move_costs).max().copied();
        for it in &self.processes {
            cost += i128::from(process) * i128::from(it.move_cost) + i128::from(service);
            cost += i128::from(machine) * i128::from(dearest.unwrap_or(0));
        }
        cost
    }
}

fn numbers(
    of: &'static str,
    index: usize,
    found: &[i64],
    expected: usize,
) -> Result<(), ProblemError> {
    if found.len() != expected {
        return Err(ProblemError::Length { of, index, found: found.len(), expected });
    }
    match found.iter().find(|number| !(0..=MAX_NUMBER).contains(*number)) {
        Some(number) => Err(ProblemError::Number { of, index, found: *number }),
        None => Ok(()),
    }
}
