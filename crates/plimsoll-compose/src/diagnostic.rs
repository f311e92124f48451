//! What is wrong, where, and what to do about it: a [`Diagnostic`] shows the line it speaks of. The
//! [`Findings`] collects them while a file is read, so that one run names every mistake.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// Beyond these an author is reading noise: the first errors usually explain the rest.
const MAX_ERRORS: usize = 20;
const MAX_WARNINGS: usize = 100;

/// A longer line is not shown: it is data, and would bury the message.
const MAX_SHOWN_LINE: usize = 2_000;

/// A longer message quotes too much of its file.
const MAX_MESSAGE: usize = 600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// One mistake, or one thing plimsoll does differently than the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub file: String,
    /// Counted from 1, as editors do. Zero when the message is about the file as a whole.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Bytes of the file.
    pub span: Range<usize>,
    pub message: String,
    pub hint: Option<String>,
    /// The lines to show; the first is where `line` points.
    shown: Vec<Excerpt>,
}

/// One line of a file with the part to underline.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    file: String,
    line: usize,
    column: usize,
    text: Option<String>,
    underline: Range<usize>,
    label: Option<&'static str>,
}

impl Diagnostic {
    /// The message with its place and the line it speaks of, as rustc shows them.
    pub fn render(&self, styled: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(&self.message));
        if self.shown.is_empty() {
            group = group.element(Origin::path(&self.file));
        }
        for (index, excerpt) in self.shown.iter().enumerate() {
            let Some(text) = &excerpt.text else {
                let origin = Origin::path(&excerpt.file).line(excerpt.line);
                group = group.element(origin.char_column(excerpt.column));
                continue;
            };
            let kind = if index == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let annotation = kind.span(excerpt.underline.clone()).label(excerpt.label);
            let snippet = Snippet::source(text).path(&excerpt.file).line_start(excerpt.line);
            group = group.element(snippet.annotation(annotation));
        }
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let mut text = renderer.render(&[group]);
        if let Some(hint) = &self.hint {
            text.push_str("\nhint: ");
            text.push_str(hint);
        }
        text.push('\n');
        text
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// Everything that keeps a file from being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    pub list: Vec<Diagnostic>,
    /// Errors found beyond those listed.
    pub more: usize,
}

impl Diagnostics {
    pub fn render(&self, styled: bool) -> String {
        let mut text =
            self.list.iter().map(|one| one.render(styled)).collect::<Vec<_>>().join("\n");
        if self.more > 0 {
            text.extend(["\nand ", &self.more.to_string(), " more\n"]);
        }
        text
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// A place in one of the files being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceSpan {
    file: u32,
    start: u32,
    end: u32,
}

impl SourceSpan {
    pub(crate) fn new(file: u32, range: &Range<usize>) -> Self {
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { file, start: offset(range.start), end: offset(range.end.max(range.start)) }
    }

