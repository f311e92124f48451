//! What the cell lacks room for, from the reasons that the scheduler wrote down: so many replicas of a service, what each asks for, and
//! which machines would do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::fleet::{Accepts, Bucket, MachineId, MachineType, Profile, Zone};
use plimsoll_model::machines::{LedgerEntry, MachineClass, Machines, TYPE_LABEL};
use plimsoll_model::reason::{FilterWord, UnplacedReason, WaitReason};
use plimsoll_model::spec::{Attribute, Constraint};
use plimsoll_model::state::Service;
use plimsoll_model::{
    Bytes, MilliCpus, Millis, Mode, NodeFacts, NodeId, NodeRole, Resources, ServiceSpec, State,
    Timestamp,
};

/// What a replica counts for that asks for nothing: a need is a number, and such a one wants a node all the same.
const LEAST: Resources = Resources { cpu: MilliCpus(1), memory: Bytes(0), gpus: 0, all_gpus: 0 };

/// How long a node of the cell may be empty before what found no room is taken not to fit there, whatever the numbers say. By then
/// the scheduler has looked at everything again.
const TRIED_FOR: Millis = Millis::seconds(60);

/// Replicas of one service that found no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub missing: u32,
    /// What each asks for.
    pub request: Resources,
    /// The most of them that one node may hold.
    pub most_per_node: u32,
    pub constraints: BTreeSet<Constraint>,
    pub accepts: Accepts,
    pub priority: i32,
    pub bucket: Option<Bucket>,
    pub is_topology_constrained: bool,
    pub since: Timestamp,
    pub profile: Profile,
    /// What it lacks is its data, or one host: no machine helps at all.
    is_bound: bool,
    /// The classes of which the cell has an empty node that did not help. Another one would not help either.
    tried: BTreeSet<usize>,
}

/// The needs of the cell, the most important first.
pub fn needs(state: &State, now: Timestamp) -> Vec<Need> {
    let empty = classes_with_empty_nodes(state, now);
    let mut needs: Vec<_> = state
        .services()
        .iter()
        .filter_map(|(key, service)| Some((need(state.machines(), service, &empty)?, key)))
        .collect();
    needs.sort_by(|(a, x), (b, y)| {
        (Reverse(a.priority), a.since, x).cmp(&(Reverse(b.priority), b.since, y))
    });
    needs.into_iter().map(|(need, _)| need).collect()
}

fn classes_with_empty_nodes(state: &State, now: Timestamp) -> BTreeSet<usize> {
    let machines = state.machines();
    let old = empty_nodes(state, now).filter(|(_, is_tried)| *is_tried);
    old.filter_map(|(id, _)| Some(machines.get(id)?.class())).collect()
}

/// The machines whose nodes take replicas and hold none, with whether that is so for long enough to tell.
pub(super) fn empty_nodes(
    state: &State,
    now: Timestamp,
) -> impl Iterator<Item = (&MachineId, bool)> {
    state.machines().nodes().iter().filter_map(move |(id, node)| {
        let row = state.node(node).filter(|row| row.is_open())?;
        let is_empty = state.load(node).is_none_or(|load| load.tenants.is_empty());
        is_empty.then(|| (id, now.since(row.open_since) >= TRIED_FOR))
    })
}

