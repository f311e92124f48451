//! How a command ends when it does not end well: refused when the input is at fault, failed when the world is.

use std::process::ExitCode;

use owo_colors::OwoColorize;

pub(crate) const REFUSED: u8 = 1;
pub(crate) const FAILED: u8 = 2;

/// What shells give a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command did not do what it was asked, as it will be read.
#[derive(Debug)]
pub(crate) struct Trouble {
    code: u8,
    text: String,
}

impl Trouble {
    /// The person at the keyboard can put it right.
    pub(crate) fn refused(message: impl AsRef<str>) -> Self {
        Self { code: REFUSED, text: error_line(message.as_ref()) }
    }

    /// The world, or plimsoll itself, is at fault.
    pub(crate) fn failed(message: impl AsRef<str>) -> Self {
        Self { code: FAILED, text: error_line(message.as_ref()) }
    }

    /// A refusal that has been rendered already, with its places and hints, and the one line that sums it up.
    pub(crate) fn rendered(text: &str, summary: &str) -> Self {
        let separator = if text.ends_with('\n') { "\n" } else { "\n\n" };
        Self { code: REFUSED, text: format!("{text}{separator}{} {summary}\n", red("refused:")) }
    }

    /// Someone pressed Ctrl-C; what they should know, if anything.
    pub(crate) fn interrupted(text: &str) -> Self {
        Self { code: INTERRUPTED, text: text.to_owned() }
    }

    /// Another command ended with this code, and has said why.
    pub(crate) fn passed_on(code: u8) -> Self {
        Self { code, text: String::new() }
    }

    pub(crate) fn hint(mut self, hint: impl AsRef<str>) -> Self {
        self.text.extend(["hint: ", hint.as_ref(), "\n"]);
        self
    }

    pub(crate) fn line(mut self, line: impl AsRef<str>) -> Self {
        self.text.extend([line.as_ref(), "\n"]);
        self
    }

    /// What is wrong, for a line that has room for nothing else.
    /// Whether trying again is of no use: the answer was no.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code == REFUSED
    }

    pub(crate) fn first_line(&self) -> String {
        let text = anstream::adapter::strip_str(&self.text).to_string();
        let line = text.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        anstream::adapter::strip_str(&self.text).to_string()
    }

    /// Says it on stderr and gives the code to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        anstream::eprint!("{}", self.text);
        ExitCode::from(self.code)
    }
}

fn error_line(message: &str) -> String {
    format!("{} {message}\n", red("error:"))
}

fn red(word: &str) -> String {
    word.red().bold().to_string()
}
