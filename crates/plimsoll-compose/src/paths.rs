//! Paths as files write them: joined without asking a disk, and made relative to the project when the file that writes them
//! is in another directory.

use std::rc::Rc;

use crate::yaml::{Mapping, Scalar, Value, YamlEntry, YamlNode};

/// A path below a directory, `.` and `..` taken out. An absolute path, or one of a home, stays.
pub(crate) fn join(directory: &str, path: &str) -> String {
    if path.starts_with(['/', '~']) {
        return path.to_owned();
    }
    let is_absolute = directory.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (is_absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// The directory a file is in; empty for the project's own.
pub(crate) fn directory_of(path: &str) -> String {
    match path.rsplit_once('/') {
        Some(("", _)) => "/".to_owned(),
        Some((directory, _)) => join(directory, ""),
        None => String::new(),
    }
}

/// Whether it is an address that Compose would fetch.
pub(crate) fn is_remote(path: &str) -> bool {
    let is_repository = [".git", ".git#", ".git:"].iter().any(|mark| {
        path.find(mark).is_some_and(|at| *mark != ".git" || at + mark.len() == path.len())
    });
    path.contains("://")
        || path.starts_with("git@")
        || path.starts_with("github.com/")
        || is_repository
}

/// A way through a tree.
#[derive(Clone, Copy)]
enum Step {
    Key(&'static str),
    /// The value of every key.
    Each,
    /// Every item of a list; a value that is no list is its own only item.
    Items,
}

use Step::{Each, Items, Key};

/// Where files name paths that are relative to themselves.
const PATHS: &[&[Step]] = &[
    &[Key("include"), Items],
    &[Key("include"), Items, Key("path"), Items],
    &[Key("include"), Items, Key("project_directory")],
    &[Key("include"), Items, Key("env_file"), Items],
    &[Key("services"), Each, Key("extends"), Key("file")],
    &[Key("services"), Each, Key("env_file"), Items],
    &[Key("services"), Each, Key("env_file"), Items, Key("path")],
    &[Key("services"), Each, Key("label_file"), Items],
    &[Key("configs"), Each, Key("file")],
    &[Key("secrets"), Each, Key("file")],
];

/// The mounts of services, in their short or their long form.
const MOUNTS: &[Step] = &[Key("services"), Each, Key("volumes"), Items];

/// A file's tree with its paths relative to the project, where the file's own are relative to the directory.
pub(crate) fn rebase(root: &Rc<YamlNode>, directory: &str) -> Rc<YamlNode> {
    if directory.is_empty() || directory == "." {
        return Rc::clone(root);
    }
    let moved = PATHS.iter().fold(Rc::clone(root), |root, path| {
        edit(&root, path, &|node| text(node, |path| join(directory, path)))
    });
    edit(&moved, MOUNTS, &|node| mount(node, directory))
}

fn edit(
    node: &Rc<YamlNode>,
    steps: &[Step],
    change: &dyn Fn(&Rc<YamlNode>) -> Rc<YamlNode>,
) -> Rc<YamlNode> {
    let Some((step, rest)) = steps.split_first() else { return change(node) };
    match (step, &node.value) {
        (Key(key), Value::Mapping(mapping)) => {
            let Some(entry) = mapping.get(key) else { return Rc::clone(node) };
            let mut edited = mapping.clone();
            edited.set(YamlEntry { node: edit(&entry.node, rest, change), ..entry.clone() });
            rebuilt(node, edited)
        }
        (Each, Value::Mapping(mapping)) => {
            let entry = |entry: &YamlEntry| YamlEntry {
                node: edit(&entry.node, rest, change),
                ..entry.clone()
            };
            rebuilt(node, mapping.entries().iter().map(entry).collect())
        }
        (Items, Value::Sequence(items)) => {
            let items = items.iter().map(|item| edit(item, rest, change)).collect();
            Rc::new(YamlNode::new(node.span, node.tag, Value::Sequence(items)))
        }
        (Items, _) => edit(node, rest, change),
        _ => Rc::clone(node),
    }
}

fn rebuilt(node: &YamlNode, mapping: Mapping) -> Rc<YamlNode> {
    Rc::new(YamlNode::new(node.span, node.tag, Value::Mapping(mapping)))
}

/// A single value as another; anything else stays.
fn text(node: &Rc<YamlNode>, change: impl Fn(&str) -> String) -> Rc<YamlNode> {
    match node.as_scalar() {
        Some(scalar) if !is_remote(&scalar.text) => {
            let changed = Scalar { text: change(&scalar.text), style: scalar.style };
            Rc::new(YamlNode::new(node.span, node.tag, Value::Scalar(changed)))
        }
        _ => Rc::clone(node),
    }
}

/// A mount of a directory beside the file. What begins with no dot is a volume.
fn mount(node: &Rc<YamlNode>, directory: &str) -> Rc<YamlNode> {
    let beside = |path: &str| {
        let joined = join(directory, path);
        if joined.starts_with(['/', '.']) { joined } else { format!("./{joined}") }
    };
    let Value::Mapping(mapping) = &node.value else {
        return text(node, |written| match written.split_once(':') {
            Some((source, rest)) if source.starts_with('.') => {
                format!("{}:{rest}", beside(source))
            }
            _ => written.to_owned(),
        });
    };
    let is_bind = mapping
        .get("type")
        .is_some_and(|entry| entry.node.as_scalar().is_some_and(|scalar| scalar.text == "bind"));
    if !is_bind {
        return Rc::clone(node);
    }
    edit(node, &[Key("source")], &|source| text(source, beside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_without_dots() {
        for (directory, path, joined) in [
            ("", "a.env", "a.env"),
            ("", "./a.env", "a.env"),
            ("app", "./a.env", "app/a.env"),
            ("app", "../a.env", "a.env"),
            ("app", "../../a.env", "../a.env"),
            ("..", "a.env", "../a.env"),
            ("/srv/app", "../a.env", "/srv/a.env"),
            ("/", "../../a.env", "/a.env"),
            ("app", "/etc/a.env", "/etc/a.env"),
            ("app", "~/a.env", "~/a.env"),
            ("app", "..", "."),
        ] {
            assert_eq!(join(directory, path), joined, "{path} below {directory:?}");
        }
    }

    #[test]
    fn addresses_are_told_from_paths() {
        for address in [
            "https://example.org/compose.yaml",
            "git@example.org:team/app.git",
            "oci://example.org/app:1",
            "github.com/team/app",
            "https://example.org/app.git#main:deploy",
        ] {
            assert!(is_remote(address), "{address}");
        }
        for path in
            ["compose.yaml", "../app/compose.yaml", "/srv/git/compose.yaml", "app.github.yaml"]
        {
            assert!(!is_remote(path), "{path}");
        }
    }
}
