//! Entries to scenario: bounds are kept, names are known, and what cannot happen is refused before anything runs.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_api::suggest;
use plimsoll_model::{Millis, ServiceKey, ServiceSpec};
use plimsoll_sim::chaos::Chaos;
use plimsoll_sim::scenario::Dwell;
use plimsoll_sim::usage::{Shape, Usage};
use plimsoll_sim::{Action, Scenario};
use serde_saphyr::Spanned;

use super::WrittenScenario;
use super::entries::{ChaosEntry, EventEntry, ScenarioEntry, TakesEntry, UsageEntry};
use super::events::ScriptProgress;
use super::shape::shape;
use crate::entries::values::{Pairs, Parsed, ServiceRef, Span};
use crate::error::Result;
use crate::mistake::{InputText, Mistake};

const DAY: Millis = Millis::minutes(24 * 60);

/// A year and a day: beyond it is a slip of the keyboard.
const MAX_LENGTH: Millis = Millis(366 * DAY.0);

/// A cycle looks at every node, so it should not come more often; and beyond a minute the promises, which wait two
/// cycles for an explanation, would hurry the leader.
const CYCLE: (Millis, Millis) = (Millis::seconds(1), Millis::minutes(1));

/// Nothing on a machine takes longer and is still worth simulating.
const MAX_DWELL: Millis = Millis::minutes(60);

/// More events than anyone writes by hand, and more than a chart can show.
const MAX_EVENTS: usize = 10_000;

/// More faults than a run should draw: they are all kept in memory.
const MAX_FAULTS: u64 = 100_000;

/// What chaos does where it is not told.
const CHAOS_EVERY: Millis = Millis::minutes(10);
const CHAOS_OUTAGE: (Millis, Millis) = (Millis::minutes(1), Millis::minutes(20));

type Time = Spanned<Parsed<Millis>>;

pub(super) fn build(
    entry: &ScenarioEntry,
    page: &InputText,
    directory: &Path,
    name: &str,
) -> Result<WrittenScenario> {
    let on_page = |mistake: Mistake| mistake.on(page);
    let length = length(&entry.length).map_err(on_page)?;
    let mut scenario = Scenario::new(entry.name.as_deref().unwrap_or(name), length);
    if let Some(time) = &entry.cycle {
        let cycle = cycle(time).map_err(on_page)?;
        (scenario.policy.sample_interval, scenario.policy.full_pass) = (cycle, cycle);
    }
    if let Some(max_changes) = entry.max_changes {
        scenario.policy.max_changes = max_changes.get();
    }
    scenario.dwell = dwell(&entry.takes).map_err(on_page)?;
    let chaos = entry.chaos.as_ref().map(|entry| chaos(entry, length)).transpose();
    let chaos = chaos.map_err(on_page)?;

    let mut progress = ScriptProgress::new(page, directory, chaos.is_some(), entry.lenient);
    if entry.nodes.value.is_empty() {
        let mistake = Mistake::new(entry.nodes.referenced, "there are no nodes");
        return Err(on_page(mistake.hint("add one: `{name: ash, cpus: 4, memory: 8gb}`")));
    }
    for node in &entry.nodes.value {
        scenario.nodes.extend(progress.join(node).map_err(on_page)?);
    }
    for deployment in &entry.deployments {
        let (name, services) = progress.deploy(deployment)?;
        if scenario.deployments.insert(name.clone(), services).is_some() {
            let message = format!("deployment {name} is there twice");
            let mistake = Mistake::new(deployment.referenced, message);
            return Err(on_page(mistake.hint("give one of them another `name`")));
        }
    }
    scenario.script = script(&entry.events, length, &mut progress)?;
    if !entry.lenient {
        images(&entry.events, &progress).map_err(on_page)?;
    }
    let warnings = progress.warnings;

    let mut written = WrittenScenario { scenario, chaos, warnings };
    written.scenario.usage = usage(&entry.usage, &written).map_err(on_page)?;
    Ok(written)
}

fn length(time: &Time) -> Result<Millis, Mistake> {
    let length = time.value.0;
    if length.0 == 0 || length > MAX_LENGTH {
        let message = format!("`length` must be more than nothing and at most {MAX_LENGTH}");
        return Err(Mistake::new(time.referenced, message));
    }
    Ok(length)
}

fn cycle(time: &Time) -> Result<Millis, Mistake> {
    let (cycle, (least, most)) = (time.value.0, CYCLE);
    if cycle < least || cycle > most {
        let message = format!("`cycle` must be between {least} and {most}, found {cycle}");
        return Err(Mistake::new(time.referenced, message));
    }
    Ok(cycle)
}

fn dwell(takes: &TakesEntry) -> Result<Dwell, Mistake> {
    let mut dwell = Dwell::default();
    let set = |to: &mut (Millis, Millis), entry: &Option<Spanned<Parsed<Span>>>| {
        let Some(entry) = entry else { return Ok(()) };
        let Span(least, most) = entry.value.0;
        // An instant hides every race.
        if least.0 == 0 || most > MAX_DWELL {
            let message = format!("this takes at least 1ms and at most {MAX_DWELL}");
            return Err(Mistake::new(entry.referenced, message));
        }
        *to = (least, most);
        Ok(())
    };
    set(&mut dwell.pull, &takes.pull)?;
    set(&mut dwell.start, &takes.start)?;
    set(&mut dwell.health, &takes.health)?;
    set(&mut dwell.stop, &takes.stop)?;
    set(&mut dwell.network, &takes.network)?;
    set(&mut dwell.commit, &takes.commit)?;
    set(&mut dwell.election, &takes.election)?;
    Ok(dwell)
}

