//! Where a report goes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// Where the page goes, looked at before anything runs: a long run is not to end in a spelling mistake.
#[derive(Debug)]
pub(crate) struct ReportFile<'a>(&'a Path);

impl<'a> ReportFile<'a> {
    pub(crate) fn check(argument: &'a str) -> Result<Self, CliError> {
        let path = Path::new(argument);
        if path.is_dir() {
            let inside = path.join("report.html");
            return Err(CliError::refused(format!("{argument} is a directory"))
                .hint(format!("name a file in it: {}", inside.display())));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.map_or_else(|| PathBuf::from("."), Path::to_owned);
        if !parent.is_dir() {
            let message = format!("there is no directory {} for the report", parent.display());
            return Err(CliError::refused(message).hint("make it first, or name another"));
        }
        Ok(Self(path))
    }

    pub(crate) fn write(&self, page: &str) -> Result<(), CliError> {
        fs::write(self.0, page)
            .map_err(|error| CliError::failed(format!("cannot write {}: {error}", self.shown())))
    }

    pub(crate) fn shown(&self) -> String {
        self.0.display().to_string()
    }
}
