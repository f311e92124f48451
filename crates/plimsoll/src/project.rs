//! Which compose files a command is about, as it is typed or found as Compose does. What they mean is settled in
//! `plimsoll-compose`, how they are read in `plimsoll-workbench`.

use std::path::Path;

use plimsoll_workbench::input::Input;
use plimsoll_workbench::project::{Project, exists, tidy};

use crate::error::CliError;
use crate::output::note;

/// The names Compose looks for, the first that exists wins; likewise for the file laid over it.
const FILES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];
const OVERRIDES: [&str; 4] = [
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
];

/// Which files to read, as it is typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Files {
    /// Compose file, `-` for stdin; repeatable, later files override earlier ones [default: as Compose]
    #[arg(short, long = "file", value_name = "FILE")]
    file: Vec<String>,
    /// Deployment name, instead of the one in the file
    #[arg(short = 'p', long = "project-name", value_name = "NAME")]
    name: Option<String>,
    /// Profile to enable; `*` for all
    #[arg(long, value_name = "PROFILE")]
    profile: Vec<String>,
    /// File with variables, instead of `.env` next to the first file
    #[arg(long, value_name = "FILE")]
    env_file: Option<String>,
}

impl Files {
    pub(crate) fn project(&self) -> Result<Project, CliError> {
        let files = if self.file.is_empty() {
            find(Path::new("."))?
        } else {
            self.file.iter().map(|file| Input::of(file)).collect()
        };
        Ok(Project {
            files,
            name: self.name.clone(),
            profiles: self.profile.iter().cloned().collect(),
            env_file: self.env_file.as_deref().map(Input::of),
        })
    }
}

/// The files Compose would read in this directory when none is named.
fn find(directory: &Path) -> Result<Vec<Input>, CliError> {
    if let Some(named) = std::env::var_os("COMPOSE_FILE").filter(|named| !named.is_empty()) {
        return Ok(std::env::split_paths(&named).map(Input::File).collect());
    }
    let here = |names: [&str; 4]| -> Vec<Input> {
        names.iter().map(|name| Input::File(tidy(directory, name))).filter(exists).collect()
    };
    let found = here(FILES);
    let Some(first) = found.first() else {
        let message = "there is no compose.yaml, compose.yml, docker-compose.yml or \
                       docker-compose.yaml in this directory";
        return Err(CliError::refused(message).hint("name the file with `-f`"));
    };
    if found.len() > 1 {
        let others: Vec<String> = found[1..].iter().map(Input::shown).collect();
        note(&format!("note: reading {}, not {}", first.shown(), others.join(" or ")));
    }
    let over = here(OVERRIDES);
    Ok([first].into_iter().chain(over.first()).cloned().collect())
}
