//! Mounts: `data:/var/lib/data:ro`, the long form, and `tmpfs`.

use std::collections::BTreeSet;

use plimsoll_model::shape::{CONSISTENCIES, PROPAGATIONS, TMPFS_NUMBERS, TMPFS_OPTIONS};
use plimsoll_model::spec::{ContainerSpec, Mount, MountSource, VolumeSpec};

use super::ServiceContext;
use crate::diagnostic::{Finding, Findings, SourceSpan, WarningKind};
use crate::fields::{Section, did_you_mean};
use crate::keys::KeyReader;
use crate::paths::join;
use crate::read;
use crate::yaml::{Mapping, Value, YamlNode};

/// The kinds a long form can name.
#[derive(Clone, Copy)]
enum MountKind {
    Bind,
    Volume,
    Tmpfs,
    Unsupported,
}

pub(super) fn fill(
    context: &mut ServiceContext<'_>,
    service: &Mapping,
    container: &mut ContainerSpec,
) {
    let mut mounts: Vec<(Mount, SourceSpan)> = Vec::new();
    for item in KeyReader::of(context.report, service).items("volumes") {
        let mount = match item.as_mapping() {
            Some(mapping) => long(context, mapping, item.span),
            None => read::text_of(context.report, "volumes", item)
                .and_then(|text| short(context, &text, item.span)),
        };
        if let Some(mount) = mount {
            mounts.push((mount, item.span));
        }
    }
    if let Some(entry) = service.get("tmpfs") {
        for text in read::one_or_many(context.report, entry) {
            mounts.extend(tmpfs(context.report, &text).map(|mount| (mount, text.span)));
        }
    }
    mounts.sort_by(|(a, _), (b, _)| a.target.cmp(&b.target));
    for pair in mounts.windows(2) {
        let [(first, first_span), (second, second_span)] = pair else { continue };
        if first.target == second.target {
            let message = format!("two mounts at {}", second.target);
            let problem = Finding::new(*second_span, message);
            context.report.push(problem.also(*first_span, "again here", "first here"));
        }
    }
    for (mount, span) in &mounts {
        if let MountSource::Volume { name, .. } = &mount.source
            && let Some(volume) = declared(context, name, *span)
        {
            container.volumes.insert(name.clone(), volume);
        }
    }
    container.mounts = mounts.into_iter().map(|(mount, _)| mount).collect();
}

fn declared(context: &mut ServiceContext<'_>, name: &str, span: SourceSpan) -> Option<VolumeSpec> {
    let volume = context.declared.volumes.get(name).cloned();
    if volume.is_none() {
        let problem = Finding::new(span, format!("volume \"{name}\" is not declared"));
        let known = context.declared.volumes.keys().map(String::as_str);
        let add = format!(
            "add `{name}:` under the top-level `volumes:`, or write ./{name} for a directory"
        );
        let hint = did_you_mean(name, known, add);
        context.report.push(problem.hint(hint));
    }
    volume
}

/// What makes two entries of two files the same mount.
pub(crate) fn identity(node: &YamlNode) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) => {
            let mut parts = scalar.text.split(':');
            let first = parts.next()?;
            Some(parts.next().unwrap_or(first).to_owned())
        }
        Value::Mapping(mapping) => {
            Some(mapping.get("target")?.node.as_scalar()?.text.trim_end_matches('/').to_owned())
        }
        Value::Sequence(_) => None,
    }
}

fn is_path(source: &str) -> bool {
    source.starts_with(['/', '.', '~'])
}

fn short(context: &mut ServiceContext<'_>, text: &str, span: SourceSpan) -> Option<Mount> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, options) = match parts.as_slice() {
        [target] => (None, *target, ""),
        [source, target] => (Some(*source), *target, ""),
        [source, target, options] => (Some(*source), *target, *options),
        _ => {
            let problem = Finding::new(span, format!("{text:?} is not source:target:options"));
            context.report.push(problem.hint("the long form takes paths that contain colons"));
            return None;
        }
    };
    let target = absolute(context.report, target, span)?;
    let mut mount =
        Mount { source: MountSource::Anonymous, target, read_only: false, consistency: None };
    mount.source = match source {
        None => MountSource::Anonymous,
        Some("") => {
            context.report.error(span, format!("{text:?} has no source"));
            return None;
        }
        Some(path) if is_path(path) => MountSource::Bind {
            path: resolve(context, path, span),
            propagation: None,
            create_host_path: true,
            selinux: None,
        },
        Some(name) => MountSource::Volume { name: name.to_owned(), subpath: None, nocopy: false },
    };
    for option in options.split(',').filter(|option| !option.is_empty()) {
        if !apply(&mut mount, option) {
            let problem = Finding::new(span, format!("{option:?} is not an option of this mount"));
            context.report.push(problem.hint("known options: ro, rw, z, Z, nocopy, rshared, …"));
        }
    }
    Some(mount)
}

/// Sets one option of the short form, if it is one.
fn apply(mount: &mut Mount, option: &str) -> bool {
    match (&mut mount.source, option) {
        (_, "ro") => mount.read_only = true,
        (_, "rw") => mount.read_only = false,
        (MountSource::Bind { selinux, .. }, "z" | "Z") => *selinux = Some(option.to_owned()),
        // A named volume is labelled by the engine that makes it.
        (_, "z" | "Z") => {}
        (MountSource::Volume { nocopy, .. }, "nocopy") => *nocopy = true,
        (MountSource::Bind { propagation, .. }, option) if PROPAGATIONS.contains(&option) => {
            *propagation = Some(option.to_owned());
        }
        (_, option) if CONSISTENCIES.contains(&option) => {
            mount.consistency = Some(option.to_owned());
        }
        _ => return false,
    }
    true
}

