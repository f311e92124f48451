//! Files of `KEY=value` lines: `.env` and `env_file`, as Compose reads them.

use std::collections::BTreeMap;

use crate::diagnostic::{Diagnostics, Finding, Findings, SourceSpan};
use crate::interpolate::{self, Scope};

/// Larger than any environment an engine would accept.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// How the values of an env file are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EnvFileFormat {
    /// Quotes, escapes, comments and variables.
    Quoted,
    /// Everything behind the `=` is the value.
    Raw,
}

/// The environment for interpolation: the process's own wins over `.env`.
///
/// `file` is the name to show and the content of `.env`, where there is one.
pub fn load_env(
    file: Option<(&str, &[u8])>,
    process: impl IntoIterator<Item = (String, String)>,
) -> Result<BTreeMap<String, String>, Diagnostics> {
    let process: BTreeMap<String, String> = process.into_iter().collect();
    let mut report = Findings::new();
    let mut env = BTreeMap::new();
    if let Some((name, bytes)) = file {
        for (key, value) in parse(&mut report, name, bytes, EnvFileFormat::Quoted, &process) {
            // A name alone asks for the process's value, which is added below.
            if let Some(value) = value {
                env.insert(key, value);
            }
        }
    }
    report.finish()?;
    env.extend(process);
    Ok(env)
}

/// The lines of an env file in order; a name without `=` has no value. Mistakes are in the report.
pub(crate) fn parse(
    report: &mut Findings,
    name: &str,
    bytes: &[u8],
    format: EnvFileFormat,
    env: &BTreeMap<String, String>,
) -> Vec<(String, Option<String>)> {
    if bytes.len() > MAX_BYTES {
        let message = format!("the file has {} bytes; at most {MAX_BYTES} are read", bytes.len());
        report.refuse_file(name, message, "");
        return Vec::new();
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        report.refuse_file(name, "the file is not UTF-8", "save the file as UTF-8");
        return Vec::new();
    };
    let text = text.replace("\r\n", "\n");
    let file = report.add_file(name, text.clone());
    let (lines, known) = (Vec::new(), BTreeMap::new());
    let mut reader = Reader { text: &text, at: 0, file, report, env, lines, known, size: 0 };
    match format {
        EnvFileFormat::Raw => reader.raw(),
        EnvFileFormat::Quoted => reader.quoted(),
    }
    reader.lines
}

struct Reader<'r> {
    text: &'r str,
    at: usize,
    file: u32,
    report: &'r mut Findings,
    env: &'r BTreeMap<String, String>,
    lines: Vec<(String, Option<String>)>,
    known: BTreeMap<String, String>,
    /// Bytes of all values: a line may double the one before it.
    size: usize,
}

/// Variables of the environment, then of earlier lines; one that is missing is empty, as in a shell.
struct Lines<'r> {
    known: &'r BTreeMap<String, String>,
    env: &'r BTreeMap<String, String>,
}

impl Scope for Lines<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        self.env.get(name).or_else(|| self.known.get(name)).map(String::as_str)
    }

    fn unset(&mut self, _: &str) {}

    fn stray(&mut self, _: String) {}
}

impl Reader<'_> {
    fn raw(&mut self) {
        for line in self.text.lines() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            match line.split_once('=') {
                Some((key, value)) => {
                    self.lines.push((key.trim().to_owned(), Some(value.to_owned())));
                }
                None => self.lines.push((line.trim().to_owned(), None)),
            }
        }
    }

    fn quoted(&mut self) {
        while self.at < self.text.len() {
            let line_start = self.at;
            if self.entry().is_none() {
                // One bad line costs itself only: the rest is checked too.
                self.at = self.end_of_line(self.at.max(line_start));
            }
            self.at += 1;
        }
    }

    /// Reads one entry and stops at its line's end; `None` if the line is wrong.
    fn entry(&mut self) -> Option<()> {
        let end = self.end_of_line(self.at);
        let line = &self.text[self.at..end];
        let start = self.at + (line.len() - line.trim_start().len());
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            self.at = end;
            return Some(());
        }
        let body = line.strip_prefix("export ").map_or(line, str::trim_start);
        let start = start + (line.len() - body.len());
        let length = body.find(['=', ':', ' ', '\t', '#']).unwrap_or(body.len());
        let key = &body[..length];
        let is_name = !key.is_empty() && !key.contains(|c: char| "\"'\\$`{}".contains(c));
        if !is_name {
            return self.wrong(start, start + body.len(), "this line is not KEY=value");
        }
        let rest = body[length..].trim_start();
        if rest.is_empty() || rest.starts_with('#') {
            self.lines.push((key.to_owned(), None));
            self.at = end;
            return Some(());
        }
        if !rest.starts_with(['=', ':']) {
            return self.wrong(start, start + body.len(), "this line is not KEY=value");
        }
        let value_start = start + (body.len() - rest.len()) + 1;
        let value = self.value(value_start, end)?;
        self.size += value.len();
        if self.size > MAX_BYTES {
            return self.wrong(
                start,
                start + key.len(),
                "the expanded values of this file are too large",
            );
        }
        self.known.insert(key.to_owned(), value.clone());
        self.lines.push((key.to_owned(), Some(value)));
        Some(())
    }

    fn value(&mut self, from: usize, end: usize) -> Option<String> {
        let raw = &self.text[from..end];
        let blank = raw.len() - raw.trim_start_matches([' ', '\t']).len();
        let from = from + blank;
        match self.text[from..end].chars().next() {
            Some('\'') => {
                let close = self.close(from, '\'')?;
                self.at = self.behind(close)?;
                Some(self.text[from + 1..close].to_owned())
            }
            Some('"') => {
                let close = self.close(from, '"')?;
                self.at = self.behind(close)?;
                let text = unescape(&self.text[from + 1..close]);
                self.expand(&text, from, close + 1)
            }
            _ => {
                self.at = end;
                let text = without_comment(&self.text[from..end]).trim_end();
                self.expand(text, from, end)
            }
        }
    }

    /// Where the quote that opens at `from` is closed, perhaps lines below.
    fn close(&mut self, from: usize, quote: char) -> Option<usize> {
        let mut escaped = false;
        for (offset, c) in self.text[from + 1..].char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return Some(from + 1 + offset),
                _ => {}
            }
        }
        self.wrong(from, self.end_of_line(from), "this quote is never closed")
    }

    /// Behind a closing quote only a comment may follow.
    fn behind(&mut self, close: usize) -> Option<usize> {
        let end = self.end_of_line(close);
        let rest = self.text[close + 1..end].trim();
        if rest.is_empty() || rest.starts_with('#') {
            return Some(end);
        }
        self.at = close;
        self.wrong(close + 1, end, "text follows the closing quote")
    }

    fn expand(&mut self, text: &str, from: usize, to: usize) -> Option<String> {
        let mut scope = Lines { known: &self.known, env: self.env };
        match interpolate::expand(text, &mut scope) {
            Ok(value) => Some(value),
            Err(failure) => {
                let problem = failure.problem(self.report, SourceSpan::new(self.file, &(from..to)));
                self.report.push(problem);
                None
            }
        }
    }

    fn end_of_line(&self, from: usize) -> usize {
        self.text[from..].find('\n').map_or(self.text.len(), |offset| from + offset)
    }

    fn wrong<T>(&mut self, from: usize, to: usize, message: &str) -> Option<T> {
        self.report.push(Finding::new(SourceSpan::new(self.file, &(from..to)), message));
        None
    }
}

