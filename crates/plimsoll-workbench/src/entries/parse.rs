//! Text to entries, and the reader's errors in our words.

use plimsoll_api::suggest;
use serde::de::DeserializeOwned;
use serde_saphyr::Error;

use crate::mistake::Mistake;

/// What is read: hints speak of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileKind {
    /// `case`.
    pub(crate) word: &'static str,
    /// The keys it cannot do without.
    pub(crate) least: &'static str,
    /// Where all its words are.
    pub(crate) reference: &'static str,
}

pub(crate) fn parse<T: DeserializeOwned>(text: &str, kind: FileKind) -> Result<T, Mistake> {
    // Without this, nothing at all would read as a mapping that lacks its first key.
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        let hint = Some(format!("a {} has at least {}", kind.word, kind.least));
        return Err(Mistake { at: None, message: "the file is empty".to_owned(), hint });
    }
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| mistake(&error, kind))
}

fn mistake(error: &Error, kind: FileKind) -> Mistake {
    let (message, hint) = match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => {
            let known: Vec<&str> = expected.clone();
            (format!("unknown key `{field}`"), Some(unknown_key(field, &known)))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let known: Vec<&str> = expected.clone();
            (format!("unknown word `{variant}`"), Some(format!("write {}", suggest::or(&known))))
        }
        Error::SerdeMissingField { field, .. } => {
            let hint = format!("a full example is in {}", kind.reference);
            (format!("`{field}` is missing"), Some(hint))
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("the key");
            (format!("`{key}` is there twice"), Some("keep one of the two".to_owned()))
        }
        Error::MultipleDocuments { .. } => {
            let hint = format!("a {} is one document: remove what follows `---`", kind.word);
            ("the file holds more than one document".to_owned(), Some(hint))
        }
        Error::NullIntoString { .. } => ("a value is missing".to_owned(), None),
        Error::Unexpected { expected, .. } => (expected_words(expected), None),
        other => (plain(&other.to_string()), None),
    };
    Mistake { at: error.location(), message, hint }
}

fn unknown_key(field: &str, known: &[&str]) -> String {
    let near = suggest::nearest(field, known.iter().copied());
    match near.first() {
        Some(_) => format!("did you mean {}?", suggest::or(&near)),
        None => format!("the keys here are {}", known.join(", ")),
    }
}

/// The reader names events; people know lists and mappings.
fn expected_words(expected: &str) -> String {
    let wanted = match expected {
        "sequence start" => "a list",
        "mapping start" => "a mapping (`key: value`)",
        "string scalar" => "a single value",
        other => other,
    };
    format!("expected {wanted} here")
}

/// Without the place, which is shown beside it, and without what the reader calls the thing it found there.
fn plain(message: &str) -> String {
    let message = message.rfind(" at line ").map_or(message, |at| &message[..at]);
    match message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected ")) {
        Some((_, wanted)) => format!("expected {wanted} here"),
        None => message.to_owned(),
    }
}
