//! Text to tree: resolves anchors, aliases and merge keys, and refuses what a compose file cannot mean.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Tag};

use super::{
    MAX_DEPTH, MAX_EXPANDED, MAX_FILE_BYTES, Mapping, MergeTag, Scalar, Style, Value, YamlEntry,
    YamlNode, mistakes, too_large,
};
use crate::diagnostic::{Finding, Findings, SourceSpan};

/// Reads one file. What is wrong with it is in the report; without a tree there is nothing more to check. A file is `given` by
/// the command line, or named by another file.
pub(crate) fn parse(
    report: &mut Findings,
    name: &str,
    bytes: &[u8],
    given: bool,
) -> Option<Rc<YamlNode>> {
    if bytes.len() > MAX_FILE_BYTES {
        report.refuse_file(
            name,
            format!("the file has {} bytes; at most {MAX_FILE_BYTES} are read", bytes.len()),
            "a compose file is a few kilobytes: is this the right file?",
        );
        return None;
    }
    let file = add_text(report, name, bytes, given)?;
    // The builder writes into the report while the parser reads the text, hence the copy.
    let text = report.text(file).to_owned();
    let root = TreeBuilder::new(report, file).run(&text);
    match root {
        Ok(Some(root)) if root.is_null() => empty(report, name),
        Ok(None) => empty(report, name),
        Ok(Some(root)) if root.as_mapping().is_none() => {
            let message = format!("a compose file is a mapping, found {}", root.kind());
            report.push(Finding::new(root.span, message).hint("begin with `services:`"));
            None
        }
        Ok(root) => root,
        Err(Unreadable) => None,
    }
}

fn empty(report: &mut Findings, name: &str) -> Option<Rc<YamlNode>> {
    report.refuse_file(name, "the file is empty", "a compose file has at least `services:`");
    None
}

/// Checks the encoding and makes the text known to the report.
fn add_text(report: &mut Findings, name: &str, bytes: &[u8], given: bool) -> Option<u32> {
    let mut add = |text: String| {
        if given { report.add_given_file(name, text) } else { report.add_file(name, text) }
    };
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(add(text.to_owned())),
        Err(error) => {
            let at = error.valid_up_to();
            let file = add(String::from_utf8_lossy(bytes).into_owned());
            let span = SourceSpan::new(file, &(at..at + '\u{FFFD}'.len_utf8()));
            let message = format!("byte {at} is 0x{:02x}, which is not UTF-8", bytes[at]);
            report.push(Finding::new(span, message).hint("save the file as UTF-8"));
            None
        }
    }
}

/// The file cannot be read further; the report says why.
struct Unreadable;

struct TreeBuilder<'r> {
    report: &'r mut Findings,
    file: u32,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Rc<YamlNode>>,
    root: Option<Rc<YamlNode>>,
    documents: usize,
    /// Where the tag of the current event stands.
    tag_span: Option<Range<usize>>,
    /// The expanded size of everything read so far.
    spent: u64,
}

/// A collection whose end has not been read.
struct Open {
    span: SourceSpan,
    anchor: usize,
    tag: Option<MergeTag>,
    content: OpenContent,
}

enum OpenContent {
    Sequence(Vec<Rc<YamlNode>>),
    Mapping { entries: Vec<(Key, Rc<YamlNode>)>, key: Option<Key> },
}

struct Key {
    text: String,
    span: SourceSpan,
    is_merge: bool,
}

impl<'r> TreeBuilder<'r> {
    fn new(report: &'r mut Findings, file: u32) -> Self {
        let (open, anchors) = (Vec::new(), BTreeMap::new());
        Self { report, file, open, anchors, root: None, documents: 0, tag_span: None, spent: 0 }
    }

    fn run(mut self, text: &str) -> Result<Option<Rc<YamlNode>>, Unreadable> {
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        for event in Parser::new_from_str_with_options(text, options) {
            match event {
                Ok((event, span)) => {
                    self.tag_span = span.tag_span().and_then(|tag| tag.byte_range());
                    let range = span.byte_range().unwrap_or_default();
                    self.event(event, &range)?;
                }
                Err(error) => return Err(self.malformed(&error, text)),
            }
        }
        Ok(self.root)
    }

    fn event(&mut self, event: Event<'_>, range: &Range<usize>) -> Result<(), Unreadable> {
        let span = SourceSpan::new(self.file, range);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let problem = Finding::new(span, "a second document begins here");
                    return Err(self.stop(problem.hint("give each document its own file and `-f`")));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let (tag, is_string) = self.tag(tag.as_deref(), span);
                let style = match style {
                    ScalarStyle::Plain if !is_string => Style::Plain,
                    _ => Style::Text,
                };
                let value = Value::Scalar(Scalar { text: text.into_owned(), style });
                self.node(Rc::new(YamlNode::new(span, tag, value)), anchor, span)?;
            }
            Event::Alias(anchor) => self.alias(anchor, span)?,
            Event::SequenceStart(_, anchor, tag) => {
                self.start(span, anchor, tag.as_deref(), OpenContent::Sequence(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                let content = OpenContent::Mapping { entries: Vec::new(), key: None };
                self.start(span, anchor, tag.as_deref(), content)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span)?,
            _ => {}
        }
        Ok(())
    }

