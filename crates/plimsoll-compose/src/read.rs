//! Reads nodes as the kinds of value Compose knows. Each reader reports what it cannot read, at its place, and
//! returns nothing for it, so that one pass finds every mistake.

use std::fmt::Display;
use std::rc::Rc;
use std::str::FromStr;

use crate::diagnostic::{Finding, Findings, SourceSpan};
use crate::yaml::{Mapping, Style, Value, YamlEntry, YamlNode};

/// One `KEY=value` of a mapping or a list. Without a value, its meaning is the field's.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    pub(crate) span: SourceSpan,
}

/// A text and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) span: SourceSpan,
}

fn expected(report: &mut Findings, what: &str, wanted: &str, node: &YamlNode) {
    report.error(node.span, format!("`{what}` must be {wanted}, found {}", node.kind()));
}

/// A single value as its text.
pub(crate) fn text_of(report: &mut Findings, what: &str, node: &YamlNode) -> Option<String> {
    if let Some(scalar) = node.as_scalar() {
        return Some(scalar.text.clone());
    }
    expected(report, what, "a single value", node);
    None
}

pub(crate) fn text(report: &mut Findings, entry: &YamlEntry) -> Option<String> {
    text_of(report, &entry.key, &entry.node)
}

/// A single value that has a type of its own.
pub(crate) fn parse_node<T>(report: &mut Findings, what: &str, node: &YamlNode) -> Option<T>
where
    T: FromStr,
    T::Err: Display,
{
    let text = text_of(report, what, node)?;
    if text.trim_start().starts_with('-') {
        report.error(node.span, format!("`{what}` cannot be negative, found {text}"));
        return None;
    }
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            report.error(node.span, format!("`{what}`: {error}"));
            None
        }
    }
}

pub(crate) fn parse<T>(report: &mut Findings, entry: &YamlEntry) -> Option<T>
where
    T: FromStr,
    T::Err: Display,
{
    parse_node(report, &entry.key, &entry.node)
}

/// A whole number between two others, both allowed.
pub(crate) fn integer<T>(
    report: &mut Findings,
    entry: &YamlEntry,
    least: i64,
    most: i64,
) -> Option<T>
where
    T: TryFrom<i64>,
{
    integer_node(report, &entry.key, &entry.node, least, most)
}

pub(crate) fn integer_node<T: TryFrom<i64>>(
    report: &mut Findings,
    what: &str,
    node: &YamlNode,
    least: i64,
    most: i64,
) -> Option<T> {
    let text = text_of(report, what, node)?;
    let number = text.trim().parse::<i64>().ok().filter(|n| (least..=most).contains(n));
    let value = number.and_then(|number| T::try_from(number).ok());
    if value.is_none() {
        let range = match (least, most) {
            (least, i64::MAX) => format!("{least} or more"),
            (least, most) => format!("between {least} and {most}"),
        };
        report.error(node.span, format!("`{what}` must be a whole number {range}, found {text:?}"));
    }
    value
}

/// `true` and `false`, in the spellings YAML has had for them.
pub(crate) fn boolean(report: &mut Findings, entry: &YamlEntry) -> Option<bool> {
    let text = text(report, entry)?;
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "1" => Some(true),
        "false" | "no" | "off" | "n" | "0" => Some(false),
        _ => {
            let message = format!("`{}` must be true or false, found {text:?}", entry.key);
            report.error(entry.node.span, message);
            None
        }
    }
}

/// One of a few words.
pub(crate) fn word<T: Copy>(
    report: &mut Findings,
    entry: &YamlEntry,
    words: &[(&str, T)],
) -> Option<T> {
    let text = text(report, entry)?;
    let found = words.iter().find(|(word, _)| *word == text);
    if found.is_none() {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("`{}` must be {}, found {text:?}", entry.key, or(&known));
        report.error(entry.node.span, message);
    }
    found.map(|(_, value)| *value)
}

/// `a`, `a or b`, `a, b or c`.
pub(crate) fn or(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

pub(crate) fn mapping<'n>(report: &mut Findings, entry: &'n YamlEntry) -> Option<&'n Mapping> {
    mapping_of(report, &entry.key, &entry.node)
}

pub(crate) fn mapping_of<'n>(
    report: &mut Findings,
    what: &str,
    node: &'n YamlNode,
) -> Option<&'n Mapping> {
    let mapping = node.as_mapping();
    if mapping.is_none() {
        expected(report, what, "a mapping", node);
    }
    mapping
}

pub(crate) fn items<'n>(report: &mut Findings, entry: &'n YamlEntry) -> &'n [Rc<YamlNode>] {
    entry.node.as_sequence().unwrap_or_else(|| {
        expected(report, &entry.key, "a list", &entry.node);
        &[]
    })
}

