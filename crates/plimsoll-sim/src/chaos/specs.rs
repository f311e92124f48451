//! Services as an operator may write them, and every way to change one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_model::schedule::{Cron, Schedule};
use plimsoll_model::spec::{
    Attribute, Constraint, FileContent, FileMount, GpuRequest, HealthTest, Healthcheck, Lifecycle,
    Mount, MountSource, NetworkAttachment, OnFailure, Port, PortMode, Preference, Protocol,
    Reschedule, Retries, UpdateOrder, VolumeSpec,
};
use plimsoll_model::{
    Bytes, Capability, ContainerSpec, FileName, MilliCpus, Millis, Mode, NodeId, Resources,
    ServiceName, ServiceSpec, SpecHash,
};

use crate::rng::SimRng;
use crate::scenario::Services;

pub(crate) mod order;

/// What takes long to become healthy has no more replicas than this, so that a rollout of all of them ends in time.
const MAX_SLOW: u64 = 3;

/// How many secrets there are to use: few, so that several services share one.
const SECRETS: u8 = 3;

/// What there is to choose from.
#[derive(Debug)]
pub(super) struct Choices<'a> {
    pub(super) nodes: &'a [NodeId],
    /// Routed ports are one service's in the whole cell, so each deployment has its own.
    pub(super) first_port: u16,
}

pub(super) fn service(mode: Mode) -> ServiceSpec {
    // As a compose file that says nothing of networks has it.
    let networks = BTreeMap::from([("default".to_owned(), NetworkAttachment::default())]);
    let image = "app:1".to_owned();
    let container = ContainerSpec { image, networks, ..ContainerSpec::default() };
    hashed(ServiceSpec::new(container, SpecHash([0; 32]), mode))
}

/// In the order of a file, and with the hash that a daemon gives it.
pub(super) fn hashed(mut spec: ServiceSpec) -> ServiceSpec {
    spec.container.ports.sort_by_key(|port| port.mode == PortMode::Routed);
    if spec.placement.mode == Mode::Global {
        // A file that says both is refused.
        spec.schedule = None;
    }
    spec.hash = SpecHash::of(&spec.container);
    spec
}

/// A service of any kind.
pub(super) fn any(chance: &mut SimRng, choices: &Choices<'_>) -> ServiceSpec {
    let mut spec = service(Mode::Spread { replicas: 1 });
    spec.placement.mode = mode(chance, choices, &spec);
    if chance.percent(60) {
        reserve(&mut spec, chance);
    }
    for (percent, change) in [
        (15, host_port as Mutation),
        (10, routed_port),
        (15, volume),
        (5, bind),
        (15, constraint),
        (10, preference),
        (15, max_per_node),
        (10, slow),
        (40, update),
        (35, priority),
        (8, gpus),
        (8, needs),
        (30, networks),
        (15, lifecycle),
        (8, scheduled),
    ] {
        if chance.percent(percent) {
            change(&mut spec, chance, choices);
        }
    }
    hashed(spec)
}

type Mutation = fn(&mut ServiceSpec, &mut SimRng, &Choices<'_>);

/// Every field that an operator changes, about as often as they might.
const MUTATIONS: &[(u64, Mutation)] = &[
    (20, image),
    (10, replicas),
    (14, reservations),
    (8, host_port),
    (4, routed_port),
    (6, volume),
    (4, bind),
    (10, change_mode),
    (6, constraint),
    (3, preference),
    (5, max_per_node),
    (6, slow),
    (10, update),
    (6, priority),
    (5, gpus),
    (5, needs),
    (8, secret),
    (7, networks),
    (6, lifecycle),
    (5, scheduled),
];

/// Changes one service of the deployment in one or two fields, adds one, or takes one away. Returns the images that are
/// new.
pub(super) fn change(
    services: &mut Services,
    chance: &mut SimRng,
    choices: &Choices<'_>,
) -> Vec<String> {
    let names: Vec<ServiceName> = services.keys().cloned().collect();
    if chance.percent(4) && names.len() > 1 {
        let gone = chance.pick(&names).expect("there are some");
        services.remove(gone);
        // Whoever forgets who waited for it is refused.
        if chance.percent(80) {
            order::forget(services, gone);
        }
        return Vec::new();
    }
    if chance.percent(12) {
        order::change(services, chance);
        return Vec::new();
    }
    if chance.percent(4) {
        let name = ServiceName::new(format!("new-{}", chance.below(3))).expect("a valid name");
        services.entry(name).or_insert_with(|| Arc::new(any(chance, choices)));
        return Vec::new();
    }
    let Some(name) = chance.pick(&names) else { return Vec::new() };
    let mut spec = ServiceSpec::clone(&services[name]);
    let before = spec.container.image.clone();
    for _ in 0..=chance.below(3) / 2 {
        let total: u64 = MUTATIONS.iter().map(|(weight, _)| weight).sum();
        let mut at = chance.below(total);
        let drawn = MUTATIONS.iter().find(|(weight, _)| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        });
        if let Some((_, mutation)) = drawn {
            mutation(&mut spec, chance, choices);
        }
    }
    let spec = hashed(spec);
    let image = spec.container.image.clone();
    services.insert(name.clone(), Arc::new(spec));
    if image == before { Vec::new() } else { vec![image] }
}

