//! Configs and secrets: files that travel with the spec into the container.

use std::collections::BTreeMap;

use plimsoll_model::spec::{ContainerSpec, FileContent, FileMount};

use super::ServiceContext;
use crate::declared::Stored;
use crate::diagnostic::Finding;
use crate::fields::{Section, did_you_mean};
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::{Mapping, YamlNode};

/// Configs and secrets differ in where they are declared and where they land.
struct FileKind<'a> {
    key: &'static str,
    noun: &'static str,
    directory: &'static str,
    declared: &'a BTreeMap<String, Stored>,
}

pub(super) fn fill(
    context: &mut ServiceContext<'_>,
    service: &Mapping,
    container: &mut ContainerSpec,
) {
    let declared = context.declared;
    let configs =
        FileKind { key: "configs", noun: "config", directory: "/", declared: &declared.configs };
    let secrets = FileKind {
        key: "secrets",
        noun: "secret",
        directory: "/run/secrets/",
        declared: &declared.secrets,
    };
    container.configs = mounts(context, service, &configs);
    container.secrets = mounts(context, service, &secrets);
}

fn mounts(
    context: &mut ServiceContext<'_>,
    service: &Mapping,
    kind: &FileKind<'_>,
) -> Vec<FileMount> {
    let items = KeyReader::of(context.report, service).items(kind.key);
    let mut mounts: Vec<_> = items.iter().filter_map(|item| mount(context, item, kind)).collect();
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    mounts
}

fn mount(
    context: &mut ServiceContext<'_>,
    node: &YamlNode,
    kind: &FileKind<'_>,
) -> Option<FileMount> {
    let mut mount = FileMount {
        name: String::new(),
        target: String::new(),
        content: FileContent::Inline(Vec::new()),
        uid: None,
        gid: None,
        mode: None,
    };
    let mut target = None;
    if let Some(mapping) = node.as_mapping() {
        let mut keys = KeyReader::checked(context.report, Section::FileMount, mapping);
        let Some(source) = keys.text("source") else {
            keys.report.error(node.span, format!("an entry of `{}` needs `source`", kind.key));
            return None;
        };
        mount.name = source;
        target = keys.text("target");
        mount.uid = keys.text("uid");
        mount.gid = keys.text("gid");
        mount.mode = keys.get("mode").and_then(|entry| read::file_mode(keys.report, entry));
    } else {
        mount.name = read::text_of(context.report, kind.key, node)?;
    }
    mount.target = match target {
        Some(path) if path.starts_with('/') => path,
        Some(name) => format!("{}{name}", kind.directory),
        None => format!("{}{}", kind.directory, mount.name),
    };
    let Some(stored) = kind.declared.get(&mount.name) else {
        let message = format!("{} \"{}\" is not declared", kind.noun, mount.name);
        let known = kind.declared.keys().map(String::as_str);
        let add = format!("add `{}:` under the top-level `{}:`", mount.name, kind.key);
        let hint = did_you_mean(&mount.name, known, add);
        context.report.push(Finding::new(node.span, message).hint(hint));
        return None;
    };
    // Once the deployment carries too much, nothing more is read for it.
    if !context.carry(0, node.span) {
        return None;
    }
    mount.content = stored.content(context.report, context.options, context.files)?;
    let carried = match &mount.content {
        FileContent::Inline(bytes) => bytes.len(),
        FileContent::External(_) | FileContent::Kept { .. } => 0,
    };
    context.carry(carried, node.span).then_some(mount)
}
