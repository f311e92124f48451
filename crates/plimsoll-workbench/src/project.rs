//! The compose files of a project, read as Compose does. What they mean is settled in `plimsoll-compose`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use plimsoll_compose::{ComposeSource, Disk, LoadOptions, Loaded, load_env};

use crate::error::{Error, Result};
use crate::input::Input;

/// Which files to read, and what the command line adds to them.
#[derive(Debug, Default)]
pub struct Project {
    pub files: Vec<Input>,
    pub name: Option<String>,
    pub profiles: BTreeSet<String>,
    /// Instead of `.env` beside the first file.
    pub env_file: Option<Input>,
}

impl Project {
    pub fn load(&self) -> Result<Loaded> {
        let mut sources = Vec::new();
        for file in &self.files {
            sources.push(ComposeSource { name: file.shown(), text: file.read()? });
        }
        let root = self.files.first().map_or_else(|| PathBuf::from("."), Input::directory);
        let directory = clean(&std::path::absolute(&root).unwrap_or_else(|_| root.clone()));
        let env = self.environment(&root)?;

        let mut profiles = self.profiles.clone();
        if let Some(more) = env.get("COMPOSE_PROFILES") {
            profiles.extend(more.split(',').map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()));
        }
        let options = LoadOptions {
            name: self.name.clone(),
            profiles,
            env,
            default_name: base_name(&directory),
            directory: directory.display().to_string(),
        };
        let files = self.files.iter().map(Input::shown).collect();
        plimsoll_compose::load(&sources, &options, &Disk { root })
            .map_err(|wrong| Error::Compose { diagnostics: Box::new(wrong), files })
    }

    /// What variables are filled in from: the process's own, then those of the env file.
    pub fn environment(&self, root: &Path) -> Result<BTreeMap<String, String>> {
        let file = match &self.env_file {
            Some(file) => Some(file.clone()),
            None => Some(Input::File(tidy(root, ".env"))).filter(exists),
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
            let files = file.iter().map(Input::shown).collect();
            Error::Compose { diagnostics: Box::new(wrong), files }
        })
    }
}

/// `./x` reads as `x`.
pub fn tidy(directory: &Path, name: &str) -> PathBuf {
    if directory == Path::new(".") { PathBuf::from(name) } else { directory.join(name) }
}

/// Whether it is a file that is there.
pub fn exists(input: &Input) -> bool {
    matches!(input, Input::File(path) if path.is_file())
}

/// An absolute path without `.` and `..`, as Compose has it: a deployment is named after the directory that was typed, not after
/// where a link leads.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

fn base_name(directory: &Path) -> String {
    directory.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_named_after_its_directory_however_it_is_reached() {
        for path in [
            "/srv/shop",
            "/srv/shop/.",
            "/srv/shop/deploy/..",
            "/srv/other/../shop",
            "/../srv/shop",
        ] {
            let directory = clean(Path::new(path));
            assert_eq!(directory, Path::new("/srv/shop"), "{path}");
            assert_eq!(base_name(&directory), "shop", "{path}");
        }
    }
}
