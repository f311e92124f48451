//! Every fixture loads, alone and with the layers beside it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_compose::{ComposeSource, Disk, LoadOptions, Loaded, load, load_env};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Each fixture's name and files, lowest layer first.
pub(crate) fn all() -> Vec<(String, Vec<PathBuf>)> {
    let mut fixtures = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let layers = ["compose.yaml", "compose.override.yaml", "compose.prod.yaml"];
            let layers = layers.map(|layer| path.join(layer)).into_iter();
            fixtures.push((name, layers.filter(|layer| layer.exists()).collect()));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            fixtures.push((name, vec![path]));
        }
    }
    fixtures.sort();
    fixtures
}

pub(crate) fn read(paths: &[PathBuf]) -> Result<Loaded, String> {
    let directory = paths[0].parent().unwrap();
    let read = |path: &PathBuf| ComposeSource {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        text: fs::read(path).unwrap(),
    };
    let sources: Vec<ComposeSource> = paths.iter().map(read).collect();
    let dotenv = fs::read(directory.join(".env")).ok();
    let env = load_env(dotenv.as_deref().map(|text| (".env", text)), [])
        .map_err(|errors| errors.to_string())?;
    let default_name = directory.file_name().unwrap().to_string_lossy().into_owned();
    let options = LoadOptions { env, default_name, ..LoadOptions::default() };
    load(&sources, &options, &Disk { root: directory.to_owned() })
        .map_err(|errors| errors.to_string())
}

#[test]
fn every_fixture_loads_alone_and_with_its_layers() {
    let fixtures = all();
    assert!(fixtures.len() >= 25, "only {} fixtures", fixtures.len());
    let mut refused = String::new();
    for (name, paths) in &fixtures {
        for layers in 1..=paths.len() {
            match read(&paths[..layers]) {
                Ok(loaded) => assert!(!loaded.deployment.services.is_empty(), "{name}"),
                Err(errors) => {
                    writeln!(refused, "== {name}, {layers} layers\n{errors}").unwrap();
                }
            }
        }
    }
    assert!(refused.is_empty(), "fixtures that do not load:\n{refused}");
}

#[test]
fn every_fixture_keeps_its_hashes_when_it_is_read_again() {
    for (name, paths) in all() {
        let (first, second) = (read(&paths).unwrap(), read(&paths).unwrap());
        assert_eq!(first.deployment, second.deployment, "{name}");
    }
}