fn count(chance: &mut SimRng, spec: &ServiceSpec, below: u64) -> u32 {
    let below = if is_slow(spec) { below.min(MAX_SLOW + 1) } else { below };
    u32::try_from(chance.below(below)).unwrap_or(0)
}

pub(super) fn is_slow(spec: &ServiceSpec) -> bool {
    spec.container.healthcheck.is_some()
}

fn set_replicas(spec: &mut ServiceSpec, to: u32) {
    match &mut spec.placement.mode {
        Mode::Spread { replicas }
        | Mode::Pack { replicas }
        | Mode::Binpack { replicas }
        | Mode::Hosts { replicas, .. } => {
            *replicas = to;
        }
        Mode::Global => {}
    }
}

fn mode(chance: &mut SimRng, choices: &Choices<'_>, spec: &ServiceSpec) -> Mode {
    let replicas = count(chance, spec, 7);
    match chance.below(10) {
        0 | 1 => Mode::Global,
        2 => Mode::Pack { replicas },
        3 => Mode::Binpack { replicas },
        4 | 5 => {
            let mut hosts = BTreeSet::new();
            for _ in 0..=chance.below(3) {
                hosts.extend(chance.pick(choices.nodes).cloned());
            }
            Mode::Hosts { replicas: replicas.min(4), hosts }
        }
        _ => Mode::Spread { replicas },
    }
}

fn image(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    let number = chance.below(1_000_000);
    // Some declare a volume, which is known once a machine has pulled them.
    let name = if number.is_multiple_of(4) { "vault" } else { "app" };
    spec.container.image = format!("{name}:{number}");
}

fn replicas(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    let to = count(chance, spec, 9);
    set_replicas(spec, to);
}

fn reserve(spec: &mut ServiceSpec, chance: &mut SimRng) {
    let (cpu, memory) = (100 + chance.below(900), 64 + chance.below(2_000));
    spec.container.reservations =
        Resources { cpu: MilliCpus(cpu), memory: Bytes(memory << 20), ..Resources::NONE };
}

/// Also to nothing, and to more than most nodes have.
fn reservations(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    match chance.below(6) {
        0 => spec.container.reservations = Resources::NONE,
        1 => {
            let (cpu, memory) = (1_000 + chance.below(5_000), 512 + chance.below(12_000));
            spec.container.reservations =
                Resources { cpu: MilliCpus(cpu), memory: Bytes(memory << 20), ..Resources::NONE };
        }
        _ => reserve(spec, chance),
    }
}

/// Some, all of a node, or none any more.
fn gpus(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    let container = &mut spec.container;
    let had_any = std::mem::take(&mut container.gpus) > 0;
    container.gpu_requests.clear();
    if had_any && chance.percent(50) {
        return;
    }
    let count = chance.pick(&[Some(1), Some(2), None]).copied().unwrap_or_default();
    container.gpus = count.unwrap_or(1);
    container.gpu_requests.push(GpuRequest {
        driver: None,
        count,
        device_ids: Vec::new(),
        capabilities: ["gpu".to_owned()].into(),
        options: BTreeMap::new(),
    });
}

/// What a file may say of its networks: all of it in each file, so that services of all deployments share some.
const NETWORKS: [&str; 5] = ["default", "front", "back", "given", "lan"];

fn network(key: &str) -> NetworkAttachment {
    NetworkAttachment {
        name: (key == "given").then(|| "given-net".to_owned()),
        external: key == "lan",
        internal: key == "back",
        ..NetworkAttachment::default()
    }
}

/// Some of the networks, under another name in some.
fn networks(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    spec.container.networks.clear();
    for _ in 0..=chance.below(3) {
        let key = *chance.pick(&NETWORKS).unwrap_or(&"default");
        let mut network = network(key);
        if chance.percent(20) {
            network.aliases.insert(format!("alias-{}", chance.below(3)));
        }
        spec.container.networks.insert(key.to_owned(), network);
    }
}

