//! Has an image here: by its policy, with the credentials of the cell or else this node's own, and once however many replicas
//! wait for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bollard::Docker;
use bollard::auth::DockerCredentials;
use bollard::query_parameters::CreateImageOptions;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, Shared, WeakShared};
use plimsoll_model::spec::{ImageReference, PullPolicy};
use tokio::time::timeout;

use super::credentials::Keyring;
use super::engine::{EngineClient, WORK_WAIT};
use super::engine_error::EngineError;
use super::locked;
use super::resolve;
use crate::error::PullError;
use crate::runtime::{ImageResolution, Pull};

/// How long a pull may be without news. The engine tells of every few kilobytes and of every layer it unpacks.
const SILENCE: Duration = Duration::from_mins(5);

type Outcome = Result<(), PullError>;

/// Pulls under way. Each lives as long as somebody waits for it: a pull that nobody wants any more ends.
#[derive(Debug)]
pub(super) struct Pulls {
    engine: Arc<EngineClient>,
    keyring: Keyring,
    running: Mutex<BTreeMap<Key, WeakShared<BoxFuture<'static, Outcome>>>>,
}

/// An image and the platform it is wanted for.
type Key = (String, Option<String>);

impl Pulls {
    pub(super) fn new(engine: Arc<EngineClient>, keyring: Keyring) -> Self {
        Self { engine, keyring, running: Mutex::default() }
    }

    pub(super) async fn pull(&self, pull: &Pull) -> Outcome {
        if pull.policy != PullPolicy::Always && self.is_here(pull).await? {
            return Ok(());
        }
        if pull.policy == PullPolicy::Never {
            return Err(PullError::NeverPulled { image: pull.image.clone() });
        }
        self.share(pull).await
    }

    pub(super) async fn resolve(&self, pull: &Pull) -> Result<ImageResolution, PullError> {
        resolve::resolve(&self.engine, &self.keyring, pull).await
    }

    /// An image for another platform is not the one that is wanted.
    async fn is_here(&self, pull: &Pull) -> Result<bool, PullError> {
        let classify = |fault| classify(pull, fault);
        let docker = self.engine.client().await.map_err(classify)?;
        match docker.inspect_image(&pull.image).await.map_err(EngineError::from) {
            Ok(image) => Ok(pull.platform.as_deref().is_none_or(|platform| {
                let part = |text: &Option<String>| text.clone().unwrap_or_default();
                is_for(
                    platform,
                    &part(&image.os),
                    &part(&image.architecture),
                    &part(&image.variant),
                )
            })),
            Err(fault) if fault.is_absent() => Ok(false),
            Err(fault) => Err(classify(fault)),
        }
    }

    fn share(&self, pull: &Pull) -> Shared<BoxFuture<'static, Outcome>> {
        let key = (pull.image.clone(), pull.platform.clone());
        let mut running = locked(&self.running);
        running.retain(|_, pull| pull.upgrade().is_some_and(|pull| pull.peek().is_none()));
        if let Some(shared) = running.get(&key).and_then(WeakShared::upgrade) {
            return shared;
        }
        let (engine, keyring) = (Arc::clone(&self.engine), self.keyring.clone());
        let pull = pull.clone();
        let fetch = async move {
            let fetched = fetch(&engine, &keyring, &pull).await;
            fetched.map_err(|fault| classify(&pull, fault))
        };
        let shared = fetch.boxed().shared();
        running.extend(shared.downgrade().map(|weak| (key, weak)));
        shared
    }
}

async fn fetch(engine: &EngineClient, keyring: &Keyring, pull: &Pull) -> Result<(), EngineError> {
    let docker = engine.client().await?.with_timeout(WORK_WAIT);
    let credentials = credentials(&docker, keyring, pull).await?;
    let reference = ImageReference::parse(&pull.image);
    let options = CreateImageOptions {
        from_image: Some(reference.name.to_owned()),
        tag: Some(reference.version().to_owned()),
        platform: pull.platform.clone().unwrap_or_default(),
        ..CreateImageOptions::default()
    };
    let mut news = Box::pin(docker.create_image(Some(options), None, credentials));
    loop {
        match timeout(SILENCE, news.next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(news)) => drop(news?),
            Err(_) => {
                let message = format!("timeout: no progress for {} s", SILENCE.as_secs());
                return Err(EngineError::Said { status: 504, message });
            }
        }
    }
}

/// What to show the registry: what came with the order, else what somebody logged in with on this node.
pub(super) async fn credentials(
    docker: &Docker,
    keyring: &Keyring,
    pull: &Pull,
) -> Result<Option<DockerCredentials>, EngineError> {
    let registry = ImageReference::parse(&pull.image).registry;
    if let Some(auth) = &pull.auth {
        return Ok(Some(DockerCredentials {
            username: Some(auth.user.clone()),
            password: Some(auth.password.expose().to_owned()),
            serveraddress: registry.map(str::to_owned),
            ..DockerCredentials::default()
        }));
    }
    let registry = match registry {
        Some(registry) => Some(registry.to_owned()),
        None => docker.info().await?.index_server_address,
    };
    Ok(match &registry {
        Some(registry) => keyring.credentials(registry).await,
        None => None,
    })
}

/// Whether an image of `os`/`architecture`/`variant` serves a platform; what is not said of either matches.
fn is_for(platform: &str, os: &str, architecture: &str, variant: &str) -> bool {
    let parts: Vec<&str> = platform.split('/').collect();
    let (wanted_os, wanted) = match parts.as_slice() {
        // One word is an operating system or an architecture; there are few of the former.
        [word] if matches!(*word, "linux" | "windows") => (*word, &[][..]),
        [_] => ("", &parts[..]),
        [os, rest @ ..] => (*os, rest),
        [] => ("", &[][..]),
    };
    let found = [architecture, variant];
    let agree = |wanted: &str, found: &str| {
        wanted.is_empty() || found.is_empty() || wanted.eq_ignore_ascii_case(found)
    };
    agree(wanted_os, os) && wanted.iter().zip(found).all(|(wanted, found)| agree(wanted, found))
}

