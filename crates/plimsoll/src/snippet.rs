//! Shows what is wrong with a case file at its place, as the compose reader does with compose files.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_saphyr::Location;

use crate::input::errors_in;
use crate::trouble::Trouble;

/// A longer line is data, and would bury the message.
const MAX_SHOWN_LINE: usize = 2_000;

/// A case file as it was read.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A mistake in it, and what to do about it.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) at: Option<Location>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Mistake {
    pub(crate) fn new(at: Location, message: impl Into<String>) -> Self {
        Self { at: Some(at), message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As a refusal of the page it is on.
    pub(crate) fn on(self, page: &Page) -> Trouble {
        Trouble::rendered(&render(page, &self), &errors_in(1, std::slice::from_ref(&page.name)))
    }
}

fn render(page: &Page, mistake: &Mistake) -> String {
    let group = Group::with_title(Level::ERROR.primary_title(&mistake.message));
    let shown = mistake.at.and_then(|at| excerpt(page, at));
    let group = match &shown {
        None => group.element(Origin::path(&page.name)),
        Some(Excerpt { line, number, .. }) if line.len() > MAX_SHOWN_LINE => {
            group.element(Origin::path(&page.name).line(*number))
        }
        Some(Excerpt { line, number, from, to }) => {
            let annotation = AnnotationKind::Primary.span(*from..*to);
            let snippet = Snippet::source(*line).path(&page.name).line_start(*number);
            group.element(snippet.annotation(annotation))
        }
    };
    let mut text = Renderer::styled().render(&[group]);
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

fn excerpt(page: &Page, at: Location) -> Option<Excerpt<'_>> {
    let number = usize::try_from(at.line()).ok()?;
    let line = page.text.lines().nth(number.checked_sub(1)?)?;
    let column = usize::try_from(at.column()).ok()?.saturating_sub(1);
    let byte_of = |chars: usize| line.char_indices().nth(chars).map_or(line.len(), |(at, _)| at);
    let length = usize::try_from(at.span().len()).ok()?.max(1);
    let (from, to) = (byte_of(column), byte_of(column.saturating_add(length)));
    Some(Excerpt { line, number, from, to })
}
