//! The compose files of a project, found and read as Compose does. What they mean is settled in `plimsoll-compose`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_compose::{Diagnostics, Disk, Loaded, Options, Source, load_env};

use crate::input::{Place, errors_in};
use crate::output::note;
use crate::trouble::Trouble;

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
    /// A compose file, `-` for stdin; later ones are laid over earlier ones [default: as Compose]
    #[arg(short, long = "file", value_name = "FILE")]
    file: Vec<String>,
    /// The deployment's name, instead of the one in the file
    #[arg(short = 'p', long = "project-name", value_name = "NAME")]
    name: Option<String>,
    /// A profile to enable; `*` for all
    #[arg(long, value_name = "PROFILE")]
    profile: Vec<String>,
    /// Where variables come from, instead of `.env` beside the first file
    #[arg(long, value_name = "FILE")]
    env_file: Option<String>,
}

impl Files {
    pub(crate) fn project(&self) -> Result<Project, Trouble> {
        let files = if self.file.is_empty() {
            find(Path::new("."))?
        } else {
            self.file.iter().map(|file| Place::of(file)).collect()
        };
        Ok(Project {
            files,
            name: self.name.clone(),
            profiles: self.profile.iter().cloned().collect(),
            env_file: self.env_file.as_deref().map(Place::of),
        })
    }
}

/// Which files to read, and what the command line adds to them.
#[derive(Debug, Default)]
pub(crate) struct Project {
    pub(crate) files: Vec<Place>,
    pub(crate) name: Option<String>,
    pub(crate) profiles: BTreeSet<String>,
    /// Instead of `.env` beside the first file.
    pub(crate) env_file: Option<Place>,
}

/// Why there is no deployment to speak of.
#[derive(Debug)]
pub(crate) enum Unloaded {
    /// A file could not be read at all.
    Unread(Trouble),
    Wrong(Box<Diagnostics>, Vec<String>),
}

impl From<Trouble> for Unloaded {
    fn from(trouble: Trouble) -> Self {
        Self::Unread(trouble)
    }
}

impl From<Unloaded> for Trouble {
    fn from(unloaded: Unloaded) -> Self {
        match unloaded {
            Unloaded::Unread(trouble) => trouble,
            Unloaded::Wrong(wrong, files) => {
                let errors = wrong.list.len() + wrong.more;
                Trouble::rendered(&wrong.render(true), &errors_in(errors, &files))
            }
        }
    }
}

impl Project {
    pub(crate) fn load(&self) -> Result<Loaded, Unloaded> {
        let mut sources = Vec::new();
        for file in &self.files {
            sources.push(Source { name: file.shown(), text: file.read()? });
        }
        let root = self.files.first().map_or_else(|| PathBuf::from("."), Place::directory);
        let directory = std::path::absolute(&root).unwrap_or_else(|_| root.clone());
        let env = self.environment(&root)?;

        let mut profiles = self.profiles.clone();
        if let Some(more) = env.get("COMPOSE_PROFILES") {
            profiles.extend(more.split(',').map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()));
        }
        let options = Options {
            name: self.name.clone(),
            profiles,
            env,
            default_name: base_name(&directory),
            directory: directory.display().to_string(),
        };
        let files = self.files.iter().map(Place::shown).collect();
        plimsoll_compose::load(&sources, &options, &Disk { root })
            .map_err(|wrong| Unloaded::Wrong(Box::new(wrong), files))
    }

    fn environment(
        &self,
        root: &Path,
    ) -> Result<std::collections::BTreeMap<String, String>, Unloaded> {
        let file = match &self.env_file {
            Some(file) => Some(file.clone()),
            None => Some(Place::File(tidy(root, ".env"))).filter(exists),
        };
        let read = match &file {
            Some(file) => Some((file.shown(), file.read()?)),
            None => None,
        };
        // Variables that are not text cannot stand in a compose file, so they are as good as unset.
        let process = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        let shown = read.as_ref().map(|(name, text)| (name.as_str(), text.as_slice()));
        load_env(shown, process).map_err(|wrong| {
            Unloaded::Wrong(Box::new(wrong), file.iter().map(Place::shown).collect())
        })
    }
}

/// The files Compose would read in this directory when none is named.
fn find(directory: &Path) -> Result<Vec<Place>, Trouble> {
    if let Some(named) = std::env::var_os("COMPOSE_FILE").filter(|named| !named.is_empty()) {
        return Ok(std::env::split_paths(&named).map(Place::File).collect());
    }
    let here = |names: [&str; 4]| -> Vec<Place> {
        names.iter().map(|name| Place::File(tidy(directory, name))).filter(exists).collect()
    };
    let found = here(FILES);
    let Some(first) = found.first() else {
        let message = "there is no compose.yaml, compose.yml, docker-compose.yml or \
                       docker-compose.yaml in this directory";
        return Err(Trouble::refused(message).hint("name the file with `-f`"));
    };
    if found.len() > 1 {
        let others: Vec<String> = found[1..].iter().map(Place::shown).collect();
        note(&format!("note: reading {}, not {}", first.shown(), others.join(" or ")));
    }
    let over = here(OVERRIDES);
    Ok([first].into_iter().chain(over.first()).cloned().collect())
}

/// `./x` reads as `x`.
pub(crate) fn tidy(directory: &Path, name: &str) -> PathBuf {
    if directory == Path::new(".") { PathBuf::from(name) } else { directory.join(name) }
}

fn exists(place: &Place) -> bool {
    matches!(place, Place::File(path) if path.is_file())
}

fn base_name(directory: &Path) -> String {
    let name = directory.file_name().or_else(|| directory.parent()?.file_name());
    name.and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}
