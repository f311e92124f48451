//! How one set of services differs from another, field by field, as a person would have written it in a compose file.
//!
//! What might be a secret (values of the environment, contents of configs and secrets, options of drivers) is compared
//! and never shown.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::spec::{FileContent, FileMount, Replay};
use plimsoll_model::{Bytes, MilliCpus, Millis, Mode, NodeId, ServiceName, ServiceSpec};
use serde_json::Value;

use super::Services;
use plimsoll_api::view::{FieldChange, ServiceChange};

/// What stands for a value that is not shown.
const HIDDEN: &str = "(hidden)";
const HIDDEN_CHANGED: &str = "(hidden, changed)";

/// The fields whose values are not shown, by the path that leads to them.
const SECRET: &[&str] = &["environment.", "logging.options."];

/// A field's value.
#[derive(Debug, PartialEq, Eq)]
enum Field<'a> {
    Text(String),
    Hidden(String),
    Content(&'a [u8]),
}

type Fields<'a> = BTreeMap<String, Field<'a>>;

/// Every service of either side, by name.
pub(super) fn changes(old: &Services, new: &Services) -> Vec<ServiceChange> {
    let names: BTreeSet<&ServiceName> = old.keys().chain(new.keys()).collect();
    names.into_iter().map(|name| service(name, old.get(name), new.get(name))).collect()
}

fn service<'a, S: AsRef<ServiceSpec>>(
    name: &ServiceName,
    old: Option<&'a S>,
    new: Option<&'a S>,
) -> ServiceChange {
    let (old, new) = (old.map(AsRef::as_ref), new.map(AsRef::as_ref));
    let (what, recreates, fields) = match (old, new) {
        (Some(old), Some(new)) if old == new => ("unchanged", false, Vec::new()),
        (Some(old), Some(new)) => ("changed", old.hash != new.hash, compare(old, new)),
        (None, Some(_)) => ("added", false, Vec::new()),
        (_, None) => ("removed", false, Vec::new()),
    };
    ServiceChange { service: name.to_string(), what: what.to_owned(), recreates, fields }
}

fn compare(old: &ServiceSpec, new: &ServiceSpec) -> Vec<FieldChange> {
    let (old, new) = (fields(old), fields(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    differing
        .map(|name| {
            let (before, after) = (old.get(name), new.get(name));
            let is_kept = before.is_some() && after.is_some();
            FieldChange {
                field: name.clone(),
                before: before.map(|field| field.shown(false)),
                after: after.map(|field| field.shown(is_kept)),
            }
        })
        .collect()
}

impl Field<'_> {
    fn shown(&self, is_changed: bool) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Hidden(_) | Self::Content(_) if is_changed => HIDDEN_CHANGED.to_owned(),
            Self::Hidden(_) | Self::Content(_) => HIDDEN.to_owned(),
        }
    }
}

fn fields(spec: &ServiceSpec) -> Fields<'_> {
    let mut out = Fields::new();
    let mut container = spec.container.clone();
    for (kind, files) in
        [("configs", &spec.container.configs), ("secrets", &spec.container.secrets)]
    {
        contents(kind, files, &mut out);
    }
    // Their contents are compared above as bytes: as JSON a megabyte would take four.
    for file in container.configs.iter_mut().chain(&mut container.secrets) {
        file.content = FileContent::External(String::new());
    }
    flatten("", &json(&container), &mut out);

    let placement = &spec.placement;
    text(&mut out, "placement", placement.mode.word());
    if let Some(replicas) = placement.mode.replicas() {
        text(&mut out, "replicas", &replicas.to_string());
    }
    if let Mode::Hosts { hosts, .. } = &placement.mode {
        let hosts: Vec<&str> = hosts.iter().map(NodeId::as_str).collect();
        text(&mut out, "placement.hosts", &hosts.join(", "));
    }
    let constraints: Vec<String> = placement.constraints.iter().map(ToString::to_string).collect();
    text(&mut out, "placement.constraints", &constraints.join(", "));
    let preferences: Vec<String> = placement
        .preferences
        .iter()
        .map(|preference| format!("{} ({})", preference.constraint, preference.weight))
        .collect();
    text(&mut out, "placement.preferences", &preferences.join(", "));
    if let Some(max) = placement.max_per_node {
        text(&mut out, "placement.max_per_node", &max.to_string());
    }
    flatten("update", &json(&spec.update), &mut out);
    flatten("depends_on", &json(&spec.depends_on), &mut out);
    text(&mut out, "priority", &spec.priority.to_string());
    text(&mut out, "interruption_penalty", &spec.interruption_penalty.to_string());
    flatten("reschedule", &json(&spec.reschedule), &mut out);
    if spec.replay == Replay::Off {
        text(&mut out, "replay", "off");
    }
    if let Some(schedule) = &spec.schedule {
        text(&mut out, "schedule", &schedule.to_string());
    }
    flatten("deploy.labels", &json(&spec.labels), &mut out);
    out
}

fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("a spec has string keys only")
}

/// Nothing said is no field.
fn text(out: &mut Fields<'_>, name: &str, value: &str) {
    if !value.is_empty() {
        out.insert(name.to_owned(), Field::Text(value.to_owned()));
    }
}

fn contents<'a>(kind: &str, files: &'a [FileMount], out: &mut Fields<'a>) {
    for file in files {
        let content = match &file.content {
            FileContent::Inline(bytes) => Field::Content(bytes),
            FileContent::External(name) => Field::Text(format!("external {name}")),
            FileContent::Kept { name, version } => {
                Field::Text(format!("external {name}, version {version}"))
            }
        };
        out.insert(format!("{kind}.{}.content", file.name), content);
    }
}

/// Puts every scalar below the value under the path that leads to it; null and empty ones are no fields.
fn flatten(path: &str, value: &Value, out: &mut Fields<'_>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(&below(key), value, out);
            }
        }
        Value::Array(items) if items.iter().all(|item| !item.is_object()) => {
            let words: Vec<String> = items.iter().map(scalar).collect();
            // An empty command clears the image's own, which is a thing to say.
            if !words.is_empty() || matches!(path, "command" | "entrypoint") {
                out.insert(path.to_owned(), Field::Text(format!("[{}]", words.join(", "))));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&below(&name_of(index, item)), item, out);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let is_secret = SECRET.iter().any(|secret| path.starts_with(secret))
                || path.contains(".driver_opts.");
            let field = if is_secret {
                Field::Hidden(scalar(value))
            } else {
                Field::Text(unit(path, value))
            };
            if field != Field::Text(String::new()) {
                out.insert(path.to_owned(), field);
            }
        }
    }
}

/// What an item of a list goes by, so that one more in front does not make all of them look changed.
fn name_of(index: usize, item: &Value) -> String {
    let named = ["name", "target"].iter().find_map(|key| item.get(key));
    named.map_or_else(|| index.to_string(), scalar)
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Numbers as people write them.
fn unit(path: &str, value: &Value) -> String {
    const SPANS: &[&str] = &[
        "stop_grace",
        "healthcheck.interval",
        "healthcheck.timeout",
        "healthcheck.start_period",
        "healthcheck.start_interval",
        "update.delay",
        "update.monitor",
    ];
    let Some(number) = value.as_u64() else { return scalar(value) };
    let last = path.rsplit('.').next().unwrap_or(path);
    match last {
        _ if SPANS.contains(&path) => Millis(number).to_string(),
        "cpu" | "memory" | "gpus" if number == 0 => String::new(),
        "cpu" => MilliCpus(number).to_string(),
        "memory" | "shm_size" => Bytes(number).to_string(),
        _ => number.to_string(),
    }
}
