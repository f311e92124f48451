//! `x-plimsoll` of a service: what Compose has no word for.

use std::collections::BTreeSet;

use plimsoll_model::ids::NodeId;
use plimsoll_model::schedule::{Cron, Schedule, ZoneName};
use plimsoll_model::spec::{Replay, Reschedule};

use crate::diagnostic::{Finding, Findings, SourceSpan};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::Mapping;

/// The scale of a placement's score.
const MAX_SCORE: i64 = 10_000;

/// The placement modes by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModeName {
    Spread,
    Pack,
    Binpack,
    Hosts,
    Global,
}

#[derive(Debug, Default)]
pub(super) struct Extension {
    /// With the place of its value.
    pub(super) layout: Option<(ModeName, SourceSpan)>,
    pub(super) hosts: Option<(BTreeSet<NodeId>, SourceSpan)>,
    pub(super) priority: i32,
    pub(super) reschedule: Reschedule,
    pub(super) interruption_penalty: u8,
    pub(super) replay: Replay,
    /// With the place of its value.
    pub(super) schedule: Option<(Schedule, SourceSpan)>,
}

pub(super) fn read(report: &mut Findings, service: &Mapping) -> Extension {
    let mut service = KeyReader::of(report, service);
    let Some(mut keys) = service.section("x-plimsoll", Section::ServiceExtension) else {
        return Extension::default();
    };
    let layouts = [
        ("spread", ModeName::Spread),
        ("pack", ModeName::Pack),
        ("binpack", ModeName::Binpack),
        ("hosts", ModeName::Hosts),
        ("global", ModeName::Global),
    ];
    let place = |keys: &KeyReader<'_, '_>, key| keys.get(key).map(|entry| entry.node.span);
    Extension {
        layout: keys.word("placement", &layouts).zip(place(&keys, "placement")),
        hosts: hosts(&mut keys).zip(place(&keys, "hosts")),
        priority: keys.integer("priority", i32::MIN.into(), i32::MAX.into()).unwrap_or_default(),
        reschedule: reschedule(&mut keys).unwrap_or_default(),
        interruption_penalty: keys.integer("interruption_penalty", 0, 100).unwrap_or_default(),
        replay: if keys.boolean("replay") == Some(false) { Replay::Off } else { Replay::On },
        schedule: schedule(&mut keys),
    }
}

fn hosts(keys: &mut KeyReader<'_, '_>) -> Option<BTreeSet<NodeId>> {
    let entry = keys.get("hosts")?;
    let mut hosts = BTreeSet::new();
    for host in read::texts(keys.report, entry) {
        match NodeId::new(&host.text) {
            Ok(node) => {
                hosts.insert(node);
            }
            Err(error) => keys.report.error(host.span, error.to_string()),
        }
    }
    Some(hosts)
}

/// When it runs: `schedule`, with its time zone in `timezone` or, as with cron, in front of it as `CRON_TZ=`.
fn schedule(keys: &mut KeyReader<'_, '_>) -> Option<(Schedule, SourceSpan)> {
    let zone_entry = keys.get("timezone");
    let Some(entry) = keys.get("schedule") else {
        if let Some(entry) = zone_entry {
            let problem = Finding::new(entry.key_span, "`timezone` says when a schedule is due");
            keys.report.push(problem.hint("add `schedule: \"0 3 * * *\"`, or remove it"));
        }
        return None;
    };
    let at = entry.node.span;
    let text = keys.text("schedule")?;
    let ahead = ["CRON_TZ=", "TZ="].into_iter().find_map(|key| text.strip_prefix(key));
    let (ahead, expression) = match ahead.map(|rest| rest.split_once(char::is_whitespace)) {
        Some(Some((zone, rest))) => (Some(zone.to_owned()), rest),
        Some(None) => {
            keys.report.error(at, "a time zone is followed by five fields, such as 0 3 * * *");
            return None;
        }
        None => (None, text.as_str()),
    };
    let cron = Cron::parse(expression);
    let beside = keys.text("timezone");
    if let (Some(ahead), Some(beside), Some(entry)) = (&ahead, &beside, zone_entry)
        && ahead != beside
    {
        let message = format!("the schedule says {ahead}, and `timezone` {beside}");
        keys.report.push(Finding::new(entry.node.span, message).hint("keep one of the two"));
        return None;
    }
    let zone_at = if ahead.is_some() { at } else { zone_entry.map_or(at, |it| it.node.span) };
    let zone = ahead.or(beside).map(|name| ZoneName::new(&name)).transpose();
    if let Err(error) = &zone {
        keys.report.error(zone_at, error.to_string());
    }
    if let Err(error) = &cron {
        let problem = Finding::new(at, error.to_string());
        keys.report.push(problem.hint("at 3 each night is \"0 3 * * *\""));
    }
    Some((Schedule::new(cron.ok()?, zone.ok()?), at))
}

fn reschedule(keys: &mut KeyReader<'_, '_>) -> Option<Reschedule> {
    let entry = keys.get("reschedule")?;
    if entry.node.as_mapping().is_some() {
        let mut fields = keys.section("reschedule", Section::Reschedule)?;
        return fields.integer("threshold", 0, MAX_SCORE).map(Reschedule::Above);
    }
    match keys.text("reschedule")?.as_str() {
        "never" => Some(Reschedule::Never),
        text if text.parse::<i64>().is_ok() => {
            read::integer(keys.report, entry, 0, MAX_SCORE).map(Reschedule::Above)
        }
        text => {
            let message = format!(
                "`reschedule` must be never, or {{threshold: N}} with N between 0 and {MAX_SCORE}, found {text:?}"
            );
            keys.report.error(entry.node.span, message);
            None
        }
    }
}
