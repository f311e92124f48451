//! Where answers go: data to stdout, in the form that was asked for, and the rest to stderr.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::trouble::Trouble;

/// The form an answer is printed in. All carry the same facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    // For people; without doc comments, clap lists all three on one line.
    #[default]
    Table,
    Json,
    Yaml,
}

/// Prints the facts in the form asked for; `table` writes them for people.
pub(crate) fn print<T: Serialize>(
    format: Format,
    facts: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Trouble> {
    let text = match format {
        Format::Table => table(facts),
        Format::Json => {
            let json = serde_json::to_string_pretty(facts);
            json.map(|json| json + "\n").map_err(|error| unwritable(&error.to_string()))?
        }
        Format::Yaml => {
            serde_saphyr::to_string(facts).map_err(|error| unwritable(&error.to_string()))?
        }
    };
    data(&text)
}

/// Writes to stdout. A reader who has read enough (`| head`) is no trouble.
pub(crate) fn data(text: &str) -> Result<(), Trouble> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unwritable(&error.to_string())),
        _ => Ok(()),
    }
}

/// Says something that is not data.
pub(crate) fn note(text: &str) {
    anstream::eprintln!("{text}");
}

fn unwritable(error: &str) -> Trouble {
    Trouble::failed(format!("cannot write the answer: {error}"))
}

/// `1 error`, `3 errors`, `2 replicas`.
pub(crate) fn count(n: usize, what: &str) -> String {
    let plural = match what.strip_suffix('y') {
        Some(stem) if n != 1 => format!("{stem}ies"),
        None if n != 1 => format!("{what}s"),
        _ => what.to_owned(),
    };
    format!("{n} {plural}")
}
