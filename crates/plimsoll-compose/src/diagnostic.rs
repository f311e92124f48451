//! What is wrong, where, and what to do about it: a [`Diagnostic`] shows the line it speaks of. The
//! [`Findings`] collects them while a file is read, so that one run names every mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// Beyond these an author is reading noise: the first errors usually explain the rest.
const MAX_ERRORS: usize = 20;
const MAX_WARNINGS: usize = 100;

/// What is remembered so as not to be said twice. A warning beyond it is not counted any more.
const MAX_SAID: usize = 10_000;

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
    /// Further places of which the same is said.
    pub others: usize,
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
    /// An error with its place and the line it speaks of, as rustc shows them; a warning in one line.
    pub fn render(&self, styled: bool) -> String {
        if self.severity == Severity::Warning {
            return self.line(styled);
        }
        let mut group = Group::with_title(Level::ERROR.primary_title(&self.message));
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

    /// What is said, the first place it is said of, how many there are, and what to do.
    fn line(&self, styled: bool) -> String {
        let (bold, plain) = if styled { ("\u{1b}[1;33m", "\u{1b}[0m") } else { ("", "") };
        let mut text = format!("{bold}warning{plain}: {} ({}", self.message, self.file);
        if self.line > 0 {
            let _ = write!(text, ":{}:{}", self.line, self.column);
        }
        match self.others {
            0 => {}
            1 => text.push_str(", and once more"),
            others => {
                let _ = write!(text, ", and {others} more");
            }
        }
        text.push(')');
        if let Some(hint) = &self.hint {
            text.extend(["; ", hint]);
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
    /// What its author should know besides.
    pub warnings: Vec<Diagnostic>,
}

impl Diagnostics {
    pub fn render(&self, styled: bool) -> String {
        let mut text =
            self.list.iter().map(|one| one.render(styled)).collect::<Vec<_>>().join("\n");
        if self.more > 0 {
            text.extend(["\nand ", &self.more.to_string(), " more\n"]);
        }
        if !self.warnings.is_empty() {
            text.push('\n');
            text.extend(self.warnings.iter().map(|one| one.render(styled)));
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

    fn is_within(self, other: Self) -> bool {
        self.file == other.file && other.start <= self.start && self.end <= other.end
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
    kind: Option<(WarningKind, String)>,
}

impl Finding {
    pub(crate) fn new(at: SourceSpan, message: impl Into<String>) -> Self {
        let (hint, also, label, kind) = (None, None, None, None);
        Self { at, message: message.into(), hint, also, label, kind }
    }

    /// A warning that names one of perhaps many.
    pub(crate) fn of_kind(at: SourceSpan, kind: WarningKind, subject: impl Into<String>) -> Self {
        Self { kind: Some((kind, subject.into())), ..Self::new(at, String::new()) }
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

/// What a warning says of each of several things, and so says once, naming them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WarningKind {
    /// Variables without a value.
    Unset,
    /// Directories of nodes.
    Bind,
    /// A `$` that begins no variable.
    Dollar,
    /// Who speaks to an engine, and may mean Swarm's.
    EngineSocket,
    /// Services whose labels name routes of Traefik.
    TraefikLabels,
}

impl WarningKind {
    fn message(self, subjects: &[String]) -> String {
        let named = named(subjects);
        match (self, subjects) {
            (Self::Unset, [_]) => format!("the variable {named} is not set; it reads as empty"),
            (Self::Unset, _) => format!("variables that are not set read as empty: {named}"),
            (Self::Bind, [_]) => {
                format!("{named} must exist on every node that may run this service")
            }
            (Self::Bind, _) => {
                format!("these must exist on every node that may run their services: {named}")
            }
            (Self::Dollar, [_]) => format!("`{named}` begins no variable and is read as it stands"),
            (Self::Dollar, _) => {
                format!("these begin no variable and are read as they stand: {named}")
            }
            (Self::EngineSocket, [_]) => {
                format!(
                    "{named} mounts the socket of its node's engine, where Swarm's API does not answer"
                )
            }
            (Self::EngineSocket, _) => {
                format!(
                    "these mount the socket of their node's engine, where Swarm's API does not answer: {named}"
                )
            }
            (Self::TraefikLabels, [_]) => {
                format!("the labels of {named} say routes to Traefik, and nothing to plimsoll")
            }
            (Self::TraefikLabels, _) => {
                format!("labels say routes to Traefik, and nothing to plimsoll: {named}")
            }
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Unset => {
                "set it in the shell or in .env, or write ${NAME:-} where empty is meant"
            }
            Self::Bind => "carry files with `configs:`, keep data in a volume",
            Self::Dollar => "write $$ for a dollar sign",
            Self::EngineSocket => "what asks it for containers sees those of that node only",
            Self::TraefikLabels => {
                "`plimsoll validate --routes-from-labels` prints the routes they mean"
            }
        }
    }
}

/// How many of a kind are named; the rest is counted.
const MAX_NAMED: usize = 8;

fn named(subjects: &[String]) -> String {
    match subjects.split_at_checked(MAX_NAMED) {
        Some((shown, rest)) if !rest.is_empty() => {
            format!("{} and {} more", shown.join(", "), rest.len())
        }
        _ => subjects.join(", "),
    }
}

struct SourceText {
    name: String,
    text: String,
    /// Whether messages show its lines.
    is_shown: bool,
}

/// The files being read and what was found wrong with them.
pub(crate) struct Findings {
    sources: Vec<SourceText>,
    errors: Vec<Placed>,
    more: usize,
    warnings: Vec<Warning>,
    /// What was said, and where; bounded as the lists are.
    said: BTreeSet<(SourceSpan, String)>,
    /// Values that could not be filled in. What is wrong with them was said.
    unfilled: Vec<SourceSpan>,
    /// The variables without a value in each value that has any.
    unset: BTreeMap<SourceSpan, Vec<String>>,
}

/// A warning and all it is said of.
struct Warning {
    first: Finding,
    /// What is named, if the kind names anything.
    subjects: Vec<String>,
    places: usize,
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
            unfilled: Vec::new(),
            unset: BTreeMap::new(),
        }
    }

    /// Makes a file known, so that messages can show its lines. A file that another one names from outside the project may be
    /// anything on the machine of who runs the command: its lines are not for the logs of a build.
    pub(crate) fn add_file(&mut self, name: &str, text: String) -> u32 {
        let is_shown = self.sources.is_empty() || !is_outside(name);
        self.push_file(name, text, is_shown)
    }

    /// The same of a file that the command line names: its lines are shown wherever it is.
    pub(crate) fn add_given_file(&mut self, name: &str, text: String) -> u32 {
        self.push_file(name, text, true)
    }

    fn push_file(&mut self, name: &str, text: String, is_shown: bool) -> u32 {
        self.sources.push(SourceText { name: name.to_owned(), text, is_shown });
        u32::try_from(self.sources.len() - 1).unwrap_or(u32::MAX)
    }

    /// A value that could not be filled in, which was said. Nothing more is said of it.
    pub(crate) fn leave_unfilled(&mut self, span: SourceSpan) {
        self.unfilled.push(span);
    }

    pub(crate) fn is_unfilled(&self, span: SourceSpan) -> bool {
        self.unfilled.iter().any(|unfilled| span.is_within(*unfilled))
    }

    /// Notes that a variable of a value is not set.
    pub(crate) fn note_unset(&mut self, span: SourceSpan, name: &str) {
        self.unset.entry(span).or_default().push(name.to_owned());
    }

    /// A variable in the value that is not set.
    pub(crate) fn unset_in(&self, span: SourceSpan) -> Option<&str> {
        self.unset.get(&span)?.first().map(String::as_str)
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
        if self.said.contains(&(at, message.to_owned())) || self.is_unfilled(at) {
            return false;
        }
        let has_room = self.errors.len() < MAX_ERRORS;
        self.more += usize::from(!has_room);
        has_room
    }

    pub(crate) fn push(&mut self, mut problem: Finding) {
        if self.wants(problem.at, &problem.message) {
            // An empty variable explains a value that makes no sense better than the value does.
            if let Some(name) = self.unset_in(problem.at) {
                let hint = format!(
                    "{name} is not set: set it in the shell or in .env, or write ${{{name}:-default}}"
                );
                problem.hint = Some(hint);
            }
            self.said.insert((problem.at, problem.message.clone()));
            let diagnostic = self.diagnostic(Severity::Error, problem);
            self.errors.push(diagnostic);
        }
    }

    pub(crate) fn warn(&mut self, at: SourceSpan, message: impl Into<String>) {
        self.push_warning(Finding::new(at, message));
    }

    pub(crate) fn push_warning(&mut self, problem: Finding) {
        let (kind, subject) = match &problem.kind {
            Some((kind, subject)) => (Some(*kind), Some(subject.clone())),
            None => (None, None),
        };
        let said = subject.clone().unwrap_or_else(|| problem.message.clone());
        if self.said.len() >= MAX_SAID || !self.said.insert((problem.at, said)) {
            return;
        }
        let same = |warning: &&mut Warning| match (kind, &warning.first.kind) {
            (Some(kind), Some((other, _))) => kind == *other,
            (None, None) => warning.first.message == problem.message,
            _ => false,
        };
        if let Some(warning) = self.warnings.iter_mut().find(same) {
            let is_named = subject.as_ref().is_some_and(|it| warning.subjects.contains(it));
            warning.subjects.extend(subject.filter(|_| !is_named));
            warning.places += 1;
            if problem.at < warning.first.at {
                warning.first = problem;
            }
        } else if self.warnings.len() < MAX_WARNINGS {
            let subjects = subject.into_iter().collect();
            self.warnings.push(Warning { first: problem, subjects, places: 1 });
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
            others: 0,
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

    pub(crate) fn finish(mut self) -> Result<Vec<Diagnostic>, Diagnostics> {
        let in_order = |mut list: Vec<Placed>| {
            list.sort_by_key(|(at, _)| *at);
            list.into_iter().map(|(_, diagnostic)| diagnostic).collect()
        };
        let warnings = std::mem::take(&mut self.warnings);
        let warnings = warnings.into_iter().map(|warning| self.summary(warning)).collect();
        let warnings = in_order(warnings);
        if self.errors.is_empty() {
            return Ok(warnings);
        }
        Err(Diagnostics { list: in_order(self.errors), more: self.more, warnings })
    }

    fn summary(&self, warning: Warning) -> Placed {
        let Warning { mut first, subjects, places } = warning;
        if let Some((kind, _)) = first.kind {
            first.message = kind.message(&subjects);
            first.hint = Some(kind.hint().to_owned());
        }
        let (at, diagnostic) = self.diagnostic(Severity::Warning, first);
        (at, Diagnostic { others: places - 1, ..diagnostic })
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
            others: 0,
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
            text: (source.is_shown && line.len() <= MAX_SHOWN_LINE).then(|| line.to_owned()),
            underline: from..line[..to].trim_end().len().max(from),
            label,
        }
    }
}

/// Whether a path, as a file writes it, leads out of the project's directory.
fn is_outside(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.split('/').any(|part| part == "..")
}

fn shorten(message: String) -> String {
    if message.chars().count() <= MAX_MESSAGE {
        return message;
    }
    message.chars().take(MAX_MESSAGE).chain("…".chars()).collect()
}
