//! Which images a deployment means: tags as their registry had them when the file was applied. Registries are asked at the
//! edges, in [`image_lookup`](crate::image_lookup); here their answers become part of the specs that are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::spec::{DeclaredVolumes, PullPolicy, UnpinnedImage};
use plimsoll_model::{ContainerSpec, DeploymentName, ServiceKey, ServiceSpec, SpecHash};
use serde::{Deserialize, Serialize};

use super::Services;
use plimsoll_api::view::{Reason, ReasonCode};

/// An image as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageKey {
    pub image: String,
    /// Whether the registry is asked also where a node has an image of that name.
    pub is_always_pulled: bool,
}

/// What is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResolvedImage {
    pub digest: Option<String>,
    /// Why there is none, unless nothing in the cell has to do with images.
    pub unpinned: Option<UnpinnedImage>,
    /// What went wrong, in words. Then the rest is the best guess and not the registry's answer.
    pub trouble: Option<String>,
}

/// The answers, for all images of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedImages(pub BTreeMap<ImageKey, ResolvedImage>);

impl ImageKey {
    /// None for a container whose image is not looked up.
    pub fn of(container: &ContainerSpec) -> Option<Self> {
        container.can_be_pinned().then(|| Self {
            image: container.image.clone(),
            is_always_pulled: container.pull == Some(PullPolicy::Always),
        })
    }
}

impl ResolvedImages {
    fn of(&self, container: &ContainerSpec) -> Option<&ResolvedImage> {
        self.0.get(&ImageKey::of(container)?)
    }

    /// The services as they are written. Where a registry gave no answer, an image that is already deployed under that name
    /// stays what it was: an outage of a registry must not change what runs.
    pub(super) fn pin(&self, before: Option<&Services>, mut services: Services) -> Services {
        for (name, spec) in &mut services {
            let found = self.of(&spec.container);
            let known = before.and_then(|before| before.get(name)).filter(|known| {
                known.container.image == spec.container.image
                    && (known.container.digest.is_some() || known.unpinned.is_some())
            });
            let (digest, unpinned) = match (found, known) {
                (Some(ResolvedImage { trouble: Some(_), .. }), Some(known)) => {
                    (known.container.digest.clone(), known.unpinned)
                }
                (Some(found), _) => (found.digest.clone(), found.unpinned),
                (None, _) => (None, None),
            };
            set(spec, digest, unpinned);
        }
        services
    }

    /// What went wrong, and which images are nobody's but their node's, for the services that are written.
    pub(super) fn warnings(
        &self,
        deployment: &DeploymentName,
        before: Option<&Services>,
        after: &Services,
    ) -> Vec<Reason> {
        let mut warnings = Vec::new();
        for (name, spec) in after {
            let Some(found) = self.of(&spec.container) else { continue };
            let known = before.and_then(|before| before.get(name));
            let image = &spec.container.image;
            let text = match (&found.trouble, &spec.container.digest, spec.unpinned) {
                (None, _, Some(unpinned)) if known != Some(spec) => format!("{image} {unpinned}"),
                (Some(trouble), Some(digest), _) => {
                    format!(
                        "{image} is used as {}, by what is known of it: {trouble}",
                        short(digest)
                    )
                }
                (Some(trouble), None, _) => {
                    format!(
                        "{image} is used by its tag, which nodes may pull differently: {trouble}"
                    )
                }
                (None, _, _) => continue,
            };
            let key = ServiceKey::new(deployment.clone(), name.clone());
            warnings.push(Reason::new(&key, ReasonCode::ImageNotPinned, text));
        }
        warnings
    }
}

/// The services as if nobody had moved a tag: what is to be judged before registries are asked.
pub(super) fn as_deployed(before: Option<&Services>, mut services: Services) -> Services {
    for (name, spec) in &mut services {
        let known = before.and_then(|before| before.get(name));
        let known = known.filter(|known| known.container.image == spec.container.image);
        let digest = known.and_then(|known| known.container.digest.clone());
        set(spec, digest, known.and_then(|known| known.unpinned));
    }
    services
}

/// The first digits are enough for people.
fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}

