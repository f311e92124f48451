//! The backup keys of a cell, as commands that open a backup are given them.

use std::path::PathBuf;

use plimsoll_store::keys::CellKey;

use crate::error::CliError;

/// Where keys may stand instead of in a file.
const VARIABLE: &str = "PLIMSOLL_BACKUP_KEY";

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct BackupKeyArgs {
    /// File with the backup key, as `plimsoll cell backup-key` prints it; it may list several, one a line, and they can stand in
    /// `PLIMSOLL_BACKUP_KEY` as well
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl BackupKeyArgs {
    /// All that are given: a file says itself which of them it takes.
    pub(crate) fn keys(&self) -> Result<Vec<CellKey>, CliError> {
        match (&self.key_file, std::env::var(VARIABLE)) {
            (Some(file), _) => {
                let shown = file.display().to_string();
                let text = std::fs::read_to_string(file)
                    .map_err(|error| CliError::refused(format!("cannot read {shown}: {error}")))?;
                parse(&text, &shown)
            }
            (None, Ok(text)) => parse(&text, VARIABLE),
            (None, Err(_)) => Ok(Vec::new()),
        }
    }
}

/// One a line; what follows a `#` is for people.
fn parse(text: &str, at: &str) -> Result<Vec<CellKey>, CliError> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let keys = (1..).zip(lines).filter(|(_, line)| !line.is_empty()).map(|(nth, line)| {
        line.parse::<CellKey>().map_err(|error| {
            CliError::refused(format!("{at}, line {nth}: {error}"))
                .hint("`plimsoll cell backup-key` prints the key of a cell")
        })
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_lists_keys_with_words_beside_them_and_never_shows_one() {
        let [first, second] = [0, 1].map(|_| CellKey::generate().unwrap());
        let text = format!("# until May\n{first}\n\n  {second}   # since\n");
        assert_eq!(parse(&text, "keys").unwrap(), [first.clone(), second]);
        assert_eq!(parse("", "keys").unwrap(), []);
        let cut = &first.to_string()[..20];
        let refused = parse(&format!("\n{cut}\n"), "keys").unwrap_err();
        let said = format!("{refused:?}");
        assert!(said.contains("keys, line 2") && !said.contains(&cut[4..]), "{said}");
    }
}
