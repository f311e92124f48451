//! Text to case, and the reader's errors in our words.

use serde_saphyr::Error;

use super::entries::Case;
use crate::near;
use crate::snippet::Mistake;

pub(super) fn parse(text: &str) -> Result<Case, Mistake> {
    // Without this, nothing at all would read as a mapping that lacks its first key.
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        let hint = Some("a case has at least `nodes:` and `deployments:`".to_owned());
        return Err(Mistake { at: None, message: "the file is empty".to_owned(), hint });
    }
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| mistake(&error))
}

fn mistake(error: &Error) -> Mistake {
    let (message, hint) = match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => {
            let known: Vec<&str> = expected.clone();
            (format!("unknown key `{field}`"), Some(unknown_key(field, &known)))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let known: Vec<&str> = expected.clone();
            (format!("unknown word `{variant}`"), Some(format!("write {}", near::or(&known))))
        }
        Error::SerdeMissingField { field, .. } => (
            format!("`{field}` is missing"),
            Some(
                "a full example is in \
                docs/reference/case-format.md"
                    .to_owned(),
            ),
        ),
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("the key");
            (format!("`{key}` is there twice"), Some("keep one of the two".to_owned()))
        }
        Error::MultipleDocuments { .. } => {
            let hint = "a case is one document: remove what follows `---`";
            ("the file holds more than one document".to_owned(), Some(hint.to_owned()))
        }
        Error::NullIntoString { .. } => ("a value is missing".to_owned(), None),
        Error::Unexpected { expected, .. } => (expected_words(expected), None),
        other => (plain(&other.to_string()), None),
    };
    Mistake { at: error.location(), message, hint }
}

fn unknown_key(field: &str, known: &[&str]) -> String {
    let near = near::nearest(field, known.iter().copied());
    match near.first() {
        Some(_) => format!("did you mean {}?", near::or(&near)),
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

/// Without the place, which is shown beside it.
fn plain(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(at) => message[..at].to_owned(),
        None => message.to_owned(),
    }
}
