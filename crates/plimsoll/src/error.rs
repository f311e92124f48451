//! How a command ends when it does not end well: refused when the input is at fault, failed when the world is.

use std::process::ExitCode;

use owo_colors::OwoColorize;
use plimsoll_workbench::PlanError;
use plimsoll_workbench::explain::NameError;
use plimsoll_workbench::input::{InputError, errors_in};
use plimsoll_workbench::trace::TraceError;

pub(crate) const REFUSED: u8 = 1;
pub(crate) const FAILED: u8 = 2;

/// What shells give a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command did not do what it was asked, as it will be read.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    text: String,
}

impl CliError {
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

    /// Whether trying again is of no use: the answer was no.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code == REFUSED
    }

    /// What is wrong, for a line that has room for nothing else.
    pub(crate) fn first_line(&self) -> String {
        let text = anstream::adapter::strip_str(&self.text).to_string();
        let line = text.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        anstream::adapter::strip_str(&self.text).to_string()
    }

    /// Says it as a line of the log, for a program that reads nothing else; the code stays.
    pub(crate) fn logged(self) -> Self {
        let text = anstream::adapter::strip_str(&self.text).to_string();
        if !text.is_empty() {
            tracing::error!("{}", text.trim_end());
        }
        Self::passed_on(self.code)
    }

    /// Says it on stderr and gives the code to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        anstream::eprint!("{}", self.text);
        ExitCode::from(self.code)
    }
}

/// What the workbench refuses or fails at; what it shows at its place is shown so.
impl From<plimsoll_workbench::Error> for CliError {
    fn from(error: plimsoll_workbench::Error) -> Self {
        use plimsoll_workbench::Error;
        match &error {
            Error::Mistake(located) => {
                let files = std::slice::from_ref(&located.input.name);
                return Self::rendered(&located.render(true), &errors_in(1, files));
            }
            Error::Compose { diagnostics, .. } => {
                return Self::rendered(&diagnostics.render(true), &error.to_string());
            }
            _ => {}
        }
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(because) = cause {
            message.extend([": ", &because.to_string()]);
            cause = because.source();
        }
        let ended = if error.is_refusal() { Self::refused(message) } else { Self::failed(message) };
        match error.hint() {
            Some(hint) => ended.hint(hint),
            None => ended,
        }
    }
}

macro_rules! from_part_of_the_workbench {
    ($($part:ty),+) => {$(
        impl From<$part> for CliError {
            fn from(error: $part) -> Self {
                plimsoll_workbench::Error::from(error).into()
            }
        }
    )+};
}

from_part_of_the_workbench!(InputError, NameError, PlanError, TraceError);

fn error_line(message: &str) -> String {
    format!("{} {message}\n", red("error:"))
}

fn red(word: &str) -> String {
    word.red().bold().to_string()
}
