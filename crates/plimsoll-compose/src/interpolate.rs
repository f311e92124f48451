//! `$VAR`, `${VAR:-default}`, `${VAR:?message}`, `${VAR:+replacement}` and `$$`, in every value of a file and
//! in no key. Where the variables come from is the caller's business.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::diagnostic::{Finding, Findings, SourceSpan, WarningKind};
use crate::yaml::{Scalar, Style, Value, YamlEntry, YamlNode};

/// Defaults may hold variables with defaults of their own; people nest them twice.
const MAX_NESTING: usize = 16;

/// One value after interpolation. A variable used a thousand times in a value would otherwise be a way around
/// the size of a file.
const MAX_EXPANDED_BYTES: usize = 1 << 20;

/// Why a text cannot be interpolated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InterpolationError {
    /// A `${` that goes on as no variable does.
    Syntax {
        fragment: String,
    },
    /// `${VAR:?message}` without a value.
    Required {
        fragment: String,
        name: String,
        message: String,
    },
    TooDeep {
        fragment: String,
    },
    TooLong,
}

impl InterpolationError {
    pub(crate) fn problem(&self, report: &Findings, span: SourceSpan) -> Finding {
        match self {
            Self::Syntax { fragment } => {
                let message = format!("`{fragment}` is not a variable");
                Finding::new(report.narrow(span, fragment), message).hint(
                    "write ${NAME}, ${NAME:-default} or ${NAME:?message}; a plain dollar is $$",
                )
            }
            Self::Required { fragment, name, message } => {
                let text = match message.as_str() {
                    "" => format!("the variable {name} is required and has no value"),
                    _ => format!("the variable {name} is required and has no value: {message}"),
                };
                Finding::new(report.narrow(span, fragment), text)
                    .hint(format!("set {name} in the shell or in .env"))
            }
            Self::TooDeep { fragment } => {
                let message = format!("variables are nested deeper than {MAX_NESTING} levels");
                Finding::new(report.narrow(span, fragment), message)
            }
            Self::TooLong => {
                let message = format!("the value expands to more than {MAX_EXPANDED_BYTES} bytes");
                Finding::new(span, message)
            }
        }
    }
}

/// Where variables are looked up; it hears of those that are not set and have no default, and of every `$` that begins none.
pub(crate) trait Scope {
    fn value(&self, name: &str) -> Option<&str>;
    fn unset(&mut self, name: &str);
    fn stray(&mut self, fragment: String);
}

/// Replaces the variables in a text.
pub(crate) fn expand(text: &str, scope: &mut dyn Scope) -> Result<String, InterpolationError> {
    let mut out = String::with_capacity(text.len());
    expand_into(text, scope, &mut out, 0)?;
    Ok(out)
}

fn expand_into(
    text: &str,
    scope: &mut dyn Scope,
    out: &mut String,
    depth: usize,
) -> Result<(), InterpolationError> {
    if depth > MAX_NESTING {
        return Err(InterpolationError::TooDeep { fragment: text.to_owned() });
    }
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        let used = match after.chars().next() {
            Some('$') => {
                out.push('$');
                1
            }
            Some('{') => {
                let syntax =
                    || InterpolationError::Syntax { fragment: first_line(&rest[dollar..]) };
                let end = closing_brace(after).ok_or_else(syntax)?;
                braced(&after[1..end], &rest[dollar..=dollar + 1 + end], scope, out, depth)?;
                end + 1
            }
            Some(c) if is_name_start(c) => {
                let name = name_at(after);
                match scope.value(name) {
                    Some(value) => out.push_str(value),
                    None => scope.unset(name),
                }
                name.len()
            }
            other => {
                scope.stray(format!("${}", other.map(String::from).unwrap_or_default()));
                out.push('$');
                0
            }
        };
        if out.len() > MAX_EXPANDED_BYTES {
            return Err(InterpolationError::TooLong);
        }
        rest = &after[used..];
    }
    out.push_str(rest);
    Ok(())
}

/// The inside of `${…}`: a name, then perhaps an operator and a word.
fn braced(
    inside: &str,
    whole: &str,
    scope: &mut dyn Scope,
    out: &mut String,
    depth: usize,
) -> Result<(), InterpolationError> {
    let syntax = || InterpolationError::Syntax { fragment: first_line(whole) };
    let name = name_at(inside);
    if name.is_empty() {
        return Err(syntax());
    }
    let value = scope.value(name).map(str::to_owned);
    let operator = &inside[name.len()..];
    if operator.is_empty() {
        match value {
            Some(value) => out.push_str(&value),
            None => scope.unset(name),
        }
        return Ok(());
    }
    let (counts_empty, operator) = match operator.strip_prefix(':') {
        Some(operator) => (true, operator),
        None => (false, operator),
    };
    let value = value.filter(|value| !(counts_empty && value.is_empty()));
    let mut parts = operator.chars();
    let sign = parts.next().ok_or_else(syntax)?;
    let word = parts.as_str();
    match (sign, value) {
        ('-' | '?', Some(value)) => out.push_str(&value),
        ('-', None) | ('+', Some(_)) => expand_into(word, scope, out, depth + 1)?,
        ('+', None) => {}
        ('?', None) => {
            let mut message = String::new();
            expand_into(word, scope, &mut message, depth + 1)?;
            let (fragment, name) = (first_line(whole), name.to_owned());
            return Err(InterpolationError::Required { fragment, name, message });
        }
        _ => return Err(syntax()),
    }
    Ok(())
}

