//! Which compose files a command is about, as it is typed or found as Compose does. What they mean is settled in
//! `plimsoll-compose`, how they are read in `plimsoll-workbench`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
            self.find()?
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

    /// The files that are meant when none is typed: those of `COMPOSE_FILE`, else those here or in a directory above.
    fn find(&self) -> Result<Vec<Input>, CliError> {
        let env = self.environment()?;
        if let Some(named) = env.get("COMPOSE_FILE").filter(|named| !named.is_empty()) {
            let separator = env.get("COMPOSE_PATH_SEPARATOR").filter(|it| !it.is_empty());
            let separator = separator.map_or(":", String::as_str);
            let named = named.split(separator).filter(|path| !path.is_empty());
            return Ok(named.map(Input::of).collect());
        }
        upwards().find_map(|directory| found_in(&directory)).ok_or_else(|| {
            let message = "there is no compose.yaml, compose.yml, docker-compose.yml or \
                           docker-compose.yaml in this directory or above it";
            CliError::refused(message).hint("name the file with `-f`")
        })
    }

    /// The shell's variables, then those of the file with variables, by default `.env` here.
    fn environment(&self) -> Result<BTreeMap<String, String>, CliError> {
        let env_file = self.env_file.as_deref().map(Input::of);
        let project = Project { env_file, ..Project::default() };
        Ok(project.environment(Path::new("."))?)
    }
}

/// The files Compose would read in a directory when none is named.
fn found_in(directory: &Path) -> Option<Vec<Input>> {
    let here = |names: [&str; 4]| -> Vec<Input> {
        names.iter().map(|name| Input::File(tidy(directory, name))).filter(exists).collect()
    };
    let found = here(FILES);
    let first = found.first()?;
    if found.len() > 1 {
        let others: Vec<String> = found[1..].iter().map(Input::shown).collect();
        note(&format!("note: reading {}, not {}", first.shown(), others.join(" or ")));
    }
    let over = here(OVERRIDES);
    Some([first].into_iter().chain(over.first()).cloned().collect())
}

/// This directory, then the one above it, and so on.
fn upwards() -> impl Iterator<Item = PathBuf> {
    let depth = std::env::current_dir().map_or(0, |here| here.components().count() - 1);
    let above = (1..=depth).map(|levels| PathBuf::from("../".repeat(levels).trim_end_matches('/')));
    std::iter::once(PathBuf::from(".")).chain(above)
}
