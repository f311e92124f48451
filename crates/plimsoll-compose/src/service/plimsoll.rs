//! `x-plimsoll` of a service: what Compose has no word for.

use std::collections::BTreeSet;

use plimsoll_model::ids::NodeId;
use plimsoll_model::spec::{Replay, Reschedule};

use crate::diagnostic::{Findings, SourceSpan};
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
}

pub(super) fn read(report: &mut Findings, service: &Mapping) -> Extension {
    let mut service = KeyReader::of(report, service);
    let Some(mut keys) = service.section("x-plimsoll", Section::ServiceExtension) else {
        return Extension::default();
    };
    let layouts = [
        ("spread", ModeName::Spread),
        ("pack", ModeName::Pack),
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