fn chaos(entry: &ChaosEntry, length: Millis) -> Result<Chaos, Mistake> {
    within(&entry.until, length)?;
    let until = entry.until.value.0;
    let every = entry.every.as_ref().map_or(CHAOS_EVERY, |every| every.value.0);
    let outage =
        entry.outage.as_ref().map_or(CHAOS_OUTAGE, |span| (span.value.0.0, span.value.0.1));
    let at = entry.every.as_ref().map_or(entry.until.referenced, |every| every.referenced);
    if every.0 == 0 || until.0 / every.0 > MAX_FAULTS {
        let message = format!("chaos may strike at most {MAX_FAULTS} times");
        return Err(Mistake::new(at, message).hint("let it strike less often, or end earlier"));
    }
    let outage_at = entry.outage.as_ref().map_or(at, |outage| outage.referenced);
    for (word, span, at) in [("every", every, at), ("outage", outage.1, outage_at)] {
        if span > MAX_LENGTH {
            let message = format!("`{word}` is {span}, at most {MAX_LENGTH} is allowed");
            return Err(Mistake::new(at, message));
        }
    }
    Ok(Chaos { until, every, outage })
}

/// The events in order of time, and of the file where times are equal.
fn script(
    events: &[Spanned<EventEntry>],
    length: Millis,
    progress: &mut ScriptProgress<'_>,
) -> Result<Vec<(Millis, Action)>> {
    let mut sorted: Vec<&Spanned<EventEntry>> = events.iter().collect();
    sorted.sort_by_key(|event| event.value.at.value.0);
    let mut script = Vec::new();
    for event in sorted {
        let time = &event.value.at;
        within(time, length).map_err(|mistake| progress.refuse(mistake))?;
        for action in progress.event(event)? {
            script.push((time.value.0, action));
        }
        if script.len() > MAX_EVENTS {
            let message = format!("more than {MAX_EVENTS} things happen");
            return Err(progress.refuse(Mistake::new(event.referenced, message)));
        }
    }
    Ok(script)
}

fn within(time: &Time, length: Millis) -> Result<(), Mistake> {
    let at = time.value.0;
    if at > length {
        let message = format!("{at} is after the end: the scenario lasts {length}");
        return Err(Mistake::new(time.referenced, message)
            .hint("let it happen earlier, or make `length` longer"));
    }
    Ok(())
}

/// Breaking an image that nothing runs would go unnoticed.
fn images(events: &[Spanned<EventEntry>], progress: &ScriptProgress<'_>) -> Result<(), Mistake> {
    let mut named = events.iter().flat_map(|event| {
        let event = &event.value;
        [&event.breaks, &event.mend, &event.withdraw, &event.restore].into_iter().flatten()
    });
    let Some(unknown) = named.find(|image| !progress.images.contains(&image.value)) else {
        return Ok(());
    };
    let known: Vec<&str> = progress.images.iter().map(String::as_str).collect();
    let hint = suggest::hint(&unknown.value, "image", known);
    let message = format!("no service has the image {}", unknown.value);
    Err(Mistake::new(unknown.referenced, message).hint(hint))
}

fn usage(
    entries: &Pairs<Spanned<ServiceRef>, UsageEntry>,
    written: &WrittenScenario,
) -> Result<BTreeMap<ServiceKey, Usage>, Mistake> {
    let services = written.services();
    let mut usage = BTreeMap::new();
    for (service, entry) in &entries.0 {
        let key = &service.value.0;
        if !services.contains(key) {
            let names: Vec<String> = services.iter().map(ToString::to_string).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let hint = suggest::hint(&key.to_string(), "service", names);
            let message = format!("there is no service {key}");
            return Err(Mistake::new(service.referenced, message).hint(hint));
        }
        let reserved = spec(written, key).map(|spec| spec.container.reservations);
        let reserved = reserved.unwrap_or_default();
        let cpu = entry.cpus.as_ref().map(shape).transpose()?;
        let memory = entry.memory.as_ref().map(shape).transpose()?;
        let cpu = cpu.unwrap_or(Shape::Constant(reserved.cpu.0));
        let memory = memory.unwrap_or(Shape::Constant(reserved.memory.0));
        usage.insert(key.clone(), Usage { cpu, memory });
    }
    Ok(usage)
}

/// The service as it is first deployed.
fn spec<'w>(written: &'w WrittenScenario, key: &ServiceKey) -> Option<&'w ServiceSpec> {
    let later = written.scenario.script.iter().filter_map(|(_, action)| match action {
        Action::Deploy(name, services) => Some((name, services)),
        _ => None,
    });
    let mut all = written.scenario.deployments.iter().chain(later);
    all.find_map(|(name, services)| {
        (*name == key.deployment).then(|| services.get(&key.service)).flatten()
    })
    .map(AsRef::as_ref)
}
