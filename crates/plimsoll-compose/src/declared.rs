//! What a file declares beside its services: volumes, networks, configs and secrets. Services take from here
//! what they use, so that each spec is whole in itself.

use std::cell::Cell;
use std::collections::BTreeMap;

pub(crate) use plimsoll_model::ceilings::MAX_FILE_BYTES as MAX_CONTENT_BYTES;
use plimsoll_model::spec::{FileContent, VolumeScope, VolumeSpec};

use crate::diagnostic::{Finding, Findings, SourceSpan};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::yaml::{Mapping, YamlEntry};
use crate::{Files, LoadOptions};

#[derive(Debug, Default)]
pub(crate) struct Declared {
    pub(crate) volumes: BTreeMap<String, VolumeSpec>,
    pub(crate) networks: BTreeMap<String, Network>,
    pub(crate) configs: BTreeMap<String, Stored>,
    pub(crate) secrets: BTreeMap<String, Stored>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Network {
    pub(crate) name: Option<String>,
    pub(crate) external: bool,
    pub(crate) internal: bool,
}

/// A config or secret. It is read when the first service asks for it.
#[derive(Debug)]
pub(crate) struct Stored {
    origin: Origin,
    /// Whether its content was found missing and said to be.
    is_reported: Cell<bool>,
}

#[derive(Debug)]
enum Origin {
    File(String, SourceSpan),
    Environment(String, SourceSpan),
    Content(String),
    External(String),
}

pub(crate) fn read(report: &mut Findings, top: &Mapping) -> Declared {
    let mut declared = Declared::default();
    each(report, top, "volumes", Section::Volume, |entry, keys| {
        let (external, old_name) = external(keys);
        let volume = VolumeSpec {
            name: keys.text("name").or(old_name),
            external,
            driver: keys.text("driver"),
            driver_opts: keys.pairs("driver_opts"),
            labels: keys.pairs("labels"),
            scope: scope(keys),
        };
        if !volume.can_have_scope() {
            let message = "`scope: global` needs a driver that keeps the volume for all nodes";
            let problem = Finding::new(entry.node.span, message.to_owned());
            keys.report.push(problem.hint(
                "name its `driver`; the driver `local` reaches other nodes with `driver_opts` of `type: nfs` and the like",
            ));
        }
        declared.volumes.insert(entry.key.clone(), volume);
    });
    each(report, top, "networks", Section::Network, |entry, keys| {
        let (external, old_name) = external(keys);
        let name = keys.text("name").or(old_name);
        let internal = keys.boolean("internal").unwrap_or_default();
        network_driver(keys, external);
        declared.networks.insert(entry.key.clone(), Network { name, external, internal });
    });
    each(report, top, "configs", Section::Config, |entry, keys| {
        declared.configs.insert(entry.key.clone(), stored(entry, keys));
    });
    each(report, top, "secrets", Section::Secret, |entry, keys| {
        declared.secrets.insert(entry.key.clone(), stored(entry, keys));
    });
    declared
}

/// Calls `read` for each declaration of a kind; one without a body has no keys.
fn each(
    report: &mut Findings,
    top: &Mapping,
    kind: &str,
    section: Section,
    mut read: impl FnMut(&YamlEntry, &mut KeyReader<'_, '_>),
) {
    let Some(declarations) = KeyReader::of(report, top).mapping(kind) else { return };
    let nothing = Mapping::default();
    for entry in declarations.entries().iter().filter(|entry| !entry.key.starts_with("x-")) {
        let is_bare = entry.node.is_null();
        let body = if is_bare { Some(&nothing) } else { crate::read::mapping(report, entry) };
        if let Some(body) = body {
            read(entry, &mut KeyReader::checked(report, section, body));
        }
    }
}

/// `x-plimsoll: {scope: global}`
fn scope(keys: &mut KeyReader<'_, '_>) -> Option<VolumeScope> {
    let mut keys = keys.section("x-plimsoll", Section::VolumeExtension)?;
    keys.word("scope", &[("local", None), ("global", Some(VolumeScope::Global))])?
}

/// `external: true`, or the older `external: {name: x}`.
fn external(keys: &mut KeyReader<'_, '_>) -> (bool, Option<String>) {
    let Some(entry) = keys.get("external") else { return (false, None) };
    match entry.node.as_mapping() {
        Some(old) => (true, KeyReader::of(keys.report, old).text("name")),
        None => (keys.boolean("external").unwrap_or_default(), None),
    }
}

/// Between nodes plimsoll does what `overlay` does, and on one what `bridge` does. A container on the network of its node's
/// own is something else, and never silently a bridge.
fn network_driver(keys: &mut KeyReader<'_, '_>, is_external: bool) {
    let Some(entry) = keys.get("driver") else { return };
    let Some(driver) = keys.text("driver") else { return };
    match driver.as_str() {
        "bridge" | "overlay" | "default" | "" => {}
        _ if is_external => {}
        "macvlan" | "ipvlan" => {
            let message = format!("plimsoll makes no {driver} networks");
            let hint = "make it on each node with `docker network create`, and declare it `external: true`";
            keys.report.push(Finding::new(entry.node.span, message).hint(hint));
        }
        "host" | "none" | "null" => {
            let message = format!("`driver: {driver}` is not supported");
            let hint = "write `network_mode: host` or `network_mode: none` in the service";
            keys.report.push(Finding::new(entry.node.span, message).hint(hint));
        }
        _ => {
            let message =
                format!("`driver: {driver}` is ignored: plimsoll connects the nodes itself");
            keys.report.warn(entry.node.span, message);
        }
    }
}

fn stored(entry: &YamlEntry, keys: &mut KeyReader<'_, '_>) -> Stored {
    let (is_external, old_name) = external(keys);
    let name = keys.text("name").or(old_name).unwrap_or_else(|| entry.key.clone());
    let value_span =
        |keys: &KeyReader<'_, '_>, key: &str| keys.get(key).map(|entry| entry.node.span);
    let mut origins = Vec::new();
    if let (Some(path), Some(span)) = (keys.text("file"), value_span(keys, "file")) {
        origins.push(Origin::File(path, span));
    }
    if let (Some(name), Some(span)) = (keys.text("environment"), value_span(keys, "environment")) {
        origins.push(Origin::Environment(name, span));
    }
    origins.extend(keys.text("content").map(Origin::Content));
    if is_external {
        origins.push(Origin::External(name));
    }
    let origin = origins.pop();
    if origin.is_none() || !origins.is_empty() {
        let found = if origin.is_none() { "nothing says" } else { "more than one key says" };
        let message = format!("{found} where `{}` comes from", entry.key);
        let hint = "write one of `file`, `content`, `environment` or `external: true`";
        keys.report.push(Finding::new(entry.key_span, message).hint(hint));
    }
    // An origin in doubt is not read: that mistake was named just now.
    let origin = origin.filter(|_| origins.is_empty());
    let origin = origin.unwrap_or_else(|| Origin::External(entry.key.clone()));
    Stored { origin, is_reported: Cell::new(false) }
}

impl Stored {
    /// Its content, or `None` when it cannot be had, which is said once.
    pub(crate) fn content(
        &self,
        report: &mut Findings,
        options: &LoadOptions,
        files: &dyn Files,
    ) -> Option<FileContent> {
        let (bytes, span) = match &self.origin {
            Origin::External(name) => return Some(FileContent::External(name.clone())),
            Origin::Content(text) => return Some(FileContent::Inline(text.clone().into_bytes())),
            Origin::Environment(name, span) => match options.env.get(name) {
                Some(value) => (Ok(value.clone().into_bytes()), *span),
                None => (Err(format!("the variable {name} is not set")), *span),
            },
            Origin::File(path, span) => {
                let read = files.read(path).map_err(|error| format!("cannot read {path}: {error}"));
                (read, *span)
            }
        };
        let within = bytes.and_then(|bytes| match bytes.len() {
            0..=MAX_CONTENT_BYTES => Ok(FileContent::Inline(bytes)),
            len => Err(format!("it has {len} bytes; at most {MAX_CONTENT_BYTES} are carried")),
        });
        match within {
            Ok(content) => Some(content),
            Err(message) => {
                if !self.is_reported.replace(true) {
                    report.error(span, message);
                }
                None
            }
        }
    }
}