fn long(context: &mut ServiceContext<'_>, mapping: &Mapping, span: SourceSpan) -> Option<Mount> {
    let mut keys = KeyReader::checked(context.report, Section::Mount, mapping);
    let words = [
        ("bind", MountKind::Bind),
        ("volume", MountKind::Volume),
        ("tmpfs", MountKind::Tmpfs),
        ("npipe", MountKind::Unsupported),
        ("cluster", MountKind::Unsupported),
        ("image", MountKind::Unsupported),
    ];
    if keys.get("type").is_none() {
        keys.report.error(span, "an entry of `volumes` needs `type`: bind, volume or tmpfs");
        return None;
    }
    let kind = keys.word("type", &words)?;
    let source = keys.text("source");
    let read_only = keys.boolean("read_only").unwrap_or_default();
    let consistency = keys.text("consistency");
    let Some(target) = keys.text("target") else {
        keys.report.error(span, "an entry of `volumes` needs `target`");
        return None;
    };
    let target = absolute(keys.report, &target, span)?;
    let source = match kind {
        MountKind::Bind => bind(context, mapping, source, span)?,
        MountKind::Volume => {
            let volume = keys.section("volume", Section::MountVolume);
            let (subpath, nocopy) = volume.map_or((None, false), |mut volume| {
                (volume.text("subpath"), volume.boolean("nocopy").unwrap_or_default())
            });
            match source {
                Some(name) => MountSource::Volume { name, subpath, nocopy },
                None => MountSource::Anonymous,
            }
        }
        MountKind::Tmpfs => {
            let mut section = keys.section("tmpfs", Section::MountTmpfs);
            let size = section.as_mut().and_then(|section| section.parse("size"));
            let mode = section.and_then(|section| {
                section.get("mode").and_then(|entry| read::file_mode(section.report, entry))
            });
            MountSource::Tmpfs { size, mode, options: BTreeSet::new() }
        }
        MountKind::Unsupported => {
            let at = mapping.get("type").map_or(span, |entry| entry.node.span);
            keys.report.push(
                Finding::new(at, "this type of mount is not supported")
                    .hint("use bind, volume or tmpfs"),
            );
            return None;
        }
    };
    Some(Mount { source, target, read_only, consistency })
}

fn bind(
    context: &mut ServiceContext<'_>,
    mapping: &Mapping,
    source: Option<String>,
    span: SourceSpan,
) -> Option<MountSource> {
    let Some(source) = source else {
        context.report.error(span, "a bind mount needs `source`");
        return None;
    };
    let at = mapping.get("source").map_or(span, |entry| entry.node.span);
    let path = resolve(context, &source, at);
    let mut keys = KeyReader::of(context.report, mapping);
    let Some(mut options) = keys.section("bind", Section::MountBind) else {
        return Some(MountSource::Bind {
            path,
            propagation: None,
            create_host_path: true,
            selinux: None,
        });
    };
    let propagations = PROPAGATIONS.map(|word| (word, word));
    Some(MountSource::Bind {
        path,
        propagation: options.word("propagation", &propagations).map(str::to_owned),
        create_host_path: options.boolean("create_host_path").unwrap_or(true),
        selinux: options.word("selinux", &[("z", "z"), ("Z", "Z")]).map(str::to_owned),
    })
}

/// `/run:size=64m,mode=1777`.
fn tmpfs(report: &mut Findings, text: &read::Text) -> Option<Mount> {
    let (target, options) = text.text.split_once(':').unwrap_or((&text.text, ""));
    let target = absolute(report, target, text.span)?;
    let (mut size, mut mode, mut read_only) = (None, None, false);
    let mut others = BTreeSet::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("size", value)) => match value.parse() {
                Ok(bytes) => size = Some(bytes),
                Err(error) => report.error(text.span, format!("`tmpfs`: {error}")),
            },
            Some(("mode", value)) => match u32::from_str_radix(value, 8) {
                Ok(bits) if bits <= 0o7777 => mode = Some(bits),
                _ => report.error(text.span, format!("`tmpfs`: {value:?} is not a file mode")),
            },
            None if option == "ro" => read_only = true,
            None if option == "rw" => {}
            Some((key, _)) if TMPFS_NUMBERS.contains(&key) => {
                others.insert(option.to_owned());
            }
            None if TMPFS_OPTIONS.contains(&option) => {
                others.insert(option.to_owned());
            }
            _ => report.error(text.span, format!("{option:?} is not an option of `tmpfs`")),
        }
    }
    let source = MountSource::Tmpfs { size, mode, options: others };
    Some(Mount { source, target, read_only, consistency: None })
}

fn absolute(report: &mut Findings, target: &str, span: SourceSpan) -> Option<String> {
    if target.starts_with('/') {
        let trimmed = target.trim_end_matches('/');
        return Some(if trimmed.is_empty() { "/" } else { trimmed }.to_owned());
    }
    report
        .error(span, format!("a mount needs an absolute path in the container, found {target:?}"));
    None
}

/// The path on the node. A relative one is taken below the project's directory, and said to be: the node that
/// gets a replica may not have it.
fn resolve(context: &mut ServiceContext<'_>, path: &str, span: SourceSpan) -> String {
    let home = context.options.env.get("HOME");
    if let (Some(rest), Some(home)) = (path.strip_prefix('~'), home) {
        return format!("{}{rest}", home.trim_end_matches('/'));
    }
    if path.starts_with('/') {
        return path.to_owned();
    }
    let directory = &context.options.directory;
    let resolved = if directory.is_empty() { path.to_owned() } else { join(directory, path) };
    context.report.push_warning(Finding::of_kind(span, WarningKind::Bind, &resolved));
    resolved
}