/// Where the brace that opens `text` is closed, counting the variables within.
fn closing_brace(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let bytes = text.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' if index == 0 || bytes[index - 1] == b'$' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

fn is_name_start(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn name_at(text: &str) -> &str {
    if !text.starts_with(is_name_start) {
        return "";
    }
    let end = text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    &text[..end]
}

/// What a message quotes of a text that may go on for pages.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(80).collect()
}

/// The variables of a run, and which of them were missing.
pub(crate) struct Variables<'e> {
    env: &'e BTreeMap<String, String>,
    missing: Vec<String>,
    strays: Vec<String>,
}

impl<'e> Variables<'e> {
    pub(crate) fn new(env: &'e BTreeMap<String, String>) -> Self {
        Self { env, missing: Vec::new(), strays: Vec::new() }
    }
}

impl Scope for Variables<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }

    fn unset(&mut self, name: &str) {
        self.missing.push(name.to_owned());
    }

    fn stray(&mut self, fragment: String) {
        self.strays.push(fragment);
    }
}

/// Interpolates the values of a tree. Shared nodes are visited once and stay shared.
pub(crate) fn tree(
    report: &mut Findings,
    root: &Rc<YamlNode>,
    variables: &mut Variables,
) -> Rc<YamlNode> {
    InterpolationPass { report, variables, done: BTreeMap::new() }.node(root)
}

struct InterpolationPass<'r, 'v, 'e> {
    report: &'r mut Findings,
    variables: &'v mut Variables<'e>,
    done: BTreeMap<*const YamlNode, Rc<YamlNode>>,
}

impl InterpolationPass<'_, '_, '_> {
    fn node(&mut self, node: &Rc<YamlNode>) -> Rc<YamlNode> {
        let id = Rc::as_ptr(node);
        if let Some(done) = self.done.get(&id) {
            return Rc::clone(done);
        }
        let value = match &node.value {
            Value::Scalar(scalar) if !scalar.text.contains('$') => return Rc::clone(node),
            Value::Scalar(scalar) => {
                let text = self.text(&scalar.text, node.span);
                Value::Scalar(Scalar { text, style: Style::Text })
            }
            Value::Sequence(items) => {
                Value::Sequence(items.iter().map(|item| self.node(item)).collect())
            }
            Value::Mapping(mapping) => {
                let entry =
                    |entry: &YamlEntry| YamlEntry { node: self.node(&entry.node), ..entry.clone() };
                Value::Mapping(mapping.entries().iter().map(entry).collect())
            }
        };
        self.keep(id, YamlNode::new(node.span, node.tag, value))
    }

    fn keep(&mut self, id: *const YamlNode, node: YamlNode) -> Rc<YamlNode> {
        let node = Rc::new(node);
        self.done.insert(id, Rc::clone(&node));
        node
    }

    fn text(&mut self, text: &str, span: SourceSpan) -> String {
        let expanded = expand(text, self.variables);
        for name in std::mem::take(&mut self.variables.missing) {
            self.report.note_unset(span, &name);
            let at = self.report.narrow(span, &name);
            self.report.push_warning(Finding::of_kind(at, WarningKind::Unset, name));
        }
        for fragment in std::mem::take(&mut self.variables.strays) {
            let at = self.report.narrow(span, &fragment);
            self.report.push_warning(Finding::of_kind(at, WarningKind::Dollar, fragment));
        }
        expanded.unwrap_or_else(|failure| {
            let problem = failure.problem(self.report, span);
            self.report.push(problem);
            self.report.leave_unfilled(span);
            String::new()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_with(text: &str) -> Result<String, InterpolationError> {
        let env = [("A", "one"), ("EMPTY", ""), ("DOLLAR", "$A")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        expand(text, &mut Variables::new(&env))
    }

    #[test]
    fn variables_read_as_compose_reads_them() {
        for (text, expanded) in [
            ("plain", "plain"),
            ("$A ${A} $A-$A", "one one one-one"),
            ("$$A $$$A", "$A $one"),
            ("${A:-x} ${EMPTY:-x} ${NONE:-x}", "one x x"),
            ("${A-x} ${EMPTY-x} ${NONE-x}", "one  x"),
            ("${A:+x} ${EMPTY:+x} ${NONE:+x}.", "x  ."),
            ("${A+x} ${EMPTY+x} ${NONE+x}.", "x x ."),
            ("${A:?m} ${EMPTY?m}", "one "),
            ("${NONE:-${ALSO:-${A}}}", "one"),
            ("${NONE:-a:b-c?d}", "a:b-c?d"),
            ("${NONE}${NONE}", ""),
            ("$DOLLAR", "$A"),
            ("é$A→", "éone→"),
            ("cost: 5$", "cost: 5$"),
            ("$1 $( $-$A", "$1 $( $-one"),
        ] {
            assert_eq!(expand_with(text).as_deref(), Ok(expanded), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_variable_is_refused() {
        for (text, fragment) in [
            ("${}", "${}"),
            ("${A", "${A"),
            ("${A!x}", "${A!x}"),
            ("${A:}", "${A:}"),
            ("${1A}", "${1A}"),
        ] {
            let fragment = fragment.to_owned();
            assert_eq!(expand_with(text), Err(InterpolationError::Syntax { fragment }), "{text}");
        }
    }

    #[test]
    fn a_required_variable_names_its_message() {
        let Err(InterpolationError::Required { name, message, .. }) =
            expand_with("${PASS:?set ${A}}")
        else {
            panic!("the variable is required");
        };
        assert_eq!((name.as_str(), message.as_str()), ("PASS", "set one"));
    }

    #[test]
    fn nesting_and_growth_are_bounded() {
        let deep = format!("{}x{}", "${N:-".repeat(40), "}".repeat(40));
        assert!(matches!(expand_with(&deep), Err(InterpolationError::TooDeep { .. })));
        assert_eq!(expand_with(&"$A".repeat(400_000)), Err(InterpolationError::TooLong));
    }
}
