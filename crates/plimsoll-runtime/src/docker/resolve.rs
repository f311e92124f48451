//! Which image a tag stands for now: the registry is asked through the engine, with the credentials of a pull.

use plimsoll_model::spec::{ImageReference, PullPolicy, is_digest};

use super::credentials::Keyring;
use super::engine::EngineClient;
use super::engine_error::EngineError;
use super::pull::{classify, credentials};
use crate::error::PullError;
use crate::runtime::{ImageResolution, Pull};

/// The registry's word counts. Where it cannot be had, what this node pulled earlier does: it is what the tag stood for then,
/// and all nodes get the same.
pub(super) async fn resolve(
    engine: &EngineClient,
    keyring: &Keyring,
    pull: &Pull,
) -> Result<ImageResolution, PullError> {
    let classify = |fault| classify(pull, fault);
    let docker = engine.client().await.map_err(classify)?;
    let local = match docker.inspect_image(&pull.image).await.map_err(EngineError::from) {
        Ok(image) => Some(image.repo_digests.unwrap_or_default()),
        Err(fault) if fault.is_absent() => None,
        Err(fault) => return Err(classify(fault)),
    };
    let reference = ImageReference::parse(&pull.image);
    let known = local.as_deref().and_then(|digests| digest_of(&reference, digests));
    // It was built, loaded or tagged here. A registry may have another image of that name, which is not the one that is meant.
    if pull.policy != PullPolicy::Always && local.is_some() && known.is_none() {
        return Ok(ImageResolution::Local);
    }
    let asked = async {
        let credentials = credentials(&docker, keyring, pull).await?;
        let found = docker.inspect_registry_image(&pull.image, credentials).await;
        let found = found.map_err(|error| match EngineError::from(error) {
            // Podman has the path, and answers that it has not.
            EngineError::Said { status: 404, message } if message.contains("is not supported") => {
                EngineError::Odd("this engine asks no registry what a tag stands for".to_owned())
            }
            other => other,
        })?;
        let digest = found.descriptor.digest.filter(|digest| is_digest(digest));
        digest.ok_or_else(|| EngineError::Odd("the registry named no digest".to_owned()))
    };
    let error = match asked.await {
        Ok(digest) => return Ok(ImageResolution::Registry { digest }),
        Err(fault) => classify(fault),
    };
    match (known, &error) {
        // It says that there is no such image, or not for us: what is here may have been taken back.
        (_, PullError::NotFound { .. } | PullError::Denied { .. }) | (None, _) => Err(error),
        (Some(digest), _) => Ok(ImageResolution::Node { digest, error }),
    }
}

/// An engine knows an image by each name it was pulled under.
fn digest_of(reference: &ImageReference<'_>, digests: &[String]) -> Option<String> {
    let known = digests.iter().map(|known| ImageReference::parse(known));
    let mut known = known.filter(|known| known.familiar_name() == reference.familiar_name());
    known.find_map(|known| known.digest.filter(|digest| is_digest(digest)).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_one_of_this_name() {
        let digest = |byte: &str| format!("sha256:{}", byte.repeat(32));
        let known = [format!("r.example/web@{}", digest("aa")), format!("nginx@{}", digest("bb"))];
        for (image, expected) in [
            ("nginx:1", Some(digest("bb"))),
            ("docker.io/library/nginx", Some(digest("bb"))),
            ("r.example/web:1", Some(digest("aa"))),
            ("r.example:5000/web:1", None),
            ("web:1", None),
        ] {
            assert_eq!(digest_of(&ImageReference::parse(image), &known), expected, "{image}");
        }
        assert_eq!(digest_of(&ImageReference::parse("a"), &["a@latest".to_owned()]), None);
    }
}
