//! Lays one file over another, as `-f a -f b` does in Compose: mappings merge, single values are replaced, lists
//! grow, and lists whose items have an identity (ports, mounts) replace the item that has it already.

use std::rc::Rc;

use crate::diagnostic::{Finding, Findings};
use crate::service::{ports, volumes};
use crate::yaml::{Mapping, MergeTag, Style, Value, YamlEntry, YamlNode};

/// How two values of one key become one.
enum MergeRule {
    /// By their kind: mappings deeply, lists appended, single values replaced.
    Kind,
    Replace,
    /// `KEY=value` lists and mappings, as one mapping.
    Pairs,
    /// Lists of names and mappings by name, as one mapping.
    Names,
    /// Lists in which a key identifies an item.
    Keyed(fn(&YamlNode) -> Option<String>),
    /// A single value is a list of one.
    Many,
    /// Deeply if both are mappings of one driver, replaced otherwise.
    Driver,
}

fn rule(path: &[&str]) -> MergeRule {
    match path {
        ["services", _, "command" | "entrypoint" | "build"]
        | ["services", _, "healthcheck", "test"]
        | ["services", _, "ulimits", _] => MergeRule::Replace,
        ["services", _, "environment" | "labels" | "annotations" | "sysctls" | "storage_opt"]
        | ["services", _, "deploy", "labels"]
        | ["networks" | "volumes" | "configs" | "secrets", _, "labels"] => MergeRule::Pairs,
        ["services", _, "depends_on" | "networks"] => MergeRule::Names,
        ["services", _, "ports"] => MergeRule::Keyed(ports::identity),
        ["services", _, "volumes"] => MergeRule::Keyed(volumes::identity),
        ["services", _, "devices"] => MergeRule::Keyed(device),
        ["services", _, "configs" | "secrets"] => MergeRule::Keyed(file_mount),
        ["services", _, "env_file" | "label_file" | "dns" | "dns_opt" | "dns_search" | "tmpfs"] => {
            MergeRule::Many
        }
        ["services", _, "logging"] => MergeRule::Driver,
        _ => MergeRule::Kind,
    }
}

/// All files as one tree.
pub(crate) fn all(report: &mut Findings, files: Vec<Rc<YamlNode>>) -> Option<Rc<YamlNode>> {
    let mut files = files.into_iter();
    let base = settle(&files.next()?);
    Some(files.fold(base, |base, over| settle(&merge(report, &mut Vec::new(), &base, &over))))
}

/// A service laid over the one it extends.
pub(crate) fn service(
    report: &mut Findings,
    name: &str,
    base: &Rc<YamlNode>,
    over: &Rc<YamlNode>,
) -> Rc<YamlNode> {
    settle(&merge(report, &mut vec!["services", name], base, over))
}

/// Leaves out what `!reset` takes away. A tree without the tag is returned as it is.
fn settle(node: &Rc<YamlNode>) -> Rc<YamlNode> {
    let value = match &node.value {
        Value::Mapping(mapping) => {
            let mut settled = Mapping::default();
            let mut changed = false;
            for entry in mapping.entries() {
                if entry.node.tag == Some(MergeTag::Reset) {
                    changed = true;
                    continue;
                }
                let inner = settle(&entry.node);
                changed |= !Rc::ptr_eq(&inner, &entry.node);
                settled.set(YamlEntry { node: inner, ..entry.clone() });
            }
            if !changed {
                return Rc::clone(node);
            }
            Value::Mapping(settled)
        }
        _ => return Rc::clone(node),
    };
    Rc::new(YamlNode::new(node.span, node.tag, value))
}

fn merge<'n>(
    report: &mut Findings,
    path: &mut Vec<&'n str>,
    base: &'n Rc<YamlNode>,
    over: &'n Rc<YamlNode>,
) -> Rc<YamlNode> {
    if over.tag == Some(MergeTag::Override) || base.is_null() {
        return Rc::clone(over);
    }
    if over.is_null() {
        return Rc::clone(base);
    }
    match rule(path) {
        MergeRule::Replace => Rc::clone(over),
        MergeRule::Kind => by_kind(report, path, base, over),
        MergeRule::Pairs => named(report, path, base, over, |text| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        }),
        MergeRule::Names => named(report, path, base, over, |text| (text.to_owned(), None)),
        MergeRule::Keyed(identity) => keyed(report, base, over, identity),
        MergeRule::Many => {
            let items = many(base).into_iter().chain(many(over)).collect();
            Rc::new(YamlNode::new(over.span, None, Value::Sequence(items)))
        }
        MergeRule::Driver => {
            let driver = |node: &YamlNode| {
                let entry = node.as_mapping().and_then(|mapping| mapping.get("driver").cloned());
                entry.and_then(|entry| Some(entry.node.as_scalar()?.text.clone()))
            };
            match (driver(base), driver(over)) {
                (Some(one), Some(other)) if one != other => Rc::clone(over),
                _ => by_kind(report, path, base, over),
            }
        }
    }
}