/// A `#` behind a blank begins a comment; within a word it belongs to the word.
fn without_comment(text: &str) -> &str {
    if text.starts_with('#') {
        return "";
    }
    let cut = text.find(" #").or_else(|| text.find("\t#"));
    cut.map_or(text, |at| &text[..at])
}

/// `\n`, `\t` and friends. A dollar stays escaped, for the interpolation that follows to see.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('$') => out.push_str("$$"),
            Some(c @ ('"' | '\\' | '\'')) => out.push(c),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, Option<String>)> {
        let env = [("HOME".to_owned(), "/root".to_owned())].into();
        let mut report = Findings::new();
        let lines = parse(&mut report, ".env", text.as_bytes(), EnvFileFormat::Quoted, &env);
        report.finish().unwrap();
        lines
    }

    #[test]
    fn lines_read_as_compose_reads_them() {
        for (text, value) in [
            ("A=plain", "plain"),
            ("A = spaced ", "spaced"),
            ("A: yaml style", "yaml style"),
            ("export A=exported", "exported"),
            ("A=word # comment", "word"),
            ("A=word#not", "word#not"),
            ("A=#comment", ""),
            ("A=", ""),
            ("A='single $HOME \\n'", "single $HOME \\n"),
            ("A=\"double $HOME\\n\" # comment", "double /root\n"),
            ("A=\"a \\\"quoted\\\" \\$HOME\"", "a \"quoted\" $HOME"),
            ("A=\"two\nlines\"", "two\nlines"),
            ("A='two\nlines'", "two\nlines"),
            ("A=${HOME}/x", "/root/x"),
            ("A=${NONE:-default}", "default"),
            ("A=a=b", "a=b"),
            ("\u{feff}A=bom", "bom"),
            ("A=crlf\r\n", "crlf"),
        ] {
            let lines = read(text);
            assert_eq!(lines, [("A".to_owned(), Some(value.to_owned()))], "{text:?}");
        }
    }

    #[test]
    fn a_line_sees_the_lines_before_it() {
        assert_eq!(read("A=1\nB=$A$A")[1], ("B".to_owned(), Some("11".to_owned())));
    }

    #[test]
    fn a_name_alone_has_no_value() {
        assert_eq!(read("A\n# comment\n\nB=1")[0], ("A".to_owned(), None));
    }

    #[test]
    fn raw_values_are_taken_whole() {
        let mut report = Findings::new();
        let text = b"A=\"$X\" # kept\n# comment\nB";
        let lines = parse(&mut report, "raw", text, EnvFileFormat::Raw, &BTreeMap::new());
        let kept = Some("\"$X\" # kept".to_owned());
        assert_eq!(lines, [("A".to_owned(), kept), ("B".to_owned(), None)]);
    }

    #[test]
    fn the_process_wins_over_the_file() {
        let process = [("A".to_owned(), "process".to_owned())];
        let env = load_env(Some((".env", b"A=file\nB=$A")), process).unwrap();
        assert_eq!(env["A"], "process");
        assert_eq!(env["B"], "process");
    }

    #[test]
    fn lines_that_double_each_other_are_refused() {
        let double = |line: u32| format!("A{line}=$A{0}$A{0}\n", line - 1);
        let text: String =
            ["A0=xxxxxxxxxxxxxxxx\n".to_owned()].into_iter().chain((1..60).map(double)).collect();
        let error = load_env(Some((".env", text.as_bytes())), []).unwrap_err();
        assert!(error.to_string().contains("too large"), "{error}");
    }
}
