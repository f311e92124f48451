//! What a replica sets aside and what it may use at most, in the keys of `deploy` and the older ones.

use plimsoll_model::spec::ContainerSpec;
use plimsoll_model::units::{Bytes, MilliCpus, Resources};

use crate::diagnostic::{Finding, Findings};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::yaml::{Mapping, YamlEntry};

/// What the kernel takes when only a quota is given, in microseconds.
const DEFAULT_CPU_PERIOD: u64 = 100_000;

pub(super) fn fill(
    report: &mut Findings,
    service: &Mapping,
    deploy: Option<&Mapping>,
    container: &mut ContainerSpec,
) {
    let mut keys = KeyReader::of(report, service);
    container.shm_size = keys.parse("shm_size");
    container.oom_score_adj = keys.integer("oom_score_adj", -1_000, 1_000);
    container.oom_kill_disable = keys.boolean("oom_kill_disable");
    container.memory_swap = memory_swap(&mut keys);
    container.memory_swappiness = keys.integer("mem_swappiness", 0, 100);
    container.cpu_shares = keys.integer("cpu_shares", 0, 1 << 18);
    container.cpuset = keys.text("cpuset");

    let resources = deploy.and_then(|deploy| {
        KeyReader::of(report, deploy).section("resources", Section::Resources)?;
        deploy.get("resources")?.node.as_mapping()
    });
    let part = |report: &mut Findings, key: &str, section: Section| {
        KeyReader::of(report, resources?).section(key, section)?;
        resources?.get(key)?.node.as_mapping()
    };
    let limits = part(report, "limits", Section::Limits);
    let reservations = part(report, "reservations", Section::Reservations);

    let quota = quota(&mut KeyReader::of(report, service));
    let cpus: Option<MilliCpus> = either(report, service, "cpus", limits, "cpus");
    container.limits = Resources {
        cpu: cpus.or(quota).unwrap_or_default(),
        memory: either(report, service, "mem_limit", limits, "memory").unwrap_or_default(),
        ..Resources::NONE
    };
    let memory: Option<Bytes> = either(report, service, "mem_reservation", reservations, "memory");
    container.reservations = Resources {
        cpu: reservations
            .and_then(|keys| KeyReader::of(report, keys).parse("cpus"))
            .unwrap_or_default(),
        memory: memory.unwrap_or_default(),
        ..Resources::NONE
    };
    container.pids_limit = pids(report, service, limits);
    within_limits(report, service, reservations, container);
}

/// A quantity that has an old and a new key. Both may stand there if they agree.
fn either<T>(
    report: &mut Findings,
    service: &Mapping,
    old: &str,
    section: Option<&Mapping>,
    new: &str,
) -> Option<T>
where
    T: std::str::FromStr + PartialEq,
    T::Err: std::fmt::Display,
{
    let old_value: Option<T> = KeyReader::of(report, service).parse(old);
    let new_value: Option<T> = section.and_then(|keys| KeyReader::of(report, keys).parse(new));
    if matches!((&old_value, &new_value), (Some(one), Some(other)) if one != other) {
        conflict(report, service.get(old), section.and_then(|keys| keys.get(new)));
    }
    new_value.or(old_value)
}

fn conflict(report: &mut Findings, old: Option<&YamlEntry>, new: Option<&YamlEntry>) {
    let (Some(old), Some(new)) = (old, new) else { return };
    let message = format!("`{}` and `{}` of `deploy` conflict", old.key, new.key);
    let problem = Finding::new(old.node.span, message).also(new.node.span, "this", "and this");
    report.push(problem.hint("keep the one in `deploy`"));
}

fn quota(keys: &mut KeyReader<'_, '_>) -> Option<MilliCpus> {
    let micros = |keys: &mut KeyReader<'_, '_>, key: &str| {
        let text = keys.text(key)?;
        // Compose also takes a duration here.
        let number = text.parse::<u64>().ok();
        let millis = || Some(text.parse::<plimsoll_model::units::Millis>().ok()?.0 * 1_000);
        let value = number.or_else(millis).filter(|value| *value > 0);
        if let (None, Some(entry)) = (value, keys.get(key)) {
            let message = format!("`{key}` must be a number of microseconds, found {text:?}");
            keys.report.error(entry.node.span, message);
        }
        value
    };
    let period = micros(keys, "cpu_period").unwrap_or(DEFAULT_CPU_PERIOD);
    let quota = micros(keys, "cpu_quota")?;
    let millis = (u128::from(quota) * 1_000).div_ceil(u128::from(period));
    Some(MilliCpus(u64::try_from(millis).unwrap_or(u64::MAX)))
}

/// A size, or -1 for as much as the node has.
fn memory_swap(keys: &mut KeyReader<'_, '_>) -> Option<i64> {
    let entry = keys.get("memswap_limit")?;
    if entry.node.as_scalar().is_some_and(|scalar| scalar.text == "-1") {
        return Some(-1);
    }
    let bytes: Bytes = keys.parse("memswap_limit")?;
    i64::try_from(bytes.0).ok()
}

fn pids(report: &mut Findings, service: &Mapping, limits: Option<&Mapping>) -> Option<i64> {
    let old = KeyReader::of(report, service).integer("pids_limit", -1, i64::MAX);
    let new = limits.and_then(|keys| KeyReader::of(report, keys).integer("pids", -1, i64::MAX));
    if matches!((old, new), (Some(one), Some(other)) if one != other) {
        let entry = limits.and_then(|keys| keys.get("pids"));
        conflict(report, service.get("pids_limit"), entry);
    }
    new.or(old)
}

fn within_limits(
    report: &mut Findings,
    service: &Mapping,
    reservations: Option<&Mapping>,
    container: &ContainerSpec,
) {
    let (reserved, limits) = (container.reservations, container.limits);
    let place = |key: &str| reservations.and_then(|keys| keys.get(key));
    if let Some(entry) = place("cpus").filter(|_| over(reserved.cpu.0, limits.cpu.0)) {
        let message = format!("{} cpus are reserved, the limit is {}", reserved.cpu, limits.cpu);
        report.error(entry.node.span, message);
    }
    let memory = place("memory").or_else(|| service.get("mem_reservation"));
    if let Some(entry) = memory.filter(|_| over(reserved.memory.0, limits.memory.0)) {
        let message = format!("{} are reserved, the limit is {}", reserved.memory, limits.memory);
        report.error(entry.node.span, message);
    }
}

/// Zero is no limit.
fn over(reserved: u64, limit: u64) -> bool {
    limit > 0 && reserved > limit
}
