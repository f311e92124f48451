//! A page of Markdown that holds tables written by the command, each between two marks.

use std::fs;

use plimsoll_workbench::input::Input;

use crate::error::CliError;

/// A page with room for one table.
#[derive(Debug)]
pub(super) struct MarkdownPage {
    name: String,
    before: String,
    after: String,
}

impl MarkdownPage {
    /// Looked at before anything is replayed: a long run is not to end in a spelling mistake.
    pub(super) fn open(name: &str, mark: &str) -> Result<Self, CliError> {
        let text = Input::File(name.into()).read_text()?.text;
        let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->"));
        let split = text.split_once(&begin).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(&end)?;
            Some((format!("{before}{begin}"), format!("{end}{after}")))
        });
        let Some((before, after)) = split else {
            let message = format!("{name} has no place for the table");
            return Err(CliError::refused(message)
                .hint(format!("add the lines {} and {end}", begin.trim())));
        };
        Ok(Self { name: name.to_owned(), before, after })
    }

    pub(super) fn write(&self, table: &str) -> Result<(), CliError> {
        let Self { name, before, after } = self;
        fs::write(name, format!("{before}{table}{after}"))
            .map_err(|error| CliError::failed(format!("cannot write {name}: {error}")))
    }
}
