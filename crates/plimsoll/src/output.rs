//! Where answers go: data to stdout, in the form that was asked for, and the rest to stderr.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::error::CliError;

pub(crate) use plimsoll_workbench::text::count;

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
) -> Result<(), CliError> {
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
pub(crate) fn print_each<T: Serialize>(format: Format, facts: &T) -> Result<(), CliError> {
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
pub(crate) fn data(text: &str) -> Result<(), CliError> {
    match write(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unwritable(&error.to_string())),
        _ => Ok(()),
    }
}

/// As [`data`], for what has no end of its own: a reader who has read enough ends it, and well.
pub(crate) fn stream(text: &str) -> Result<(), CliError> {
    written(write(text))
}

/// What came of writing a part of a stream.
pub(crate) fn written(result: std::io::Result<()>) -> Result<(), CliError> {
    result.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::passed_on(0),
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

fn unwritable(error: &str) -> CliError {
    CliError::failed(format!("cannot write the answer: {error}"))
}
