//! What a person got wrong where YAML cannot be read: the parser says what it expected, which is seldom what to look at.

use crate::diagnostic::{Finding, SourceSpan};
use crate::fields::nearest;

/// The mistake behind what the parser found at a byte of the text.
pub(super) fn explain(file: u32, text: &str, at: usize, found: &str) -> Finding {
    // The parser stops behind the end of a file that ends too soon; the last line is what to look at.
    let at = if at >= text.len() { text.trim_end().len() } else { at };
    let span = |from: usize, to: usize| SourceSpan::new(file, &(from..to));
    if let Some(tab) = indenting_tab(text, at) {
        let problem = Finding::new(span(tab, tab + 1), "a tab indents this line");
        return problem.hint("YAML takes spaces only: replace the tab");
    }
    if found.contains("unknown anchor")
        && let Some((from, name)) = alias_at(text, at)
    {
        let known = anchors(text);
        let message = format!("`*{name}` names no anchor above it");
        let problem = Finding::new(span(from, from + 1 + name.len()), message);
        return match nearest(name, known.iter().map(|(_, name)| *name)) {
            Some(near) if known.iter().any(|(place, known)| *known == near && *place > from) => {
                problem
                    .hint(format!("`&{near}` stands further down: anchors come before their use"))
            }
            Some(near) => problem.hint(format!("did you mean `*{near}`?")),
            None => problem.hint(format!("mark what is meant with `&{name}`, above this line")),
        };
    }
    let is_quote = found.contains("unclosed quote") || found.contains("quoted scalar");
    if is_quote && let Some(quote) = open_quote(text, at) {
        let problem = Finding::new(span(quote, quote + 1), "this quote is never closed");
        return problem.hint("close it on the same line");
    }
    Finding::new(span(at, at + 1), format!("malformed YAML: {found}"))
}

/// A tab among the blanks that begin the line of `at`, or the one after it.
fn indenting_tab(text: &str, at: usize) -> Option<usize> {
    let at = floor(text, at);
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let lines = text[start..].split_inclusive('\n').take(2);
    let mut from = start;
    for line in lines {
        let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line[..blanks].find('\t').filter(|_| !line.trim().is_empty()) {
            return Some(from + tab);
        }
        from += line.len();
    }
    None
}

fn alias_at(text: &str, at: usize) -> Option<(usize, &str)> {
    let at = floor(text, at);
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let is_here = text[at..].starts_with('*');
    let from = if is_here { at } else { line + text[line..at].rfind('*')? };
    Some((from, name_at(&text[from + 1..])))
}

/// Every anchor and where it stands.
fn anchors(text: &str) -> Vec<(usize, &str)> {
    let marks = text
        .match_indices('&')
        .filter(|(at, _)| *at == 0 || text[..*at].ends_with([' ', '\t', '\n', '[', ',', '{']));
    let named = marks.map(|(at, _)| (at, name_at(&text[at + 1..])));
    named.filter(|(_, name)| !name.is_empty()).take(1_000).collect()
}

fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| c.is_whitespace() || ",[]{}:".contains(c));
    &text[..end.unwrap_or(text.len())]
}

/// The quote that opens a value before `at` and is not closed on its line: the last such, since one that was left open
/// swallows the lines below it up to the next quote.
fn open_quote(text: &str, at: usize) -> Option<usize> {
    let at = floor(text, at);
    let mut from = 0;
    let mut found = None;
    for line in text.split_inclusive('\n') {
        if from > at {
            break;
        }
        if let Some(open) = left_open(line) {
            // The first that is left open is the culprit: those after it may be inside of it.
            found = found.or(Some(from + open));
        }
        from += line.len();
    }
    found
}

/// Where a quote opens on the line that the line does not close.
fn left_open(line: &str) -> Option<usize> {
    let mut open: Option<(usize, char)> = None;
    let mut before = ' ';
    let mut is_escaped = false;
    for (at, c) in line.char_indices() {
        match open {
            Some((_, '"')) if is_escaped => is_escaped = false,
            Some((_, '"')) if c == '\\' => is_escaped = true,
            Some((_, quote)) if c == quote => open = None,
            None if c == '#' && before.is_whitespace() => break,
            None if matches!(c, '"' | '\'') && " \t[{,".contains(before) => open = Some((at, c)),
            Some(_) | None => {}
        }
        before = c;
    }
    open.map(|(at, _)| at)
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
