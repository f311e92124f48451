//! What the demo deploys: a compose file that is part of the program, and two others laid over it.

use plimsoll_api::view::Apply;
use plimsoll_compose::{ComposeSource, Files, LoadOptions, Loaded, load};

use crate::error::CliError;

/// Every service writes its process id into `pid` and makes `ready`, which its healthcheck looks for.
const STACK: &str = include_str!("stack.yaml");

/// A new web that ends as soon as it starts.
const BAD: &str =
    "services: {web: {command: [sh, -c, 'echo no configuration found >&2; exit 3']}}\n";

/// A new web that works.
const GOOD: &str = "services: {web: {environment: {EDITION: second}}}\n";

/// As the stack names itself.
pub(super) const NAME: &str = "shop";

/// Each service and the one it waits for, in the order they come up.
pub(super) const ORDER: [(&str, Option<&str>); 3] =
    [("store", None), ("api", Some("store")), ("web", Some("api"))];

/// The service that is treated badly.
pub(super) const WEB: &str = "web";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DemoRevision {
    First,
    Bad,
    Good,
}

/// No file of the stack names another.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

impl DemoRevision {
    pub(super) fn load(self) -> Result<Apply, CliError> {
        let over = match self {
            Self::First => None,
            Self::Bad => Some(BAD),
            Self::Good => Some(GOOD),
        };
        let sources: Vec<ComposeSource> = [Some(STACK), over]
            .into_iter()
            .flatten()
            .map(|text| ComposeSource { name: "the demo's stack".to_owned(), text: text.into() })
            .collect();
        let loaded = load(&sources, &LoadOptions::default(), &NoFiles);
        let Loaded { deployment, .. } = loaded.map_err(|wrong| {
            CliError::failed(format!("the demo's stack cannot be read:\n{}", wrong.render(false)))
        })?;
        Ok(Apply { services: deployment.services, routes: deployment.routes, expect: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_revision_of_the_stack_loads_and_only_web_differs() {
        let hashes = |revision: DemoRevision| -> Vec<(String, String)> {
            let services = revision.load().unwrap().services;
            services.iter().map(|(name, spec)| (name.to_string(), spec.hash.to_string())).collect()
        };
        let first = hashes(DemoRevision::First);
        for revision in [DemoRevision::Bad, DemoRevision::Good] {
            let other = hashes(revision);
            let differs = first.iter().zip(&other).filter(|(first, other)| first != other);
            let changed: Vec<&str> = differs.map(|(first, _)| first.0.as_str()).collect();
            assert_eq!(changed, [WEB], "{revision:?}");
        }
        let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["api", "store", "web"]);
    }
}
