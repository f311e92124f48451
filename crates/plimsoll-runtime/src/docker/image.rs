//! What an image brings along, and what the engine says of itself.

use std::collections::BTreeSet;

use bollard::models::HealthConfig;
use bollard::{ClientVersion, Docker};
use plimsoll_model::Millis;
use plimsoll_model::spec::{HealthTest, Healthcheck};

use super::engine::{EngineClient, names_podman};
use super::engine_error::EngineError;
use crate::runtime::Description;

/// The first version of the API that passes annotations on.
const ANNOTATIONS: ClientVersion = ClientVersion { major_version: 1, minor_version: 43 };

pub(super) async fn check(
    engine: &EngineClient,
    image: &str,
) -> Result<Option<Healthcheck>, EngineError> {
    let inspected = engine.client().await?.inspect_image(image).await?;
    Ok(inspected.config.and_then(|config| config.healthcheck).as_ref().and_then(healthcheck))
}

/// Where the image declares volumes.
pub(super) async fn volumes(
    engine: &EngineClient,
    image: &str,
) -> Result<BTreeSet<String>, EngineError> {
    let inspected = engine.client().await?.inspect_image(image).await?;
    let declared = inspected.config.and_then(|config| config.volumes).unwrap_or_default();
    Ok(declared.into_iter().collect())
}

fn healthcheck(check: &HealthConfig) -> Option<Healthcheck> {
    let words = check.test.as_deref().unwrap_or_default();
    let test = match words {
        [word, rest @ ..] if word == "CMD" => HealthTest::Command(rest.to_vec()),
        [word, line] if word == "CMD-SHELL" => HealthTest::Shell(line.clone()),
        [word] if word == "NONE" => HealthTest::Disabled,
        _ => return None,
    };
    let millis = |nanos: Option<i64>| {
        nanos.and_then(|nanos| u64::try_from(nanos / 1_000_000).ok()).map(Millis)
    };
    Some(Healthcheck {
        test,
        interval: millis(check.interval),
        timeout: millis(check.timeout),
        start_period: millis(check.start_period),
        start_interval: millis(check.start_interval),
        retries: check.retries.and_then(|retries| u32::try_from(retries).ok()),
    })
}

/// Whether it is a Podman that answers as a Docker engine.
pub(super) async fn is_podman(docker: &Docker) -> Result<bool, EngineError> {
    Ok(names_podman(&docker.version().await?))
}

/// `has_names` says whether somebody else than the engine answers for names of services.
pub(super) async fn describe(
    engine: &EngineClient,
    has_names: bool,
) -> Result<Description, EngineError> {
    let docker = engine.client().await?;
    let version = docker.version().await?;
    let is_podman = names_podman(&version);
    let mut limits = Vec::new();
    if !has_names {
        limits.push("service names resolve on this node only".to_owned());
    }
    if is_podman && has_names {
        limits.push("service names resolve on the first network of a container only".to_owned());
    }
    if is_podman {
        limits.push("images are not pinned to digests: the engine asks no registry".to_owned());
        limits.push(
            "a missing directory of a bind mount is made, also without create_host_path".to_owned(),
        );
        limits.push(
            "a health check that only the image has is not known: the engine does not tell it"
                .to_owned(),
        );
    }
    limits.push(
        "logs are kept as the engine is set up to keep them, where the service does not say"
            .to_owned(),
    );
    if docker.client_version() < ANNOTATIONS {
        limits.push("annotations are not used: the engine's API is older than 1.43".to_owned());
    }
    Ok(Description {
        name: if is_podman { "podman" } else { "docker" },
        version: format!(
            "{} (API {})",
            version.version.unwrap_or_default(),
            version.api_version.unwrap_or_default()
        ),
        limits,
    })
}