fn set(spec: &mut Arc<ServiceSpec>, digest: Option<String>, unpinned: Option<UnpinnedImage>) {
    if spec.container.digest != digest {
        let changed = Arc::make_mut(spec);
        changed.container.digest = digest;
        changed.hash = SpecHash::of(&changed.container);
    }
    if spec.unpinned != unpinned {
        Arc::make_mut(spec).unpinned = unpinned;
    }
    // What a client says of it does not count either: nodes know.
    if spec.declared != DeclaredVolumes::default() {
        Arc::make_mut(spec).declared = DeclaredVolumes::default();
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::ServiceName;
    use plimsoll_model::testkit::spread;

    use super::*;

    const IMAGE: &str = "r.example/web:1";

    fn digest(byte: &str) -> String {
        format!("sha256:{}", byte.repeat(32))
    }

    fn services(spec: ServiceSpec) -> Services {
        [(ServiceName::new("web").unwrap(), Arc::new(spec))].into()
    }

    fn answer(found: ResolvedImage) -> ResolvedImages {
        let key = ImageKey { image: IMAGE.to_owned(), is_always_pulled: false };
        ResolvedImages([(key, found)].into())
    }

    fn registry(byte: &str) -> ResolvedImages {
        answer(ResolvedImage { digest: Some(digest(byte)), ..ResolvedImage::default() })
    }

    fn trouble(unpinned: UnpinnedImage, digest: Option<String>) -> ResolvedImages {
        let trouble = Some("connection refused".to_owned());
        let unpinned = digest.is_none().then_some(unpinned);
        answer(ResolvedImage { digest, unpinned, trouble })
    }

    fn pins(services: &Services) -> Vec<(Option<String>, Option<UnpinnedImage>)> {
        services.values().map(|spec| (spec.container.digest.clone(), spec.unpinned)).collect()
    }

    fn told(found: &ResolvedImages, before: Option<&Services>, after: &Services) -> Vec<String> {
        let shop = DeploymentName::new("shop").unwrap();
        found.warnings(&shop, before, after).into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn what_the_registry_says_becomes_part_of_the_spec_and_its_hash() {
        let written = services(spread(1).image(IMAGE));
        let first = registry("aa").pin(None, written.clone());
        assert_eq!(pins(&first), [(Some(digest("aa")), None)]);
        let again = registry("aa").pin(Some(&first), written.clone());
        assert_eq!(again, first, "the same again changes nothing");
        let moved = registry("bb").pin(Some(&first), written);
        assert_eq!(pins(&moved), [(Some(digest("bb")), None)]);
        let hash = |of: &Services| of.values().next().unwrap().hash;
        assert_ne!(hash(&moved), hash(&first), "a tag that was moved is a change");
        assert_eq!(told(&registry("bb"), Some(&first), &moved), [""; 0]);
    }

    #[test]
    fn what_a_client_says_of_digests_does_not_count() {
        let mut spec = spread(1).image(IMAGE);
        (spec.container.digest, spec.unpinned) = (Some(digest("ee")), Some(UnpinnedImage::Local));
        for (case, found, expected) in [
            ("the registry knows", registry("aa"), (Some(digest("aa")), None)),
            ("nobody knows of images", ResolvedImages::default(), (None, None)),
        ] {
            assert_eq!(pins(&found.pin(None, services(spec.clone()))), [expected], "{case}");
        }
    }

    #[test]
    fn while_a_registry_does_not_answer_what_runs_stays() {
        let written = services(spread(1).image(IMAGE));
        let outage = trouble(UnpinnedImage::Unreachable, None);
        let first = registry("aa").pin(None, written.clone());
        let after = outage.pin(Some(&first), written.clone());
        assert_eq!(after, first);
        assert_eq!(
            told(&outage, Some(&first), &after),
            [
                "r.example/web:1 is used as sha256:aaaaaaaaaaaa, by what is known of it: connection refused"
            ]
        );
        let other = services(spread(1).image("r.example/web:2"));
        let unknown = outage.pin(Some(&first), other);
        assert_eq!(pins(&unknown), [(None, None)], "nothing is known of another image");

        let fresh = outage.pin(None, written.clone());
        assert_eq!(pins(&fresh), [(None, Some(UnpinnedImage::Unreachable))]);
        assert_eq!(
            told(&outage, None, &fresh),
            [
                "r.example/web:1 is used by its tag, which nodes may pull differently: connection refused"
            ]
        );
        let denied = trouble(UnpinnedImage::Denied, None);
        assert_eq!(denied.pin(Some(&fresh), written.clone()), fresh, "no revision for a reason");
        let from_node = trouble(UnpinnedImage::Unreachable, Some(digest("cc")));
        assert_eq!(pins(&from_node.pin(None, written)), [(Some(digest("cc")), None)]);
    }

    #[test]
    fn an_image_of_no_registry_is_told_once() {
        let found = answer(ResolvedImage {
            unpinned: Some(UnpinnedImage::Local),
            ..ResolvedImage::default()
        });
        let written = services(spread(1).image(IMAGE));
        let first = found.pin(None, written.clone());
        let said =
            "r.example/web:1 comes from no registry; each node uses its own image of that name";
        assert_eq!(told(&found, None, &first), [said]);
        let again = found.pin(Some(&first), written);
        assert_eq!(told(&found, Some(&first), &again), [""; 0]);
    }
}