/// What became of it, from what was said. Registries and engines put it in words, so words are what we go by; in doubt
/// it is [`PullError::Other`], which keeps them all the same.
pub(super) fn classify(pull: &Pull, fault: EngineError) -> PullError {
    let image = pull.image.clone();
    let error = match fault {
        EngineError::Said { message, .. } => message,
        EngineError::Silent(text) => {
            let error = format!("docker does not answer: {text}");
            return PullError::Unavailable { image, error };
        }
        other => return PullError::Other { image, error: other.to_string() },
    };
    let text = error.to_ascii_lowercase();
    let says = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    // The order matters: a registry that hides what it denies says both "denied" and "does not exist".
    if says(&["no space left on device"]) {
        PullError::NoSpace { image, error }
    } else if says(&[
        "no matching manifest",
        "does not match the specified platform",
        "does not provide the specified platform",
    ]) {
        let platform = pull.platform.as_deref().unwrap_or("this node").to_owned();
        PullError::WrongPlatform { image, platform, error }
    } else if says(&[
        "denied",
        "unauthorized",
        "no basic auth credentials",
        "authentication required",
        "incorrect username",
        "forbidden",
    ]) {
        let user = pull.auth.as_ref().map(|auth| auth.user.clone());
        PullError::Denied { image, error, user }
    } else if says(&[
        "connection refused",
        "no such host",
        "timeout",
        "deadline exceeded",
        "unreachable",
        "server misbehaving",
        "connection reset",
        "tls: ",
        "x509: ",
        ": eof",
        "no route to host",
        "too many requests",
        "toomanyrequests",
    ]) {
        PullError::Unreachable { image, error }
    } else if says(&["manifest unknown", "not found", "name unknown", "repository name not known"])
    {
        PullError::NotFound { image, error }
    } else {
        PullError::Other { image, error }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_model::ContainerSpec;
    use plimsoll_model::registries::{RegistryAuth, RegistryHost, RegistryPassword};

    use super::*;

    fn pull(image: &str, platform: Option<&str>) -> Pull {
        Pull::of(&ContainerSpec {
            image: image.to_owned(),
            platform: platform.map(str::to_owned),
            ..ContainerSpec::default()
        })
    }

    #[test]
    fn whoever_is_denied_is_told_how_to_log_in() {
        let said = |pull: &Pull| {
            let message = "no basic auth credentials".to_owned();
            classify(pull, EngineError::Said { status: 500, message }).to_string()
        };
        let mut pull = pull("r.example:5000/web:1", None);
        assert_eq!(
            said(&pull),
            "the registry denied access to r.example:5000/web:1: no basic auth credentials; log in with \
             `plimsoll registry login r.example:5000 -u USER --password-stdin`"
        );
        pull = pull.with_auth(Some(Arc::new(RegistryAuth {
            registry: RegistryHost::parse("r.example:5000").unwrap(),
            user: "ash".to_owned(),
            password: RegistryPassword::new("birch"),
        })));
        assert_eq!(
            said(&pull),
            "the registry denied user ash access to r.example:5000/web:1: no basic auth credentials; log in again \
             with `plimsoll registry login r.example:5000 -u ash --password-stdin`"
        );
    }

    #[test]
    fn what_a_registry_says_is_understood_and_kept() {
        for (message, expected) in [
            ("manifest for r/a:9 not found: manifest unknown: manifest unknown", "does not exist"),
            ("repository r/a not found: does not exist or no pull access", "does not exist"),
            (
                "pull access denied for r/a, repository does not exist or may require 'docker login'",
                "denied access to",
            ),
            ("Head \"http://r/v2/a/manifests/1\": no basic auth credentials", "denied access to"),
            (
                "Get \"http://r/v2/\": dial tcp 127.0.0.1:1: connect: connection refused",
                "does not answer",
            ),
            ("Get \"https://r/v2/\": net/http: TLS handshake timeout", "does not answer"),
            ("no matching manifest for linux/arm64 in the manifest list entries", "no build for"),
            ("failed to register layer: write /x: no space left on device", "no disk space"),
            ("invalid reference format", "cannot pull r/a:1"),
        ] {
            let fault = EngineError::Said { status: 404, message: message.to_owned() };
            let error = classify(&pull("r/a:1", Some("linux/arm64")), fault);
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains(message), "{text}");
            assert_eq!(error.image(), "r/a:1");
        }
        let error = classify(&pull("a:1", None), EngineError::Silent("gone".into()));
        assert_eq!(error.to_string(), "cannot pull a:1: docker does not answer: gone");
    }

    #[test]
    fn an_image_for_another_platform_is_not_here() {
        for (platform, os, architecture, variant, expected) in [
            ("linux/amd64", "linux", "amd64", "", true),
            ("linux/arm64", "linux", "amd64", "", false),
            ("linux/arm/v7", "linux", "arm", "v6", false),
            ("linux/arm64/v8", "linux", "arm64", "", true),
            ("windows/amd64", "linux", "amd64", "", false),
            ("amd64", "linux", "amd64", "", true),
            ("linux", "linux", "arm64", "", true),
        ] {
            assert_eq!(is_for(platform, os, architecture, variant), expected, "{platform}");
        }
    }
}