    /// From where this begins to where the other ends.
    pub(crate) fn to(self, end: Self) -> Self {
        Self { end: end.end.max(self.start), ..self }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A message on its way into the report.
#[derive(Debug)]
pub(crate) struct Finding {
    at: SourceSpan,
    message: String,
    hint: Option<String>,
    also: Option<(SourceSpan, &'static str)>,
    label: Option<&'static str>,
}

impl Finding {
    pub(crate) fn new(at: SourceSpan, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: None, also: None, label: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A second place that explains the first.
    pub(crate) fn also(mut self, at: SourceSpan, label: &'static str, other: &'static str) -> Self {
        self.label = Some(label);
        self.also = Some((at, other));
        self
    }
}

struct SourceText {
    name: String,
    text: String,
}

/// The files being read and what was found wrong with them.
pub(crate) struct Findings {
    sources: Vec<SourceText>,
    errors: Vec<Placed>,
    more: usize,
    warnings: Vec<Placed>,
    /// What was said, and where; bounded as the lists are.
    said: BTreeSet<(SourceSpan, String)>,
}

/// A diagnostic and where it belongs in the list: files in order, then their lines.
type Placed = (Option<SourceSpan>, Diagnostic);

impl Findings {
    pub(crate) fn new() -> Self {
        Self {
            sources: Vec::new(),
            errors: Vec::new(),
            more: 0,
            warnings: Vec::new(),
            said: BTreeSet::new(),
        }
    }

    /// Makes a file known, so that messages can show its lines.
    pub(crate) fn add_file(&mut self, name: &str, text: String) -> u32 {
        self.sources.push(SourceText { name: name.to_owned(), text });
        u32::try_from(self.sources.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn text(&self, file: u32) -> &str {
        self.sources.get(file as usize).map_or("", |source| &source.text)
    }

    pub(crate) fn error(&mut self, at: SourceSpan, message: impl Into<String>) {
        self.push(Finding::new(at, message));
    }

    /// Whether an error is new and there is room for it. An anchor used in many places repeats its mistake in
    /// each; asking first saves the cost of a good hint.
    pub(crate) fn wants(&mut self, at: SourceSpan, message: &str) -> bool {
        if self.said.contains(&(at, message.to_owned())) {
            return false;
        }
        let has_room = self.errors.len() < MAX_ERRORS;
        self.more += usize::from(!has_room);
        has_room
    }

    pub(crate) fn push(&mut self, problem: Finding) {
        if self.wants(problem.at, &problem.message) {
            self.said.insert((problem.at, problem.message.clone()));
            let diagnostic = self.diagnostic(Severity::Error, problem);
            self.errors.push(diagnostic);
        }
    }

    pub(crate) fn warn(&mut self, at: SourceSpan, message: impl Into<String>) {
        self.push_warning(Finding::new(at, message));
    }

    pub(crate) fn push_warning(&mut self, problem: Finding) {
        let has_room = self.warnings.len() < MAX_WARNINGS;
        if has_room && self.said.insert((problem.at, problem.message.clone())) {
            let diagnostic = self.diagnostic(Severity::Warning, problem);
            self.warnings.push(diagnostic);
        }
    }

    /// An error about a file as a whole.
    pub(crate) fn refuse_file(&mut self, name: &str, message: impl Into<String>, hint: &str) {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            file: name.to_owned(),
            line: 0,
            column: 0,
            span: 0..0,
            message: message.into(),
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
            shown: Vec::new(),
        };
        self.errors.push((None, diagnostic));
    }

    pub(crate) fn errors(&self) -> usize {
        self.errors.len() + self.more
    }

    /// The part of `span` that reads `fragment`, where it stands in the file as it is.
    pub(crate) fn narrow(&self, span: SourceSpan, fragment: &str) -> SourceSpan {
        let range = span.range();
        let at = self.text(span.file).get(range.clone()).and_then(|text| text.find(fragment));
        match at {
            Some(at) => {
                let start = range.start + at;
                SourceSpan::new(span.file, &(start..start + fragment.len()))
            }
            None => span,
        }
    }

    pub(crate) fn finish(self) -> Result<Vec<Diagnostic>, Diagnostics> {
        let in_order = |mut list: Vec<Placed>| {
            list.sort_by_key(|(at, _)| *at);
            list.into_iter().map(|(_, diagnostic)| diagnostic).collect()
        };
        if self.errors.is_empty() {
            return Ok(in_order(self.warnings));
        }
        Err(Diagnostics { list: in_order(self.errors), more: self.more })
    }

    fn diagnostic(&self, severity: Severity, problem: Finding) -> Placed {
        let at = problem.at;
        let first = self.excerpt(problem.at, problem.label);
        let mut diagnostic = Diagnostic {
            severity,
            file: first.file.clone(),
            line: first.line,
            column: first.column,
            span: problem.at.range(),
            message: shorten(problem.message),
            hint: problem.hint,
            shown: vec![first],
        };
        if let Some((at, label)) = problem.also {
            diagnostic.shown.push(self.excerpt(at, Some(label)));
        }
        (Some(at), diagnostic)
    }

    fn excerpt(&self, at: SourceSpan, label: Option<&'static str>) -> Excerpt {
        let source = &self.sources[at.file as usize];
        let text = source.text.as_str();
        let mut start = (at.start as usize).min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = &text[line_start..];
        let line = &rest[..rest.find(['\n', '\r']).unwrap_or(rest.len())];
        let from = (start - line_start).min(line.len());
        // Only the first line of a block is underlined; an empty span still gets its caret.
        let mut to = (at.end as usize).saturating_sub(line_start).clamp(from, line.len());
        while !line.is_char_boundary(to) {
            to -= 1;
        }
        Excerpt {
            file: source.name.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            text: (line.len() <= MAX_SHOWN_LINE).then(|| line.to_owned()),
            underline: from..line[..to].trim_end().len().max(from),
            label,
        }
    }
}

fn shorten(message: String) -> String {
    if message.chars().count() <= MAX_MESSAGE {
        return message;
    }
    message.chars().take(MAX_MESSAGE).chain("…".chars()).collect()
}