fn by_kind<'n>(
    report: &mut Findings,
    path: &mut Vec<&'n str>,
    base: &'n Rc<YamlNode>,
    over: &'n Rc<YamlNode>,
) -> Rc<YamlNode> {
    match (&base.value, &over.value) {
        (Value::Scalar(_), Value::Scalar(_)) => Rc::clone(over),
        (Value::Mapping(below), Value::Mapping(above)) => {
            let merged = mappings(report, path, below, above);
            Rc::new(YamlNode::new(over.span, over.tag, Value::Mapping(merged)))
        }
        (Value::Sequence(below), Value::Sequence(above)) => {
            let items = below.iter().chain(above).cloned().collect();
            Rc::new(YamlNode::new(over.span, over.tag, Value::Sequence(items)))
        }
        _ => {
            mismatch(report, base, over);
            Rc::clone(base)
        }
    }
}

fn mappings<'n>(
    report: &mut Findings,
    path: &mut Vec<&'n str>,
    base: &'n Mapping,
    over: &'n Mapping,
) -> Mapping {
    let mut merged = base.clone();
    for entry in over.entries() {
        // A reset stays in its place: `settle` leaves it out when all of the file is laid over.
        let node = match base.entry(&entry.key) {
            Some(below) if entry.node.tag != Some(MergeTag::Reset) => {
                path.push(&entry.key);
                let node = merge(report, path, &below.node, &entry.node);
                path.pop();
                node
            }
            _ => Rc::clone(&entry.node),
        };
        merged.set(YamlEntry { node, ..entry.clone() });
    }
    merged
}

/// Both sides as mappings, so that a name given twice is one entry.
fn named<'n>(
    report: &mut Findings,
    path: &mut Vec<&'n str>,
    base: &'n Rc<YamlNode>,
    over: &'n Rc<YamlNode>,
    split: fn(&str) -> (String, Option<String>),
) -> Rc<YamlNode> {
    let as_mapping = |node: &YamlNode| -> Option<Mapping> {
        match &node.value {
            Value::Mapping(mapping) => Some(mapping.clone()),
            Value::Sequence(items) => {
                let entry = |item: &Rc<YamlNode>| {
                    let (key, value) = split(&item.as_scalar()?.text);
                    let (text, style) = match value {
                        Some(value) => (value, Style::Text),
                        None => (String::new(), Style::Plain),
                    };
                    let node = Rc::new(YamlNode::scalar(item.span, text, style));
                    Some(YamlEntry { key, key_span: item.span, node })
                };
                items.iter().map(entry).collect()
            }
            Value::Scalar(_) => None,
        }
    };
    let (Some(below), Some(above)) = (as_mapping(base), as_mapping(over)) else {
        return by_kind(report, path, base, over);
    };
    let mut merged = below.clone();
    for entry in above.entries() {
        let node = match below.entry(&entry.key) {
            // Networks and dependencies in the long form have keys of their own.
            Some(earlier) if entry.node.as_mapping().is_some() => {
                merge_inner(report, &earlier.node, &entry.node)
            }
            _ => Rc::clone(&entry.node),
        };
        merged.set(YamlEntry { node, ..entry.clone() });
    }
    Rc::new(YamlNode::new(over.span, over.tag, Value::Mapping(merged)))
}

/// Below here no rule but the kind applies.
fn merge_inner(report: &mut Findings, base: &Rc<YamlNode>, over: &Rc<YamlNode>) -> Rc<YamlNode> {
    merge(report, &mut vec![""], base, over)
}

fn keyed(
    report: &mut Findings,
    base: &Rc<YamlNode>,
    over: &Rc<YamlNode>,
    identity: fn(&YamlNode) -> Option<String>,
) -> Rc<YamlNode> {
    let (Value::Sequence(below), Value::Sequence(above)) = (&base.value, &over.value) else {
        mismatch(report, base, over);
        return Rc::clone(base);
    };
    let replaced: std::collections::BTreeSet<String> =
        above.iter().filter_map(|item| identity(item)).collect();
    let kept = below.iter().filter(|item| identity(item).is_none_or(|id| !replaced.contains(&id)));
    let items = kept.chain(above).cloned().collect();
    Rc::new(YamlNode::new(over.span, over.tag, Value::Sequence(items)))
}

fn many(node: &Rc<YamlNode>) -> Vec<Rc<YamlNode>> {
    match &node.value {
        Value::Sequence(items) => items.clone(),
        _ => vec![Rc::clone(node)],
    }
}

fn mismatch(report: &mut Findings, base: &YamlNode, over: &YamlNode) {
    let message =
        format!("{} cannot be merged with {} of an earlier file", over.kind(), base.kind());
    let problem = Finding::new(over.span, message).also(base.span, "this", "the earlier value");
    report.push(problem.hint("`!override` replaces the earlier value whole"));
}

/// `/dev/a:/dev/b:rwm` is the device `/dev/b` in the container.
fn device(node: &YamlNode) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) => {
            let mut parts = scalar.text.split(':');
            let source = parts.next()?;
            Some(parts.next().unwrap_or(source).to_owned())
        }
        Value::Mapping(mapping) => {
            let entry = mapping.get("target").or_else(|| mapping.get("source"))?;
            Some(entry.node.as_scalar()?.text.clone())
        }
        Value::Sequence(_) => None,
    }
}

fn file_mount(node: &YamlNode) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) => Some(scalar.text.clone()),
        Value::Mapping(mapping) => {
            let entry = mapping.get("target").or_else(|| mapping.get("source"))?;
            Some(entry.node.as_scalar()?.text.clone())
        }
        Value::Sequence(_) => None,
    }
}
