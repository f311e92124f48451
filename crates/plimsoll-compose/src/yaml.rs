//! YAML as a tree that knows where each part stands. Scalars keep their text as written (`1.10` stays `1.10`);
//! what they mean is decided by the field that reads them. Aliases share their anchor's node, so a file that
//! multiplies itself costs nothing to hold, and is refused by its expanded size.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::diagnostic::{Findings, SourceSpan};

mod mistakes;
mod parse;

pub(crate) use parse::parse;

/// Larger files are refused unread. The largest compose files in use are a hundredth of it.
pub(crate) const MAX_FILE_BYTES: usize = 8 << 20;

/// Compose needs 10. Every walk of the tree is recursive, so this bounds the stack.
pub(crate) const MAX_DEPTH: usize = 64;

/// The size of the tree with every alias written out: one for each node, one more for every 64 bytes of text.
/// Every walk of the tree costs at most this.
pub(crate) const MAX_EXPANDED: u64 = 256 * 1024;

#[derive(Debug)]
pub(crate) struct YamlNode {
    pub(crate) span: SourceSpan,
    pub(crate) tag: Option<MergeTag>,
    pub(crate) value: Value,
    weight: u64,
    height: usize,
}

#[derive(Debug)]
pub(crate) enum Value {
    Scalar(Scalar),
    Sequence(Vec<Rc<YamlNode>>),
    Mapping(Mapping),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    pub(crate) style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Without quotes: it may be a number, a truth value or null.
    Plain,
    /// Quoted, a block, tagged as a string, or the result of an interpolation: only ever text.
    Text,
}

/// How a value meets the one of an earlier file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergeTag {
    /// `!reset`: the key is as if it had never been set.
    Reset,
    /// `!override`: the value replaces the earlier one whole.
    Override,
}

#[derive(Debug, Clone)]
pub(crate) struct YamlEntry {
    pub(crate) key: String,
    pub(crate) key_span: SourceSpan,
    pub(crate) node: Rc<YamlNode>,
}

/// Entries in the order of the file, each key once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mapping {
    entries: Vec<YamlEntry>,
    by_key: BTreeMap<String, usize>,
}

impl Mapping {
    pub(crate) fn entries(&self) -> &[YamlEntry] {
        &self.entries
    }

    /// The entry of a key, set to null or not.
    pub(crate) fn entry(&self, key: &str) -> Option<&YamlEntry> {
        self.by_key.get(key).map(|index| &self.entries[*index])
    }

    /// The entry of a key that has a value: in a compose file a key without one is a key left out.
    pub(crate) fn get(&self, key: &str) -> Option<&YamlEntry> {
        self.entry(key).filter(|entry| !entry.node.is_null())
    }

    /// Adds an entry, unless its key is taken: then the earlier entry is returned.
    pub(crate) fn add(&mut self, entry: YamlEntry) -> Result<(), &YamlEntry> {
        if let Some(index) = self.by_key.get(&entry.key) {
            return Err(&self.entries[*index]);
        }
        self.by_key.insert(entry.key.clone(), self.entries.len());
        self.entries.push(entry);
        Ok(())
    }

    /// Sets a key, in its old place if it has one.
    pub(crate) fn set(&mut self, entry: YamlEntry) {
        if let Some(index) = self.by_key.get(&entry.key) {
            self.entries[*index] = entry;
            return;
        }
        self.by_key.insert(entry.key.clone(), self.entries.len());
        self.entries.push(entry);
    }
}

impl FromIterator<YamlEntry> for Mapping {
    /// The last entry of a key wins.
    fn from_iter<I: IntoIterator<Item = YamlEntry>>(entries: I) -> Self {
        let mut mapping = Self::default();
        entries.into_iter().for_each(|entry| mapping.set(entry));
        mapping
    }
}

impl YamlNode {
    pub(crate) fn new(span: SourceSpan, tag: Option<MergeTag>, value: Value) -> Self {
        let (weight, height) = match &value {
            Value::Scalar(scalar) => (1 + scalar.text.len() as u64 / 64, 1),
            Value::Sequence(items) => totals(items.iter()),
            Value::Mapping(mapping) => totals(mapping.entries.iter().map(|entry| &entry.node)),
        };
        Self { span, tag, value, weight, height }
    }

    pub(crate) fn scalar(span: SourceSpan, text: String, style: Style) -> Self {
        Self::new(span, None, Value::Scalar(Scalar { text, style }))
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(Scalar { text, style: Style::Plain })
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(crate) fn as_scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) if !self.is_null() => Some(scalar),
            _ => None,
        }
    }

    pub(crate) fn as_mapping(&self) -> Option<&Mapping> {
        match &self.value {
            Value::Mapping(mapping) => Some(mapping),
            _ => None,
        }
    }

    pub(crate) fn as_sequence(&self) -> Option<&[Rc<YamlNode>]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// Whether it says the same, wherever it stands.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Scalar(one), Value::Scalar(other)) => one == other,
            (Value::Sequence(ones), Value::Sequence(others)) => {
                ones.len() == others.len()
                    && ones.iter().zip(others).all(|(one, other)| one.is_like(other))
            }
            (Value::Mapping(ones), Value::Mapping(others)) => {
                let is_in_both = |entry: &YamlEntry| {
                    others.entry(&entry.key).is_some_and(|other| entry.node.is_like(&other.node))
                };
                ones.entries.len() == others.entries.len() && ones.entries.iter().all(is_in_both)
            }
            _ => false,
        }
    }

    /// What it is, for a message that expected something else.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Scalar(_) => "a single value",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }
}

fn totals<'n>(children: impl Iterator<Item = &'n Rc<YamlNode>>) -> (u64, usize) {
    children.fold((1, 1), |(weight, height), child| {
        (weight.saturating_add(child.weight), height.max(child.height + 1))
    })
}

/// Refuses a tree that has grown too large, whether by aliases or by interpolation.
pub(crate) fn within_bounds(report: &mut Findings, root: &YamlNode) -> bool {
    let fits = root.weight <= MAX_EXPANDED;
    if !fits {
        report.error(root.span, too_large());
    }
    fits
}

fn too_large() -> String {
    format!("the file expands to more than {MAX_EXPANDED} nodes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::MAX_CONTENT_BYTES;
    use crate::service::MAX_CARRIED_BYTES;

    #[test]
    fn the_reference_page_quotes_the_bounds() {
        let page = include_str!("../../../docs/reference/compose.md").replace('\n', " ");
        for quote in [
            format!("at most {} MiB and {MAX_DEPTH} levels", MAX_FILE_BYTES >> 20),
            format!("at most {MAX_EXPANDED} nodes"),
            format!("at most {} KiB", MAX_CONTENT_BYTES >> 10),
            format!("at most {} MiB of environment and content", MAX_CARRIED_BYTES >> 20),
        ] {
            assert!(page.contains(&quote), "the page does not say {quote:?}");
        }
    }
}
