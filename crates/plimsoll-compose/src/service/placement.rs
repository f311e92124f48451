//! How many replicas, and where they may run: `deploy.mode`, `replicas`, `scale`, `deploy.placement`, and the
//! placement of `x-plimsoll`.

use std::collections::BTreeSet;

use plimsoll_model::spec::{Attribute, Constraint, Mode, Placement};
use plimsoll_model::state::MAX_REPLICAS;

use super::plimsoll::{Extension, ModeName};
use crate::diagnostic::{Finding, Findings};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::{Mapping, YamlEntry};

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeployMode {
    Replicated,
    Global,
}

pub(super) fn read(
    report: &mut Findings,
    service: &YamlEntry,
    mapping: &Mapping,
    deploy: Option<&Mapping>,
    extension: &Extension,
) -> Option<Placement> {
    let mode = mode(report, service, mapping, deploy, extension);
    let mut placement = Placement {
        mode: mode?,
        constraints: BTreeSet::new(),
        preferences: Vec::new(),
        max_per_node: None,
    };
    let Some(deploy) = deploy else { return Some(placement) };
    let mut deploy = KeyReader::of(report, deploy);
    let Some(mut keys) = deploy.section("placement", Section::Placement) else {
        return Some(placement);
    };
    let max: Option<u32> = keys.integer("max_replicas_per_node", 0, MAX_REPLICAS.into());
    placement.max_per_node = max.filter(|max| *max > 0);
    if let Some(entry) = keys.get("constraints") {
        for text in read::texts(keys.report, entry) {
            match constraint(&text.text) {
                Ok(constraint) => {
                    if is_swarm_id(&text.text, &constraint) {
                        let message =
                            "this looks like the id of a Swarm node, which no node here has";
                        let problem = Finding::new(text.span, message);
                        keys.report.push_warning(problem.hint("write node.hostname == <name>"));
                    }
                    placement.constraints.insert(constraint);
                }
                Err(_) if keys.report.unset_in(text.span).is_some() => {
                    let name = keys.report.unset_in(text.span).unwrap_or_default();
                    let message =
                        format!("{:?} is no constraint: the variable {name} is not set", text.text);
                    keys.report.push(Finding::new(text.span, message));
                }
                Err((message, hint)) => {
                    keys.report.push(Finding::new(text.span, message).hint(hint));
                }
            }
        }
    }
    preferences(&mut keys);
    Some(placement)
}

fn mode(
    report: &mut Findings,
    service: &YamlEntry,
    mapping: &Mapping,
    deploy: Option<&Mapping>,
    extension: &Extension,
) -> Option<Mode> {
    let replicas = replicas(report, mapping, deploy);
    let deploy_mode = deploy.and_then(|deploy| {
        let modes = [
            ("replicated", DeployMode::Replicated),
            ("global", DeployMode::Global),
            ("replicated-job", DeployMode::Replicated),
            ("global-job", DeployMode::Global),
        ];
        let entry = deploy.get("mode")?;
        Some((KeyReader::of(report, deploy).word("mode", &modes)?, entry))
    });
    let is_global = matches!(deploy_mode, Some((DeployMode::Global, _)));
    let layout = match extension.layout {
        None if is_global => ModeName::Global,
        None => ModeName::Spread,
        Some((layout, span)) => {
            if let (true, Some((_, entry))) = (is_global && layout != ModeName::Global, deploy_mode)
            {
                let message = "`deploy.mode: global` and this placement conflict";
                let problem = Finding::new(span, message);
                report.push(problem.also(entry.node.span, "this", "and this"));
                return None;
            }
            layout
        }
    };
    if let (ModeName::Global, Some((_, entry))) = (layout, replicas) {
        let message = format!(
            "service \"{}\" uses placement=global; remove replicas (global runs one replica per \
             ready node)",
            service.key
        );
        report.error(entry.key_span, message);
    }
    let count = replicas.map_or(1, |(count, _)| count);
    match (layout, &extension.hosts) {
        (ModeName::Hosts, Some((hosts, span))) if hosts.is_empty() => {
            report.error(*span, "`hosts` names no node");
            None
        }
        (ModeName::Hosts, Some((hosts, _))) => {
            Some(Mode::Hosts { replicas: count, hosts: hosts.clone() })
        }
        (ModeName::Hosts, None) => {
            let at = extension.layout.map_or(service.key_span, |(_, span)| span);
            let problem = Finding::new(at, "`placement: hosts` needs `hosts`");
            report.push(problem.hint("list the nodes: `hosts: [ash, birch]`"));
            None
        }
        (_, Some((_, span))) => {
            let problem = Finding::new(*span, "`hosts` needs `placement: hosts`");
            report.push(problem.hint("choose other nodes with `deploy.placement.constraints`"));
            None
        }
        (ModeName::Spread, None) => Some(Mode::Spread { replicas: count }),
        (ModeName::Pack, None) => Some(Mode::Pack { replicas: count }),
        (ModeName::Binpack, None) => Some(Mode::Binpack { replicas: count }),
        (ModeName::Global, None) => Some(Mode::Global),
    }
}

