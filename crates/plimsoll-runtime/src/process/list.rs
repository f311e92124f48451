//! Looks over everything that is here: what there is, and what it uses.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use plimsoll_model::Bytes;

use super::launch::Launch;
use super::paths::Home;
use super::record::{Record, RunState};
use super::table::ProcessTable;
use super::{cgroup, unreadable};
use crate::runtime::{ContainerInfo, ContainerStatus, Exit, Tag};
use crate::usage::{CpuTime, Usage};

pub(super) fn list(home: &Home) -> io::Result<Vec<ContainerInfo>> {
    let mut found: Vec<ContainerInfo> = look(home)?
        .into_iter()
        .map(|(launch, state)| {
            let mut process = None;
            let status = match state {
                RunState::Starting => ContainerStatus::Created,
                RunState::Running(record, service) => {
                    process = Some(service);
                    ContainerStatus::Running { since: record.since }
                }
                RunState::Idle(status) => status,
                RunState::Lost(record) => {
                    let exit = Exit { status: None, oom: false };
                    ContainerStatus::Exited { since: record.since, at: record.since, exit }
                }
            };
            let address = status.is_running().then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
            ContainerInfo { tag: launch.tag, status, address, process }
        })
        .collect();
    found.sort_unstable_by(|one, other| one.tag.cmp(&other.tag));
    Ok(found)
}

/// From cgroups where there are some, else from everything that descends from the supervisor.
pub(super) fn usage(home: &Home) -> io::Result<BTreeMap<Tag, Usage>> {
    let mut table = None;
    let mut usages = BTreeMap::new();
    for (launch, state) in look(home)? {
        let RunState::Running(record, _) = state else { continue };
        let usage = cgroup::usage(&launch.entry.cgroups)
            .unwrap_or_else(|| of_family(table.get_or_insert_with(ProcessTable::read), &record));
        usages.insert(launch.tag, usage);
    }
    Ok(usages)
}

/// A child's time passes to whoever collects it, so that the sum never shrinks while the service runs.
fn of_family(table: &ProcessTable, record: &Record) -> Usage {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let page = rustix::param::page_size() as u64;
    let family = table.descendants(record.supervisor.pid);
    let collected = table.get(record.supervisor.pid).map_or(0, |stat| stat.children);
    let spent: u64 = family.iter().map(|stat| stat.own + stat.children).sum();
    let pages: u64 = family.iter().map(|stat| stat.resident_pages).sum();
    let cpu = CpuTime((spent + collected).saturating_mul(1_000_000) / ticks);
    Usage { cpu, memory: Bytes(pages.saturating_mul(page)) }
}

/// Everything with a launch. What cannot be read is left out and said; it cannot be started a second time either.
fn look(home: &Home) -> io::Result<Vec<(Launch, RunState)>> {
    let mut found = Vec::new();
    for run in home.runs()? {
        let read = || Ok((run.read_launch()?, run.run_state()?));
        match read() {
            Ok((Some(launch), state)) => found.push((launch, state)),
            Ok((None, _)) => {}
            Err(error) => unreadable(&run, &error),
        }
    }
    Ok(found)
}