    fn start(
        &mut self,
        span: SourceSpan,
        anchor: usize,
        tag: Option<&Tag>,
        content: OpenContent,
    ) -> Result<(), Unreadable> {
        if self.open.len() == MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        let (tag, _) = self.tag(tag, span);
        self.spend(1, span)?;
        self.open.push(Open { span, anchor, tag, content });
        Ok(())
    }

    fn end(&mut self, end: SourceSpan) -> Result<(), Unreadable> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.content {
            OpenContent::Sequence(items) => Value::Sequence(items),
            OpenContent::Mapping { entries, .. } => Value::Mapping(self.mapping(entries)),
        };
        let span = open.span.to(end);
        self.place(Rc::new(YamlNode::new(span, open.tag, value)), open.anchor, span)
    }

    fn alias(&mut self, anchor: usize, span: SourceSpan) -> Result<(), Unreadable> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(self.stop(Finding::new(span, "an anchor cannot contain itself")));
        };
        if self.open.len() + node.height > MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        self.node(node, 0, span)
    }

    fn node(
        &mut self,
        node: Rc<YamlNode>,
        anchor: usize,
        span: SourceSpan,
    ) -> Result<(), Unreadable> {
        self.spend(node.weight, span)?;
        self.place(node, anchor, span)
    }

    /// Puts a finished node where it belongs: the root, an item, a key or a value.
    fn place(
        &mut self,
        node: Rc<YamlNode>,
        anchor: usize,
        span: SourceSpan,
    ) -> Result<(), Unreadable> {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(OpenContent::Sequence(items)) => items.push(node),
            Some(OpenContent::Mapping { entries, key }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => match &node.value {
                    Value::Scalar(scalar) => {
                        let is_merge = scalar.text == "<<" && scalar.style == Style::Plain;
                        *key = Some(Key { text: scalar.text.clone(), span, is_merge });
                    }
                    _ => return Err(self.stop(Finding::new(span, "a key must be a single value"))),
                },
            },
        }
        Ok(())
    }

    /// Merge keys come last, so that what the mapping says itself wins whatever the order.
    fn mapping(&mut self, entries: Vec<(Key, Rc<YamlNode>)>) -> Mapping {
        let mut mapping = Mapping::default();
        let mut merges: Vec<(Key, Rc<YamlNode>)> = Vec::new();
        for (key, node) in entries {
            if key.is_merge {
                merges.push((key, node));
                continue;
            }
            let entry = YamlEntry { key: key.text, key_span: key.span, node };
            let (name, at) = (entry.key.clone(), entry.key_span);
            if let Err(earlier) = mapping.add(entry) {
                let problem = Finding::new(at, format!("the key `{name}` is set twice"));
                self.report.push(problem.also(earlier.key_span, "again here", "first here"));
            }
        }
        if let [first, second, ..] = merges.as_slice() {
            let problem = Finding::new(second.0.span, "the key `<<` is set twice")
                .also(first.0.span, "again here", "first here")
                .hint("merge several mappings with `<<: [*a, *b]`");
            self.report.push(problem);
        }
        for (key, node) in merges {
            let sources = match &node.value {
                Value::Sequence(items) => items.clone(),
                _ => vec![Rc::clone(&node)],
            };
            for source in sources {
                let Value::Mapping(below) = &source.value else {
                    let message = format!("`<<` merges mappings, found {}", source.kind());
                    self.report.error(key.span, message);
                    continue;
                };
                for entry in below.entries() {
                    // An earlier source wins over a later one, as YAML says.
                    let _ = mapping.add(entry.clone());
                }
            }
        }
        mapping
    }

    /// What a tag asks for, and whether it makes a scalar text.
    fn tag(&mut self, tag: Option<&Tag>, span: SourceSpan) -> (Option<MergeTag>, bool) {
        let Some(tag) = tag else { return (None, false) };
        match (tag.core_suffix(), tag.original().as_str()) {
            (Some("str"), _) | (_, "!") => (None, true),
            // A merge key may say that it is one.
            (Some(_), _) | (_, "!!merge") => (None, false),
            (_, "!reset") => (Some(MergeTag::Reset), false),
            (_, "!override") => (Some(MergeTag::Override), false),
            (_, other) => {
                let span =
                    self.tag_span.as_ref().map_or(span, |tag| SourceSpan::new(self.file, tag));
                let problem = Finding::new(span, format!("the tag `{other}` has no meaning here"));
                self.report.push(problem.hint("compose files support `!reset` and `!override`"));
                (None, false)
            }
        }
    }

    fn spend(&mut self, weight: u64, span: SourceSpan) -> Result<(), Unreadable> {
        self.spent = self.spent.saturating_add(weight);
        if self.spent <= MAX_EXPANDED {
            return Ok(());
        }
        let hint = "anchors that contain aliases of anchors multiply; write out what is needed";
        Err(self.stop(Finding::new(span, too_large()).hint(hint)))
    }

    fn too_deep(&mut self, span: SourceSpan) -> Unreadable {
        let message = format!("this is nested deeper than {MAX_DEPTH} levels");
        self.stop(Finding::new(span, message))
    }

    fn malformed(&mut self, error: &ScanError, text: &str) -> Unreadable {
        let at = error.marker().byte_offset().unwrap_or(text.len());
        let problem = mistakes::explain(self.file, text, at, &error.info());
        self.stop(problem)
    }

    fn stop(&mut self, problem: Finding) -> Unreadable {
        self.report.push(problem);
        Unreadable
    }
}
