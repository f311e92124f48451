//! How a command ends when it does not end well: refused when the input is at fault, failed when the world is.

use std::process::ExitCode;

use owo_colors::OwoColorize;

pub(crate) const REFUSED: u8 = 1;
pub(crate) const FAILED: u8 = 2;

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

    pub(crate) fn hint(mut self, hint: impl AsRef<str>) -> Self {
        self.text.extend(["hint: ", hint.as_ref(), "\n"]);
        self
    }

    pub(crate) fn line(mut self, line: impl AsRef<str>) -> Self {
        self.text.extend([line.as_ref(), "\n"]);
        self
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
