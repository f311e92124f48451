//! Whom a cell asks for certificates of routes with `tls: auto`, as it is typed.

use std::path::PathBuf;

use plimsoll_daemon::acme::{AcmeChoice, settings};

use crate::error::CliError;

/// The authority that is asked where nobody says.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// What turns it off again.
const NONE: &str = "none";

#[derive(Debug, clap::Args)]
pub(crate) struct AcmeArgs {
    /// Get certificates for routes with `tls: auto`, with this contact address; you agree to the authority's terms of
    /// service. Kept in the log for the whole cell; `none` stops asking
    #[arg(id = "acme_email", long = "acme-email", value_name = "ADDRESS")]
    email: Option<String>,
    /// Directory URL of the ACME authority [default: Let's Encrypt]
    #[arg(
        id = "acme_directory",
        long = "acme-directory",
        value_name = "URL",
        requires = "acme_email"
    )]
    directory: Option<String>,
    /// PEM file with certificates to check the authority's own server against [default: this machine's]
    #[arg(id = "acme_ca", long = "acme-ca", value_name = "FILE", requires = "acme_email")]
    ca: Option<PathBuf>,
}

impl AcmeArgs {
    pub(crate) fn choice(&self) -> Result<AcmeChoice, CliError> {
        let email = match self.email.as_deref() {
            None => return Ok(AcmeChoice::AsBefore),
            Some(NONE) => return Ok(AcmeChoice::Off),
            Some(email) => email,
        };
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| {
                CliError::failed(format!("cannot read {}: {error}", path.display()))
            })
        };
        let ca = self.ca.as_ref().map(read).transpose()?;
        let directory = self.directory.as_deref().unwrap_or(DIRECTORY);
        let settings = settings(email, directory, ca);
        settings.map(AcmeChoice::Ask).map_err(|why| CliError::failed(format!("--acme: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(email: Option<&str>, directory: Option<&str>) -> AcmeArgs {
        let own = |text: Option<&str>| text.map(str::to_owned);
        AcmeArgs { email: own(email), directory: own(directory), ca: None }
    }

    #[test]
    fn an_authority_is_asked_where_an_address_is_given_and_nothing_changes_where_none_is() {
        assert_eq!(args(None, None).choice().unwrap(), AcmeChoice::AsBefore);
        assert_eq!(args(Some("none"), None).choice().unwrap(), AcmeChoice::Off);
        let Ok(AcmeChoice::Ask(asked)) = args(Some("ops@example.org"), None).choice() else {
            panic!("somebody is asked")
        };
        assert_eq!(asked.directory, DIRECTORY);
        for (email, directory) in [
            ("ops", None),
            ("ops @example.org", None),
            ("@", None),
            ("ops@example.org", Some("http://ca.example/directory")),
        ] {
            assert!(args(Some(email), directory).choice().is_err(), "{email} {directory:?}");
        }
    }
}
