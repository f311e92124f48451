//! What a container may do and see of its node: capabilities, devices, limits of the kernel, namespaces.

use std::collections::BTreeMap;

use plimsoll_model::shape::{CGROUP_MODES, IPC_MODES, PID_MODES, UTS_MODES};
use plimsoll_model::spec::{ContainerSpec, Device, Ulimit};

use super::networks::mode;
use crate::diagnostic::Findings;
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::{Mapping, Value, YamlEntry, YamlNode};

pub(super) fn fill(report: &mut Findings, service: &Mapping, container: &mut ContainerSpec) {
    let mut keys = KeyReader::of(report, service);
    container.privileged = keys.boolean("privileged");
    container.read_only = keys.boolean("read_only");
    container.cap_add = keys.texts("cap_add").into_iter().collect();
    container.cap_drop = keys.texts("cap_drop").into_iter().collect();
    container.security_opt = keys.texts("security_opt");
    container.device_cgroup_rules = keys.texts("device_cgroup_rules");
    container.sysctls = keys.pairs("sysctls");
    container.storage_opt = keys.pairs("storage_opt");
    container.ipc = mode(&mut keys, "ipc", &IPC_MODES);
    container.pid = mode(&mut keys, "pid", &PID_MODES);
    container.uts = mode(&mut keys, "uts", &UTS_MODES);
    container.cgroup = mode(&mut keys, "cgroup", &CGROUP_MODES);
    container.userns_mode = keys.text("userns_mode");
    container.cgroup_parent = keys.text("cgroup_parent");
    container.devices = devices(&mut keys);
    container.ulimits = ulimits(&mut keys);
}

fn devices(keys: &mut KeyReader<'_, '_>) -> Vec<Device> {
    let items = keys.items("devices");
    items.iter().filter_map(|item| device(keys.report, item)).collect()
}

/// `/dev/a`, `/dev/a:/dev/b`, `/dev/a:/dev/b:rwm`, a CDI name, or the long form.
fn device(report: &mut Findings, node: &YamlNode) -> Option<Device> {
    let everything = || "rwm".to_owned();
    if let Some(mapping) = node.as_mapping() {
        let mut keys = KeyReader::checked(report, Section::Device, mapping);
        let Some(source) = keys.text("source") else {
            keys.report.error(node.span, "an entry of `devices` needs `source`");
            return None;
        };
        let target = keys.text("target").unwrap_or_else(|| source.clone());
        let permissions = keys.text("permissions").unwrap_or_else(everything);
        return Some(Device { source, target, permissions });
    }
    let text = read::text_of(report, "devices", node)?;
    let parts: Vec<&str> = text.split(':').collect();
    let is_permissions = |part: &str| !part.is_empty() && part.chars().all(|c| "rwm".contains(c));
    match parts.as_slice() {
        [source] => Some((*source, *source, None)),
        [source, last] if is_permissions(last) => Some((*source, *source, Some(*last))),
        [source, target] => Some((*source, *target, None)),
        [source, target, last] if is_permissions(last) => Some((*source, *target, Some(*last))),
        _ => {
            report.error(node.span, format!("{text:?} is not source:target:permissions"));
            None
        }
    }
    .map(|(source, target, permissions)| Device {
        source: source.to_owned(),
        target: target.to_owned(),
        permissions: permissions.map_or_else(everything, str::to_owned),
    })
}

fn ulimits(keys: &mut KeyReader<'_, '_>) -> BTreeMap<String, Ulimit> {
    let Some(mapping) = keys.mapping("ulimits") else { return BTreeMap::new() };
    let entries = mapping.entries().iter();
    entries.filter_map(|entry| Some((entry.key.clone(), ulimit(keys.report, entry)?))).collect()
}

/// One number for both limits, or each of its own. -1 is no limit.
fn ulimit(report: &mut Findings, entry: &YamlEntry) -> Option<Ulimit> {
    if let Value::Mapping(mapping) = &entry.node.value {
        let mut keys = KeyReader::checked(report, Section::Ulimit, mapping);
        let soft = keys.integer::<i64>("soft", -1, i64::MAX);
        let hard = keys.integer::<i64>("hard", -1, i64::MAX);
        let (Some(soft), Some(hard)) = (soft, hard) else {
            if mapping.get("soft").is_none() || mapping.get("hard").is_none() {
                let message = format!("`{}` needs both `soft` and `hard`", entry.key);
                report.error(entry.key_span, message);
            }
            return None;
        };
        if hard >= 0 && soft > hard {
            let message = format!("`{}` has a soft limit above its hard one", entry.key);
            report.error(entry.key_span, message);
        }
        return Some(Ulimit { soft, hard });
    }
    let both = read::integer(report, entry, -1, i64::MAX)?;
    Some(Ulimit { soft: both, hard: both })
}
