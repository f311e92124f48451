//! The unlock key of a store, as commands that open one are given it.

use std::path::PathBuf;

use plimsoll_store::keys::UnlockKey;

use crate::error::CliError;

/// Where the key may stand instead of in a file.
const VARIABLE: &str = "PLIMSOLL_UNLOCK_KEY";

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct UnlockArgs {
    /// File with the unlock key of the store; it can stand in `PLIMSOLL_UNLOCK_KEY` as well
    #[arg(long, value_name = "FILE")]
    unlock_key_file: Option<PathBuf>,
}

impl UnlockArgs {
    pub(crate) fn key(&self) -> Result<Option<UnlockKey>, CliError> {
        let (text, at) = match (&self.unlock_key_file, std::env::var(VARIABLE)) {
            (Some(file), _) => return read(file).map(Some),
            (None, Ok(text)) => (text, VARIABLE),
            (None, Err(_)) => return Ok(None),
        };
        parse(&text, at).map(Some)
    }
}

/// The key in a file.
pub(crate) fn read(file: &std::path::Path) -> Result<UnlockKey, CliError> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| CliError::refused(format!("cannot read {shown}: {error}")))?;
    parse(&text, &shown)
}

fn parse(text: &str, at: &str) -> Result<UnlockKey, CliError> {
    text.parse().map_err(|error| {
        CliError::refused(format!("{at}: {error}"))
            .hint("`plimsoll cell unlock-key` prints a new one")
    })
}