/// A list of single values.
pub(crate) fn texts(report: &mut Findings, entry: &YamlEntry) -> Vec<Text> {
    let mut texts = Vec::new();
    for item in items(report, entry) {
        if let Some(text) = text_of(report, &entry.key, item) {
            texts.push(Text { text, span: item.span });
        }
    }
    texts
}

/// A single value, or a list of them.
pub(crate) fn one_or_many(report: &mut Findings, entry: &YamlEntry) -> Vec<Text> {
    match &entry.node.value {
        Value::Scalar(scalar) => {
            vec![Text { text: scalar.text.clone(), span: entry.node.span }]
        }
        _ => texts(report, entry),
    }
}

pub(crate) fn plain(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(|text| text.text).collect()
}

/// A mapping, or a list of `KEY=value`.
pub(crate) fn pairs(report: &mut Findings, entry: &YamlEntry) -> Vec<Pair> {
    let mut pairs = Vec::new();
    match &entry.node.value {
        Value::Mapping(mapping) => {
            for inner in mapping.entries() {
                let value = match &inner.node.value {
                    _ if inner.node.is_null() => None,
                    Value::Scalar(scalar) => Some(scalar.text.clone()),
                    _ => {
                        expected(report, &inner.key, "a single value", &inner.node);
                        continue;
                    }
                };
                pairs.push(Pair { key: inner.key.clone(), value, span: inner.key_span });
            }
        }
        Value::Sequence(items) => {
            for item in items {
                let Some(text) = text_of(report, &entry.key, item) else { continue };
                let (key, value) = match text.split_once('=') {
                    Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                    None => (text, None),
                };
                pairs.push(Pair { key, value, span: item.span });
            }
        }
        Value::Scalar(_) => {
            expected(report, &entry.key, "a mapping or a list of KEY=value", &entry.node);
        }
    }
    let name_missing = |pair: &Pair| pair.key.is_empty();
    for pair in pairs.iter().filter(|pair| name_missing(pair)) {
        report.error(pair.span, format!("an entry of `{}` has no name", entry.key));
    }
    pairs.retain(|pair| !name_missing(pair));
    pairs
}

/// A command line: a list as it is, a text split as a shell would.
pub(crate) fn command(report: &mut Findings, entry: &YamlEntry) -> Option<Vec<String>> {
    match &entry.node.value {
        Value::Scalar(scalar) => match split_words(&scalar.text) {
            Ok(words) => Some(words),
            Err(message) => {
                let problem = Finding::new(entry.node.span, format!("`{}`: {message}", entry.key));
                report.push(problem.hint("write the command as a list to keep it as it is"));
                None
            }
        },
        _ => Some(plain(texts(report, entry))),
    }
}

/// Splits at blanks outside quotes, with a shell's quoting and nothing else of a shell.
pub(crate) fn split_words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is never closed"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some('\n') => {}
                            Some(c) => word.extend(['\\', c]),
                            None => return Err("a double quote is never closed"),
                        },
                        Some(c) => word.push(c),
                        None => return Err("a double quote is never closed"),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("it ends with a backslash"),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// File permissions: `0440`, `0o440` and `"440"` are octal; a plain number is decimal, as in Compose.
pub(crate) fn file_mode(report: &mut Findings, entry: &YamlEntry) -> Option<u32> {
    let text = text(report, entry)?;
    let is_text = entry.node.as_scalar().is_some_and(|scalar| scalar.style == Style::Text);
    let is_octal = text.starts_with('0') || is_text;
    let digits = text.strip_prefix("0o").unwrap_or(&text);
    let mode = u32::from_str_radix(digits, if is_octal { 8 } else { 10 });
    let mode = mode.ok().filter(|mode| *mode <= 0o7777);
    match mode {
        None => {
            let message = format!("`{}` must be a file mode, found {text}", entry.key);
            report.push(Finding::new(entry.node.span, message).hint("write it as 0440"));
        }
        Some(mode) if !is_octal && u32::from_str_radix(&text, 8).is_ok() => {
            let message = format!("{text} is read as a decimal number: file mode 0{mode:o}");
            let hint = format!("write 0{text} if the digits are meant as octal");
            report.push_warning(Finding::new(entry.node.span, message).hint(hint));
        }
        Some(_) => {}
    }
    mode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_splits_as_a_shell_would() {
        for (text, words) in [
            ("", &[][..]),
            ("  a  b\tc\n", &["a", "b", "c"]),
            ("sh -c 'echo \"hi\" $X'", &["sh", "-c", "echo \"hi\" $X"]),
            ("a\"b c\"d", &["ab cd"]),
            ("'' \"\"", &["", ""]),
            (r#"a\ b "c\"d" "e\nf""#, &["a b", "c\"d", "e\\nf"]),
        ] {
            assert_eq!(split_words(text).unwrap(), words, "{text}");
        }
        for text in ["'open", "\"open", "end\\"] {
            assert!(split_words(text).is_err(), "{text}");
        }
    }
}
