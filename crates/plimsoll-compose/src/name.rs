//! What the deployment is called: the command line, then the environment, then the files, then the directory.

use plimsoll_model::ids::DeploymentName;

use crate::diagnostic::{Finding, Findings, SourceSpan};
use crate::interpolate::{Variables, expand};
use crate::yaml::{Mapping, YamlNode};
use crate::{LoadOptions, read};

/// The variable by which Compose names a project, and tells its files the name.
pub(crate) const VARIABLE: &str = "COMPOSE_PROJECT_NAME";

/// The name as far as it is known before interpolation, which may ask for it.
pub(crate) fn early<'n>(
    options: &LoadOptions,
    roots: impl Iterator<Item = &'n YamlNode>,
) -> String {
    let given = options.name.clone().or_else(|| options.env.get(VARIABLE).cloned());
    given.unwrap_or_else(|| {
        let written = roots.filter_map(|root| {
            let (text, _) = written(root.as_mapping()?)?;
            expand(&text, &mut Variables::new(&options.env)).ok()
        });
        written.last().unwrap_or_else(|| from_directory(&options.default_name))
    })
}

/// The name of the merged file, checked.
pub(crate) fn resolve(
    report: &mut Findings,
    options: &LoadOptions,
    top: &Mapping,
    at: SourceSpan,
) -> Option<DeploymentName> {
    let given = options.name.as_ref().map(|name| (name, "-p"));
    let given = given.or_else(|| options.env.get(VARIABLE).map(|name| (name, VARIABLE)));
    let (name, place, origin) = match (given, written(top)) {
        (Some((name, origin)), _) => (name.clone(), at, Some(origin)),
        (None, Some((name, place))) => (name, place, None),
        (None, None) => (from_directory(&options.default_name), at, Some("the directory")),
    };
    if name.is_empty() {
        let problem = Finding::new(place, "the deployment has no name");
        report.push(problem.hint("add `name:` at the top of the file, or pass `-p`"));
        return None;
    }
    match DeploymentName::new(&name) {
        Ok(name) => Some(name),
        Err(error) => {
            let from = origin.map(|origin| format!(" (from {origin})")).unwrap_or_default();
            report.error(place, format!("{error}{from}"));
            None
        }
    }
}

/// The name a file gives itself: `x-plimsoll.name`, then `name`.
fn written(top: &Mapping) -> Option<(String, SourceSpan)> {
    let extension = top.get("x-plimsoll").and_then(|entry| entry.node.as_mapping());
    let entry = extension.and_then(|keys| keys.get("name")).or_else(|| top.get("name"))?;
    Some((entry.node.as_scalar()?.text.clone(), entry.node.span))
}

/// As Compose makes a project name of a directory: lower case, without what a name may not have.
fn from_directory(directory: &str) -> String {
    let lower = directory.to_lowercase();
    let kept = lower.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    kept.collect::<String>().trim_start_matches(['-', '_']).chars().take(63).collect()
}

/// Reports a name that is not a single value.
pub(crate) fn check_kind(report: &mut Findings, top: &Mapping) {
    let extension = top.get("x-plimsoll").and_then(|entry| entry.node.as_mapping());
    for entry in extension.into_iter().chain([top]).filter_map(|keys| keys.get("name")) {
        read::text(report, entry);
    }
}
