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

/// One of many: a line of JSON, or a document of YAML.
pub(crate) fn print_each<T: Serialize>(format: Format, facts: &T) -> Result<(), Trouble> {
    let text = match format {
        Format::Table | Format::Json => serde_json::to_string(facts)
            .map(|json| json + "\n")
            .map_err(|error| unwritable(&error.to_string()))?,
        Format::Yaml => {
            let yaml = serde_saphyr::to_string(facts);
            format!("---\n{}", yaml.map_err(|error| unwritable(&error.to_string()))?)
        }
    };
    stream(&text)
}

/// Writes to stdout. A reader who has read enough (`| head`) is no trouble.
pub(crate) fn data(text: &str) -> Result<(), Trouble> {
    match write(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unwritable(&error.to_string())),
        _ => Ok(()),
    }
}

/// As [`data`], for what has no end of its own: a reader who has read enough ends it, and well.
pub(crate) fn stream(text: &str) -> Result<(), Trouble> {
    written(write(text))
}

/// What came of writing a part of a stream.
pub(crate) fn written(result: std::io::Result<()>) -> Result<(), Trouble> {
    result.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Trouble::passed_on(0),
        _ => unwritable(&error.to_string()),
    })
}

fn write(text: &str) -> std::io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
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
