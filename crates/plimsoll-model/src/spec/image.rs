//! Names of images, taken apart as far as a pull needs it; and what an image is pinned to.
//!
//! A tag may be moved in its registry at any time. The digest that it had when its file was applied is kept in the spec, and
//! it is what nodes pull and create containers from: one revision is one image, on every node and for ever.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ContainerSpec, PullPolicy};
use crate::registries::RegistryHost;

/// The most characters a digest may have: `sha512:` and 128 hexadecimal digits fit.
const MAX_DIGEST: usize = 160;

/// `registry.example.org/team/app:1`, or the same with a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReference<'a> {
    /// None for the engine's own registry.
    pub registry: Option<&'a str>,
    /// Everything before the tag, the registry included.
    pub name: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
}

impl<'a> ImageReference<'a> {
    pub fn parse(image: &'a str) -> Self {
        let registry = image.split_once('/').map(|(first, _)| first).filter(|first| {
            // As engines tell a host from a user: it has a dot, a port, or is this very machine.
            first.contains(['.', ':']) || *first == "localhost"
        });
        let (rest, digest) = match image.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (image, None),
        };
        let (name, tag) = match rest.rsplit_once(':') {
            // A colon before the last slash belongs to a port.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        Self { registry, name, tag: tag.filter(|tag| !tag.is_empty()), digest }
    }

    /// What to ask the registry for. Without a tag an engine would pull all there are.
    pub fn version(&self) -> &'a str {
        self.digest.or(self.tag).unwrap_or("latest")
    }

    /// The name as engines shorten it, so that two spellings of one name compare equal.
    pub fn familiar_name(&self) -> &'a str {
        let of_hub = ["docker.io/", "index.docker.io/"];
        let bare = of_hub.iter().find_map(|hub| self.name.strip_prefix(hub));
        let bare = bare.unwrap_or(self.name);
        bare.strip_prefix("library/").unwrap_or(bare)
    }
}

/// Why an image is used by its tag, whatever that leads to when a node pulls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnpinnedImage {
    /// It is on a node and came from no registry.
    Local,
    /// The registry does not answer.
    Unreachable,
    /// The registry refused whoever asked.
    Denied,
    /// The registry does not have it.
    NotFound,
    /// No node that could ask a registry answered.
    NoEngine,
    Failed,
}

/// As it follows the name of the image.
impl fmt::Display for UnpinnedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "comes from no registry; each node uses its own image of that name",
            Self::Unreachable => "is used by its tag: the registry did not answer",
            Self::Denied => "is used by its tag: the registry denied access",
            Self::NotFound => "is used by its tag: the registry does not have it",
            Self::NoEngine => "is used by its tag: no node with a container engine answered",
            Self::Failed => "is used by its tag: its digest could not be looked up",
        })
    }
}

/// Whether a text is a digest, such as `sha256:` and 64 hexadecimal digits.
pub fn is_digest(text: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let is_algorithm = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= MAX_DIGEST
        && text.split_once(':').is_some_and(|(algorithm, digits)| {
            !algorithm.is_empty()
                && algorithm.chars().all(is_algorithm)
                && digits.len() >= 32
                && digits.chars().all(is_hex)
        })
}

impl ContainerSpec {
    /// What to pull and to create a container from: the image by its digest where it has one.
    pub fn pinned_image(&self) -> Cow<'_, str> {
        match &self.digest {
            // Without the tag: not every engine takes a name with both.
            Some(digest) => {
                let name = ImageReference::parse(&self.image).name;
                Cow::Owned(format!("{name}@{digest}"))
            }
            None => Cow::Borrowed(&self.image),
        }
    }

    /// Whether its tag is to be looked up when it is applied: not where it says itself which image it means, nor where
    /// each node's own is meant.
    pub fn can_be_pinned(&self) -> bool {
        !self.image.is_empty()
            && ImageReference::parse(&self.image).digest.is_none()
            && self.pull != Some(PullPolicy::Never)
    }

    /// Where its image comes from; none where it has no image, or is never pulled.
    pub fn registry(&self) -> Option<RegistryHost> {
        let is_pulled = !self.image.is_empty() && self.pull != Some(PullPolicy::Never);
        is_pulled.then(|| RegistryHost::of_image(&self.image)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart() {
        for (image, registry, name, version) in [
            ("app", None, "app", "latest"),
            ("app:1", None, "app", "1"),
            ("team/app:1", None, "team/app", "1"),
            (
                "registry.example.org/app",
                Some("registry.example.org"),
                "registry.example.org/app",
                "latest",
            ),
            ("localhost/app:1", Some("localhost"), "localhost/app", "1"),
            ("127.0.0.1:5000/a/b:1", Some("127.0.0.1:5000"), "127.0.0.1:5000/a/b", "1"),
            ("127.0.0.1:5000/app", Some("127.0.0.1:5000"), "127.0.0.1:5000/app", "latest"),
            ("app@sha256:ab", None, "app", "sha256:ab"),
            ("app:1@sha256:ab", None, "app", "sha256:ab"),
        ] {
            let found = ImageReference::parse(image);
            let found = (found.registry, found.name, found.version());
            assert_eq!(found, (registry, name, version), "{image}");
        }
    }

    #[test]
    fn one_image_may_be_spelled_in_several_ways() {
        for image in ["nginx", "library/nginx:1", "docker.io/library/nginx@sha256:ab"] {
            assert_eq!(ImageReference::parse(image).familiar_name(), "nginx", "{image}");
        }
        assert_eq!(
            ImageReference::parse("ghcr.io/library/nginx").familiar_name(),
            "ghcr.io/library/nginx"
        );
    }

    #[test]
    fn a_pinned_image_is_used_by_its_digest() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let mut spec = ContainerSpec { image: "127.0.0.1:5000/app:1".into(), ..Default::default() };
        assert_eq!(spec.pinned_image(), "127.0.0.1:5000/app:1");
        spec.digest = Some(digest.clone());
        assert_eq!(spec.pinned_image(), format!("127.0.0.1:5000/app@{digest}"));
    }

    #[test]
    fn what_names_its_image_exactly_is_not_looked_up() {
        for (image, pull, expected) in [
            ("app:1", None, true),
            ("app", Some(PullPolicy::Always), true),
            ("app:1", Some(PullPolicy::Never), false),
            ("app@sha256:ab", None, false),
            ("", None, false),
        ] {
            let spec = ContainerSpec { image: image.into(), pull, ..Default::default() };
            assert_eq!(spec.can_be_pinned(), expected, "{image}");
        }
    }

    #[test]
    fn a_digest_is_known_by_its_form() {
        let good = format!("sha256:{}", "0a".repeat(32));
        for (text, expected) in [
            (good.as_str(), true),
            ("sha256:", false),
            ("latest", false),
            ("sha256:xyz", false),
            ("sha256:../../../../../../../../../../../../../etc", false),
        ] {
            assert_eq!(is_digest(text), expected, "{text}");
        }
        assert!(!is_digest(&format!("sha256:{}", "ab".repeat(100))));
    }
}
