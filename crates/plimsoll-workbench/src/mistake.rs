//! What is wrong with a case or scenario file, shown at its place as the compose reader does with compose files.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_saphyr::Location;

use crate::error::Error;

/// A longer line is data, and would bury the message.
const MAX_SHOWN_LINE: usize = 2_000;

/// A file as it was read.
#[derive(Debug, Clone)]
pub struct InputText {
    pub name: String,
    pub text: String,
}

/// A mistake in it, and what to do about it.
#[derive(Debug)]
pub struct Mistake {
    pub at: Option<Location>,
    pub message: String,
    pub hint: Option<String>,
}

/// A mistake and the file it is in.
#[derive(Debug)]
pub struct LocatedMistake {
    pub input: InputText,
    pub mistake: Mistake,
}

impl Mistake {
    pub fn new(at: Location, message: impl Into<String>) -> Self {
        Self { at: Some(at), message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As a refusal of the file it is in.
    pub(crate) fn on(self, input: &InputText) -> Error {
        Error::Mistake(Box::new(LocatedMistake { input: input.clone(), mistake: self }))
    }
}

impl LocatedMistake {
    /// The message, the line it is about, and the hint.
    pub fn render(&self, styled: bool) -> String {
        render(&self.input, &self.mistake, styled)
    }
}

fn render(input: &InputText, mistake: &Mistake, styled: bool) -> String {
    let group = Group::with_title(Level::ERROR.primary_title(&mistake.message));
    let shown = mistake.at.and_then(|at| excerpt(input, at));
    let group = match &shown {
        None => group.element(Origin::path(&input.name)),
        Some(Excerpt { line, number, .. }) if line.len() > MAX_SHOWN_LINE => {
            group.element(Origin::path(&input.name).line(*number))
        }
        Some(Excerpt { line, number, from, to }) => {
            let annotation = AnnotationKind::Primary.span(*from..*to);
            let snippet = Snippet::source(*line).path(&input.name).line_start(*number);
            group.element(snippet.annotation(annotation))
        }
    };
    let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
    let mut text = renderer.render(&[group]);
    if let Some(hint) = &mistake.hint {
        text.push_str("\nhint: ");
        text.push_str(hint);
    }
    text.push('\n');
    text
}

/// One line and the bytes of it to underline.
struct Excerpt<'p> {
    line: &'p str,
    number: usize,
    from: usize,
    to: usize,
}

fn excerpt(input: &InputText, at: Location) -> Option<Excerpt<'_>> {
    let number = usize::try_from(at.line()).ok()?;
    let line = input.text.lines().nth(number.checked_sub(1)?)?;
    let column = usize::try_from(at.column()).ok()?.saturating_sub(1);
    let byte_of = |chars: usize| line.char_indices().nth(chars).map_or(line.len(), |(at, _)| at);
    let length = usize::try_from(at.span().len()).ok()?.max(1);
    let (from, to) = (byte_of(column), byte_of(column.saturating_add(length)));
    Some(Excerpt { line, number, from, to })
}
