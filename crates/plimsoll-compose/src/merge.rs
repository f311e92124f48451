//! Lays one file over another, as `-f a -f b` does in Compose: mappings merge, single values are replaced, lists
//! grow, and lists whose items have an identity (ports, mounts) replace the item that has it already.

use std::rc::Rc;

use crate::diagnostic::{Problem, Report};
use crate::service::{ports, volumes};
use crate::yaml::{Entry, Mapping, MergeTag, Node, Style, Value};

/// How two values of one key become one.
enum Rule {
    /// By their kind: mappings deeply, lists appended, single values replaced.
    Kind,
    Replace,
    /// `KEY=value` lists and mappings, as one mapping.
    Pairs,
    /// Lists of names and mappings by name, as one mapping.
    Names,
    /// Lists in which a key identifies an item.
    Keyed(fn(&Node) -> Option<String>),
    /// A single value is a list of one.
    Many,
    /// Deeply if both are mappings of one driver, replaced otherwise.
    Driver,
}

fn rule(path: &[&str]) -> Rule {
    match path {
        ["services", _, "command" | "entrypoint" | "build"]
        | ["services", _, "healthcheck", "test"]
        | ["services", _, "ulimits", _] => Rule::Replace,
        ["services", _, "environment" | "labels" | "annotations" | "sysctls" | "storage_opt"]
        | ["services", _, "deploy", "labels"]
        | ["networks" | "volumes" | "configs" | "secrets", _, "labels"] => Rule::Pairs,
        ["services", _, "depends_on" | "networks"] => Rule::Names,
        ["services", _, "ports"] => Rule::Keyed(ports::identity),
        ["services", _, "volumes"] => Rule::Keyed(volumes::identity),
        ["services", _, "devices"] => Rule::Keyed(device),
        ["services", _, "configs" | "secrets"] => Rule::Keyed(file_mount),
        ["services", _, "env_file" | "label_file" | "dns" | "dns_opt" | "dns_search" | "tmpfs"] => {
            Rule::Many
        }
        ["services", _, "logging"] => Rule::Driver,
        _ => Rule::Kind,
    }
}

/// All files as one tree.
pub(crate) fn all(report: &mut Report, files: Vec<Rc<Node>>) -> Option<Rc<Node>> {
    let mut files = files.into_iter();
    let base = settle(&files.next()?);
    Some(files.fold(base, |base, over| settle(&merge(report, &mut Vec::new(), &base, &over))))
}

/// Leaves out what `!reset` takes away. A tree without the tag is returned as it is.
fn settle(node: &Rc<Node>) -> Rc<Node> {
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
                settled.set(Entry { node: inner, ..entry.clone() });
            }
            if !changed {
                return Rc::clone(node);
            }
            Value::Mapping(settled)
        }
        _ => return Rc::clone(node),
    };
    Rc::new(Node::new(node.span, node.tag, value))
}

fn merge<'n>(
    report: &mut Report,
    path: &mut Vec<&'n str>,
    base: &'n Rc<Node>,
    over: &'n Rc<Node>,
) -> Rc<Node> {
    if over.tag == Some(MergeTag::Override) || base.is_null() {
        return Rc::clone(over);
    }
    if over.is_null() {
        return Rc::clone(base);
    }
    match rule(path) {
        Rule::Replace => Rc::clone(over),
        Rule::Kind => by_kind(report, path, base, over),
        Rule::Pairs => named(report, path, base, over, |text| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        }),
        Rule::Names => named(report, path, base, over, |text| (text.to_owned(), None)),
        Rule::Keyed(identity) => keyed(report, base, over, identity),
        Rule::Many => {
            let items = many(base).into_iter().chain(many(over)).collect();
            Rc::new(Node::new(over.span, None, Value::Sequence(items)))
        }
        Rule::Driver => {
            let driver = |node: &Node| {
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
    report: &mut Report,
    path: &mut Vec<&'n str>,
    base: &'n Rc<Node>,
    over: &'n Rc<Node>,
) -> Rc<Node> {
    match (&base.value, &over.value) {
        (Value::Scalar(_), Value::Scalar(_)) => Rc::clone(over),
        (Value::Mapping(below), Value::Mapping(above)) => {
            let merged = mappings(report, path, below, above);
            Rc::new(Node::new(over.span, over.tag, Value::Mapping(merged)))
        }
        (Value::Sequence(below), Value::Sequence(above)) => {
            let items = below.iter().chain(above).cloned().collect();
            Rc::new(Node::new(over.span, over.tag, Value::Sequence(items)))
        }
        _ => {
            mismatch(report, base, over);
            Rc::clone(base)
        }
    }
}

fn mappings<'n>(
    report: &mut Report,
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
        merged.set(Entry { node, ..entry.clone() });
    }
    merged
}

/// Both sides as mappings, so that a name given twice is one entry.
fn named<'n>(
    report: &mut Report,
    path: &mut Vec<&'n str>,
    base: &'n Rc<Node>,
    over: &'n Rc<Node>,
    split: fn(&str) -> (String, Option<String>),
) -> Rc<Node> {
    let as_mapping = |node: &Node| -> Option<Mapping> {
        match &node.value {
            Value::Mapping(mapping) => Some(mapping.clone()),
            Value::Sequence(items) => {
                let entry = |item: &Rc<Node>| {
                    let (key, value) = split(&item.as_scalar()?.text);
                    let (text, style) = match value {
                        Some(value) => (value, Style::Text),
                        None => (String::new(), Style::Plain),
                    };
                    let node = Rc::new(Node::scalar(item.span, text, style));
                    Some(Entry { key, key_span: item.span, node })
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
        merged.set(Entry { node, ..entry.clone() });
    }
    Rc::new(Node::new(over.span, over.tag, Value::Mapping(merged)))
}

/// Below here no rule but the kind applies.
fn merge_inner(report: &mut Report, base: &Rc<Node>, over: &Rc<Node>) -> Rc<Node> {
    merge(report, &mut vec![""], base, over)
}

fn keyed(
    report: &mut Report,
    base: &Rc<Node>,
    over: &Rc<Node>,
    identity: fn(&Node) -> Option<String>,
) -> Rc<Node> {
    let (Value::Sequence(below), Value::Sequence(above)) = (&base.value, &over.value) else {
        mismatch(report, base, over);
        return Rc::clone(base);
    };
    let replaced: std::collections::BTreeSet<String> =
        above.iter().filter_map(|item| identity(item)).collect();
    let kept = below.iter().filter(|item| identity(item).is_none_or(|id| !replaced.contains(&id)));
    let items = kept.chain(above).cloned().collect();
    Rc::new(Node::new(over.span, over.tag, Value::Sequence(items)))
}

fn many(node: &Rc<Node>) -> Vec<Rc<Node>> {
    match &node.value {
        Value::Sequence(items) => items.clone(),
        _ => vec![Rc::clone(node)],
    }
}

fn mismatch(report: &mut Report, base: &Node, over: &Node) {
    let message =
        format!("{} cannot be merged with {} of an earlier file", over.kind(), base.kind());
    let problem = Problem::new(over.span, message).also(base.span, "this", "the earlier value");
    report.push(problem.hint("`!override` replaces the earlier value whole"));
}

/// `/dev/a:/dev/b:rwm` is the device `/dev/b` in the container.
fn device(node: &Node) -> Option<String> {
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

fn file_mount(node: &Node) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) => Some(scalar.text.clone()),
        Value::Mapping(mapping) => {
            let entry = mapping.get("target").or_else(|| mapping.get("source"))?;
            Some(entry.node.as_scalar()?.text.clone())
        }
        Value::Sequence(_) => None,
    }
}