/// It needs what not every runtime can do, or does not any more.
fn needs(spec: &mut ServiceSpec, _: &mut SimRng, _: &Choices<'_>) {
    let container = &mut spec.container;
    let mut needs = BTreeSet::from([Capability::ImageCommand]);
    if std::mem::take(&mut container.sysctls).is_empty() {
        needs.insert(Capability::Sysctls);
    }
    container.need_only(&needs).expect("a container can need this");
}

fn drop_ports(spec: &mut ServiceSpec, mode: PortMode) -> bool {
    let before = spec.container.ports.len();
    spec.container.ports.retain(|port| port.mode != mode);
    spec.container.ports.len() < before
}

fn port(target: u16, mode: PortMode) -> Port {
    Port {
        target,
        published: Some(target),
        host_ip: None,
        protocol: Protocol::Tcp,
        mode,
        proxy_protocol: None,
    }
}

fn host_port(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    if drop_ports(spec, PortMode::Host) && chance.percent(50) {
        return;
    }
    let number = 8_000 + u16::try_from(chance.below(3)).unwrap_or(0);
    spec.container.ports.push(port(number, PortMode::Host));
}

fn routed_port(spec: &mut ServiceSpec, chance: &mut SimRng, choices: &Choices<'_>) {
    if drop_ports(spec, PortMode::Routed) && chance.percent(50) {
        return;
    }
    let number = choices.first_port + u16::try_from(chance.below(20)).unwrap_or(0);
    spec.container.ports.push(port(number, PortMode::Routed));
}

fn mount(spec: &mut ServiceSpec, source: MountSource, target: &str) {
    let (target, consistency) = (target.to_owned(), None);
    let mount = Mount { source, target, read_only: false, consistency };
    spec.container.mounts.push(mount);
    // In the order in which a file is read.
    spec.container.mounts.sort_by(|a, b| a.target.cmp(&b.target));
}

fn drop_mounts(spec: &mut ServiceSpec, is_it: fn(&MountSource) -> bool) -> bool {
    let before = spec.container.mounts.len();
    spec.container.mounts.retain(|mount| !is_it(&mount.source));
    spec.container.mounts.len() < before
}

fn volume(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    spec.container.volumes.clear();
    let had_one = drop_mounts(spec, |source| matches!(source, MountSource::Volume { .. }));
    if had_one && chance.percent(60) {
        return;
    }
    let name = (*chance.pick(&["data", "cache"]).unwrap_or(&"data")).to_owned();
    spec.container.volumes = BTreeMap::from([(name.clone(), VolumeSpec::default())]);
    let target = format!("/{name}");
    mount(spec, MountSource::Volume { name, subpath: None, nocopy: false }, &target);
}

fn bind(spec: &mut ServiceSpec, _: &mut SimRng, _: &Choices<'_>) {
    if drop_mounts(spec, |source| matches!(source, MountSource::Bind { .. })) {
        return;
    }
    let path = "/srv/data".to_owned();
    let (propagation, create_host_path, selinux) = (None, true, None);
    let source = MountSource::Bind { path, propagation, create_host_path, selinux };
    mount(spec, source, "/srv/data");
}

fn change_mode(spec: &mut ServiceSpec, chance: &mut SimRng, choices: &Choices<'_>) {
    spec.placement.mode = mode(chance, choices, spec);
}

fn any_constraint(chance: &mut SimRng, choices: &Choices<'_>) -> Constraint {
    let equal = chance.percent(75);
    let (on, value) = match chance.below(5) {
        4 => {
            // As files are read: not one role is the other.
            let role = *chance.pick(&["manager", "worker"]).unwrap_or(&"manager");
            return Constraint { on: Attribute::Role, equal: true, value: role.to_owned() };
        }
        0 => (Attribute::Zone, (*chance.pick(&["a", "b", "c"]).unwrap_or(&"a")).to_owned()),
        1 => {
            let node = chance.pick(choices.nodes).map_or("ash", NodeId::as_str);
            return Constraint { on: Attribute::Name, equal: false, value: node.to_owned() };
        }
        _ => (Attribute::Label("disk".to_owned()), "ssd".to_owned()),
    };
    Constraint { on, equal, value }
}

fn constraint(spec: &mut ServiceSpec, chance: &mut SimRng, choices: &Choices<'_>) {
    let had_any = !std::mem::take(&mut spec.placement.constraints).is_empty();
    if !had_any || chance.percent(40) {
        spec.placement.constraints.insert(any_constraint(chance, choices));
    }
}