fn need(machines: &Machines, service: &Service, empty: &BTreeSet<usize>) -> Option<Need> {
    let spec = service.desired()?;
    // One that belongs on every node gets no more room by another node.
    if spec.placement.mode == Mode::Global {
        return None;
    }
    let missing = service.row.unplaced.as_ref().filter(|it| it.missing > 0);
    let missing = missing.and_then(|it| Some((it.missing, it.since, is_bound(&it.why)?)));
    let (mut count, since, mut is_bound_to_data) =
        missing.unwrap_or((0, Timestamp(u64::MAX), false));
    // Those that run and must leave their node find no room elsewhere either.
    for replica in service.replicas.values() {
        let Some(WaitReason::NoPlace(why)) = &replica.waiting else { continue };
        let Some(is_data) = is_bound(why) else { continue };
        count = count.saturating_add(1);
        is_bound_to_data |= is_data;
    }
    if count == 0 {
        return None;
    }
    let (accepts, is_fixed) = accepts(machines, spec);
    let of_ports = if spec.host_ports().next().is_some() { 1 } else { u32::MAX };
    let of_spec = spec.placement.max_per_node.unwrap_or(u32::MAX).max(1);
    let bucket = Bucket::of_penalty(spec.interruption_penalty);
    let mut need = Need {
        missing: count,
        request: spec.request(),
        most_per_node: of_ports.min(of_spec),
        constraints: spec.placement.constraints.clone(),
        accepts,
        priority: spec.priority,
        bucket,
        is_topology_constrained: is_bound_to_data || is_fixed,
        is_bound: is_bound_to_data || is_fixed,
        since,
        profile: Profile::new("none").expect("letters are a name"),
        tried: BTreeSet::new(),
    };
    let classes = machines.classes();
    let fitting = (0..classes.len()).filter(|at| need.held_by(&classes[*at]) > 0);
    let (tried, untried): (BTreeSet<usize>, BTreeSet<usize>) =
        fitting.partition(|at| empty.contains(at));
    // What stands between it and an empty node is in no numbers of a machine: more of them are asked for from nobody.
    need.is_topology_constrained |= !tried.is_empty() && untried.is_empty();
    need.tried = tried;
    need.profile = profile(&need);
    Some(need)
}

/// Whether what it lacks is where its data is, which no machine brings. None: it lacks no room at all.
fn is_bound(why: &UnplacedReason) -> Option<bool> {
    match why {
        UnplacedReason::NoNodes => Some(false),
        UnplacedReason::NoEligibleNode { turned_away, .. }
        | UnplacedReason::Preempted { turned_away, .. } => Some(turned_away.iter().any(|it| {
            matches!(
                it.0,
                FilterWord::VolumeElsewhere
                    | FilterWord::VolumeSplit
                    | FilterWord::VolumeCopy
                    | FilterWord::VolumeSharer
            )
        })),
        UnplacedReason::CannotSatisfyHostPlacement { .. } => Some(true),
        // Room is being freed for it.
        UnplacedReason::Preempting { .. }
        | UnplacedReason::DecisionRefused { .. }
        | UnplacedReason::VolumeMoving { .. }
        | UnplacedReason::VolumeHeld { .. } => None,
    }
}

/// Which types and zones its constraints leave, and whether they leave none that can be named.
fn accepts(machines: &Machines, spec: &ServiceSpec) -> (Accepts, bool) {
    let constraints = &spec.placement.constraints;
    if matches!(spec.placement.mode, Mode::Hosts { .. })
        || constraints.iter().any(|it| it.on == Attribute::Name)
    {
        return (Accepts::default(), true);
    }
    let classes = machines.classes();
    let mut accepts = Accepts::default();
    let is_type =
        |it: &Constraint| matches!(&it.on, Attribute::Label(label) if label == TYPE_LABEL);
    let (mut is_zoned, mut is_typed, mut is_fixed) = (false, false, false);
    let mut zones: BTreeSet<Zone> = classes.iter().map(|it| it.pool.zone.clone()).collect();
    // What is asked for by name may be had elsewhere, though no machine here is such a one.
    let asked = constraints.iter().filter(|it| it.on == Attribute::Zone && it.equal);
    zones.extend(asked.filter_map(|it| Zone::new(&it.value).ok()));
    for constraint in constraints.iter().filter(|it| it.on == Attribute::Zone) {
        is_zoned = true;
        zones.retain(|zone| (zone.as_str() == constraint.value) == constraint.equal);
    }
    let mut types: BTreeSet<MachineType> =
        classes.iter().map(|it| it.pool.machine_type.clone()).collect();
    let asked = constraints.iter().filter(|it| is_type(it) && it.equal);
    types.extend(asked.filter_map(|it| MachineType::new(&it.value).ok()));
    for constraint in constraints.iter().filter(|it| it.on != Attribute::Zone) {
        is_typed = true;
        types.retain(|machine_type| {
            if is_type(constraint) {
                return (machine_type.as_str() == constraint.value) == constraint.equal;
            }
            let mut known = classes.iter().filter(|it| it.pool.machine_type == *machine_type);
            known.any(|class| meets(class, constraint))
        });
    }
    if is_zoned {
        is_fixed |= zones.is_empty();
        accepts.zones = zones;
    }
    if is_typed {
        is_fixed |= types.is_empty();
        accepts.types = types;
    }
    (accepts, is_fixed)
}