/// `deploy.replicas` or `scale`, with the entry that says it.
fn replicas<'n>(
    report: &mut Findings,
    mapping: &'n Mapping,
    deploy: Option<&'n Mapping>,
) -> Option<(u32, &'n YamlEntry)> {
    let mut count = |mapping: &'n Mapping, key: &str| -> Option<(u32, &'n YamlEntry)> {
        let entry = mapping.get(key)?;
        Some((read::integer(report, entry, 0, MAX_REPLICAS.into())?, entry))
    };
    let scale = count(mapping, "scale");
    let replicas = deploy.and_then(|deploy| count(deploy, "replicas"));
    if let (Some((one, scale)), Some((other, replicas))) = (scale, replicas)
        && one != other
    {
        let message = "`scale` and `deploy.replicas` conflict";
        let problem = Finding::new(scale.node.span, message);
        report.push(problem.also(replicas.node.span, "this", "and this"));
    }
    replicas.or(scale)
}

/// What nodes call an architecture that images call otherwise.
fn architecture(name: &str) -> &str {
    match name {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        name => name,
    }
}

/// Swarm names its nodes with 25 letters and digits.
fn is_swarm_id(text: &str, constraint: &Constraint) -> bool {
    let is_id = |value: &str| {
        value.len() == 25 && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    text.trim_start().to_ascii_lowercase().starts_with("node.id") && is_id(&constraint.value)
}

/// `node.labels.disk == ssd`; the error has a message and a hint.
fn constraint(text: &str) -> Result<Constraint, (String, String)> {
    let shape = || {
        let message = format!("{text:?} is not a constraint");
        (message, "write node.labels.disk == ssd, or != for any other".to_owned())
    };
    let (left, equal, value) = match (text.split_once("=="), text.split_once("!=")) {
        (Some((left, value)), None) => (left.trim(), true, value.trim()),
        (None, Some((left, value))) => (left.trim(), false, value.trim()),
        _ => return Err(shape()),
    };
    if left.is_empty() || value.is_empty() {
        return Err(shape());
    }
    let lower = left.to_ascii_lowercase();
    let on = match lower.as_str() {
        "node.hostname" | "node.id" => Attribute::Name,
        "node.zone" | "node.labels.zone" => Attribute::Zone,
        "node.platform.os" => Attribute::Os,
        "node.platform.arch" => {
            let value = architecture(value).to_owned();
            return Ok(Constraint { on: Attribute::Arch, equal, value });
        }
        "node.role" => {
            // A node that is not one is the other: both ways of writing it read the same.
            let is_manager = match value.to_ascii_lowercase().as_str() {
                "manager" => equal,
                "worker" => !equal,
                _ => {
                    let message = format!("{value:?} is not a role");
                    return Err((message, "a node is a manager or a worker".to_owned()));
                }
            };
            let value = if is_manager { "manager" } else { "worker" };
            return Ok(Constraint { on: Attribute::Role, equal: true, value: value.to_owned() });
        }
        _ if lower.starts_with("engine.labels.") => {
            let message = format!("{left} is an engine label, which plimsoll does not support");
            let hint =
                format!("label the node and write node.labels.{}", &left["engine.labels.".len()..]);
            return Err((message, hint));
        }
        // Labels keep their case; only the words before them have none.
        _ if lower.starts_with("node.labels.") && left.len() > "node.labels.".len() => {
            Attribute::Label(left["node.labels.".len()..].to_owned())
        }
        _ => {
            let hint = "a constraint looks at node.labels.*, node.role, node.hostname, node.id, \
                        node.zone, node.platform.os or node.platform.arch";
            return Err((format!("a node has no {left:?}"), hint.to_owned()));
        }
    };
    Ok(Constraint { on, equal, value: value.to_owned() })
}

fn preferences(keys: &mut KeyReader<'_, '_>) {
    for item in keys.items("preferences") {
        let Some(mapping) = read::mapping_of(keys.report, "preferences", item) else { continue };
        let mut preference = KeyReader::checked(keys.report, Section::Preference, mapping);
        let Some(spread) = preference.text("spread") else { continue };
        if !matches!(spread.as_str(), "node.labels.zone" | "node.zone") {
            let message = format!(
                "the preference for {spread} is ignored: replicas are spread over zones and nodes"
            );
            keys.report.warn(item.span, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_read_as_swarm_reads_them() {
        for (text, read) in [
            ("node.labels.disk == ssd", "node.labels.disk == ssd"),
            ("node.labels.Disk==SSD", "node.labels.Disk == SSD"),
            ("node.hostname != ash", "node.hostname != ash"),
            ("node.id == ash", "node.hostname == ash"),
            ("node.platform.arch==arm64", "node.platform.arch == aarch64"),
            ("node.platform.arch != amd64", "node.platform.arch != x86_64"),
            ("node.platform.arch == riscv64", "node.platform.arch == riscv64"),
            ("node.platform.os == linux", "node.platform.os == linux"),
            ("node.labels.zone == a", "node.zone == a"),
            ("node.zone != a", "node.zone != a"),
            ("node.role == manager", "node.role == manager"),
            ("node.role==worker", "node.role == worker"),
            ("node.role != manager", "node.role == worker"),
            ("node.role != worker", "node.role == manager"),
            ("node.Role == Manager", "node.role == manager"),
        ] {
            assert_eq!(constraint(text).unwrap().to_string(), read, "{text}");
        }
        for text in [
            "node.role == boss",
            "engine.labels.x == y",
            "node.labels. == y",
            "a",
            "a == b",
            "node.id ==",
        ] {
            assert!(constraint(text).is_err(), "{text}");
        }
    }
}