fn preference(spec: &mut ServiceSpec, chance: &mut SimRng, choices: &Choices<'_>) {
    let had_any = !std::mem::take(&mut spec.placement.preferences).is_empty();
    if !had_any {
        let constraint = any_constraint(chance, choices);
        spec.placement.preferences.push(Preference { constraint, weight: 1 });
    }
}

fn max_per_node(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    let max = u32::try_from(chance.below(3)).unwrap_or(0);
    spec.placement.max_per_node = (max > 0).then_some(max);
}

/// It takes longer than a minute to become healthy, or does not any more.
fn slow(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    if spec.container.healthcheck.take().is_some() {
        return;
    }
    spec.container.healthcheck = Some(Healthcheck {
        test: HealthTest::Shell("true".to_owned()),
        interval: None,
        timeout: None,
        start_period: Some(Millis::seconds(70 + chance.below(80))),
        start_interval: None,
        retries: None,
    });
    let most = u32::try_from(MAX_SLOW).unwrap_or(1);
    let replicas = spec.placement.mode.replicas().unwrap_or(0).min(most);
    set_replicas(spec, replicas);
}

fn update(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    let update = &mut spec.update;
    match chance.below(6) {
        // All at once, as a file says with 0, among others.
        0 => update.parallelism = *chance.pick(&[1, 2, 3, u32::MAX]).unwrap_or(&1),
        1 => update.delay = Millis::seconds(chance.below(20)),
        2 => {
            update.order = match update.order {
                UpdateOrder::StartFirst => UpdateOrder::StopFirst,
                UpdateOrder::StopFirst => UpdateOrder::StartFirst,
            };
        }
        3 => {
            let all = [OnFailure::Rollback, OnFailure::Pause, OnFailure::Continue];
            update.on_failure = *chance.pick(&all).unwrap_or(&OnFailure::Rollback);
        }
        4 => {
            update.max_failure_millionths =
                *chance.pick(&[0, 250_000, 500_000, 1_000_000]).unwrap_or(&0);
        }
        _ => update.monitor = Millis::seconds(chance.below(30)),
    }
}

/// The secrets that services may use, whether the cell keeps them or not.
pub(super) fn secret_names() -> impl Iterator<Item = FileName> {
    (0..SECRETS).map(|index| FileName::new(format!("key-{index}")).expect("a valid name"))
}

pub(super) fn secret_name(chance: &mut SimRng) -> FileName {
    let names: Vec<FileName> = secret_names().collect();
    chance.pick(&names).expect("there are some").clone()
}

/// It uses a secret of the cell, another one, or none any more.
fn secret(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    let had_one = !std::mem::take(&mut spec.container.secrets).is_empty();
    if had_one && chance.percent(40) {
        return;
    }
    let name = secret_name(chance).to_string();
    spec.container.secrets.push(FileMount {
        target: format!("/run/secrets/{name}"),
        content: FileContent::External(name.clone()),
        name,
        uid: None,
        gid: None,
        mode: None,
    });
}

/// Of every width of gap: those within a band keep to budgets and have long graces, the others do not.
const PRIORITIES: [i32; 6] = [-1, 0, 1, 150_000, 700_000, 1_500_000];

fn priority(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    spec.priority = *chance.pick(&PRIORITIES).unwrap_or(&0);
    spec.interruption_penalty = *chance.pick(&[0, 10, 100]).unwrap_or(&0);
    spec.reschedule = if chance.percent(30) { Reschedule::Never } else { Reschedule::Default };
}

/// Most serve on, and of what is to end more are jobs.
fn lifecycle(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    let limit = chance.percent(60).then(|| u32::try_from(chance.below(3)).unwrap_or(0));
    // Before a retry that there is not, nobody waits.
    let delay = chance.percent(20).then_some(Millis::seconds(5)).filter(|_| limit != Some(0));
    let retries = Retries { limit, delay };
    spec.lifecycle = match chance.below(10) {
        0..5 => Lifecycle::Job(retries),
        5..7 => Lifecycle::Finite(retries),
        _ => Lifecycle::Service,
    };
}

/// Often enough that many slots fall into a simulation, and that runs are not over when the next is due.
const SCHEDULES: [&str; 3] = ["* * * * *", "*/4 * * * *", "3-59/10 * * * *"];

/// It runs on a schedule, on another one, or on none any more.
fn scheduled(spec: &mut ServiceSpec, chance: &mut SimRng, _: &Choices<'_>) {
    let had_one = spec.schedule.take().is_some();
    if had_one && chance.percent(40) {
        return;
    }
    let text = chance.pick(&SCHEDULES).unwrap_or(&SCHEDULES[0]);
    spec.schedule = Some(Schedule::new(Cron::parse(text).expect("a schedule"), None));
    spec.become_job();
}