/// Whether a node on such a machine would meet the constraint. It is judged as nodes are.
fn meets(class: &MachineClass, constraint: &Constraint) -> bool {
    if constraint.on == Attribute::Name {
        return false;
    }
    let name = NodeId::new("machine").expect("letters are a name");
    facts(class).meets(&name, NodeRole::Worker, constraint)
}

/// A node on such a machine, as far as is known before there is one.
pub(crate) fn facts(class: &MachineClass) -> NodeFacts {
    let mut facts = NodeFacts::new(class.capacity);
    facts.zone = plimsoll_model::Zone::new(class.pool.zone.as_str()).ok();
    facts.labels.clone_from(&class.labels);
    facts.labels.insert(TYPE_LABEL.to_owned(), class.pool.machine_type.to_string());
    if let Some(arch) = class.labels.get("arch") {
        facts.arch.clone_from(arch);
    }
    facts
}

impl Need {
    /// How many of its replicas an empty machine of the class holds by the numbers: none where it would not do. One that was tried
    /// in vain counts too, so that it stays where it is and does not come and go for as long as the need is there.
    pub fn held_by(&self, class: &MachineClass) -> u32 {
        let is_met = || self.constraints.iter().all(|constraint| meets(class, constraint));
        if self.is_bound || !self.accepts.pool(&class.pool) || !is_met() {
            return 0;
        }
        self.fit_in(class.capacity)
    }

    /// The same for one of the cell's own classes, by its number, and none where that was tried in vain.
    pub(super) fn held_by_class(&self, at: usize, class: &MachineClass) -> u32 {
        if self.tried.contains(&at) { 0 } else { self.held_by(class) }
    }

    /// How many fit into so much room.
    pub(crate) fn fit_in(&self, room: Resources) -> u32 {
        if !self.request.fits_in(room) {
            return 0;
        }
        let one = self.request.on(room);
        let times = |has: u64, takes: u64| has.checked_div(takes).unwrap_or(u64::MAX);
        let most = times(room.cpu.0, one.cpu.0)
            .min(times(room.memory.0, one.memory.0))
            .min(times(room.gpus.into(), one.gpus.into()));
        u32::try_from(most).unwrap_or(u32::MAX).min(self.most_per_node)
    }

    /// What the ledger says of so many replicas that are still missing. Alike needs are one shortfall.
    pub(crate) fn add_to(&self, ledger: &mut BTreeMap<Profile, LedgerEntry>, left: u32) {
        if left == 0 {
            return;
        }
        let unit = unit(self.request);
        let entry = ledger.entry(self.profile.clone()).or_insert_with(|| LedgerEntry {
            deficit: Resources::NONE,
            min_unit: unit,
            accepts: self.accepts.clone(),
            priority: self.priority,
            bucket: self.bucket,
            is_topology_constrained: self.is_topology_constrained,
            age: 0,
            since: self.since,
        });
        entry.deficit = entry.deficit.plus(times(unit, left));
    }
}

/// What one replica counts for: who asks for all GPUs of a node asks for at least one.
fn unit(request: Resources) -> Resources {
    let gpus = request.gpus.saturating_add(request.all_gpus);
    let unit = Resources { gpus, all_gpus: 0, ..request };
    if unit == Resources::NONE { LEAST } else { unit }
}

pub(crate) fn times(one: Resources, count: u32) -> Resources {
    let many = u64::from(count);
    Resources {
        cpu: MilliCpus(one.cpu.0.saturating_mul(many)),
        memory: Bytes(one.memory.0.saturating_mul(many)),
        gpus: one.gpus.saturating_mul(count),
        all_gpus: 0,
    }
}

/// Needs alike have one name, whichever leader gives it: readable in front, and told apart by a sum of all that matters.
fn profile(need: &Need) -> Profile {
    let Need { accepts, priority, bucket, is_topology_constrained, .. } = need;
    let unit = unit(need.request);
    let text = format!("{unit:?} {accepts:?} {priority} {bucket:?} {is_topology_constrained}");
    // FNV-1a: the name goes to other programs and other versions, so its sum is spelled out here.
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let (cpu, mib) = (unit.cpu.0, unit.memory.0 >> 20);
    let gpus = if unit.gpus > 0 { format!("-{}g", unit.gpus) } else { String::new() };
    Profile::new(format!("{cpu}m-{mib}Mi{gpus}-{sum:016x}")).expect("short, of letters and digits")
}
