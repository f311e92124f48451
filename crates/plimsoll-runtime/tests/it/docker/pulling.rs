use std::time::Duration;

use base64::Engine as _;
use bollard::query_parameters::{RemoveImageOptions, TagImageOptions};
use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::PullPolicy;
use plimsoll_runtime::{DockerRuntime, Pull, PullError, Runtime};

use super::harness::{TestCell, lab, unique};

fn pull(image: &str, policy: PullPolicy) -> Pull {
    let spec =
        ContainerSpec { image: image.into(), pull: Some(policy), ..ContainerSpec::default() };
    Pull::of(&spec)
}

/// An image under a name of the test's own, so that tests do not take it from each other.
async fn tagged(cell: &TestCell, repository: &str) -> String {
    let tag = unique();
    let options = TagImageOptions { repo: Some(repository.to_owned()), tag: Some(tag.clone()) };
    let image = lab("IMAGE").expect("an image is there where an engine is");
    cell.docker.tag_image(&image, Some(options)).await.expect("a tag");
    format!("{repository}:{tag}")
}

async fn forget(cell: &TestCell, image: &str) {
    let options: Option<RemoveImageOptions> = None;
    let _ = cell.docker.remove_image(image, options, None).await;
}

#[tokio::test]
async fn an_image_comes_from_a_registry() {
    let (Some(cell), Some(registry)) = (TestCell::new(), lab("REGISTRY")) else { return };
    let image = format!("{registry}/plimsoll-test:1");
    let missing = pull(&image, PullPolicy::Missing);
    let both = tokio::join!(cell.runtime.pull(&missing), cell.runtime.pull(&missing));
    assert_eq!(both, (Ok(()), Ok(())));
    cell.docker.inspect_image(&image).await.unwrap();
    cell.runtime.pull(&pull(&image, PullPolicy::Always)).await.unwrap();
    cell.runtime.pull(&pull(&image, PullPolicy::Never)).await.unwrap();
    forget(&cell, &image).await;
}

#[tokio::test]
async fn a_policy_says_whether_the_registry_is_asked() {
    let Some(cell) = TestCell::new() else { return };
    // Nothing listens on this port, so whoever asks fails.
    let image = tagged(&cell, "127.0.0.1:1/plimsoll-test").await;
    cell.runtime.pull(&pull(&image, PullPolicy::Missing)).await.unwrap();
    cell.runtime.pull(&pull(&image, PullPolicy::Never)).await.unwrap();
    let asked = cell.runtime.pull(&pull(&image, PullPolicy::Always)).await;
    assert!(matches!(&asked, Err(PullError::Unreachable { .. })), "{asked:?}");
    let mut other = pull(&image, PullPolicy::Never);
    other.platform = Some("linux/s390x".into());
    let never = cell.runtime.pull(&other).await;
    assert_eq!(never, Err(PullError::NeverPulled { image: image.clone() }), "another platform's");
    forget(&cell, &image).await;
    let never = cell.runtime.pull(&pull(&image, PullPolicy::Never)).await;
    assert_eq!(never, Err(PullError::NeverPulled { image: image.clone() }));
}

#[tokio::test]
async fn a_tag_that_does_not_exist_is_told_in_the_registrys_words() {
    let (Some(cell), Some(registry)) = (TestCell::new(), lab("REGISTRY")) else { return };
    for name in ["plimsoll-test:nope", "nothing:1"] {
        let image = format!("{registry}/{name}");
        let error = cell.runtime.pull(&pull(&image, PullPolicy::Missing)).await.unwrap_err();
        assert!(matches!(error, PullError::NotFound { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("{image} does not exist: ")), "{text}");
        // The containerd image store has words of its own.
        let is_told = ["manifest unknown", "not found"].iter().any(|words| text.contains(words));
        assert!(is_told, "{text}");
    }
}

#[tokio::test]
async fn a_locked_registry_opens_to_those_who_logged_in() {
    let (Some(mut cell), Some(registry)) = (TestCell::new(), lab("PRIVATE_REGISTRY")) else {
        return;
    };
    let (Some(user), Some(password)) = (lab("REGISTRY_USER"), lab("REGISTRY_PASSWORD")) else {
        return;
    };
    let image = format!("{registry}/plimsoll-test:1");
    let missing = pull(&image, PullPolicy::Missing);
    let denied = cell.runtime.pull(&missing).await.unwrap_err();
    assert!(matches!(denied, PullError::Denied { .. }), "{denied:?}");

    let config = cell.path("config.json");
    cell.settings.credentials = Some(config.clone());
    let runtime = DockerRuntime::open(cell.settings.clone());
    for (password, is_right) in [("wrong", false), (password.as_str(), true)] {
        let auth = format!("{user}:{password}");
        let auth = base64::engine::general_purpose::STANDARD.encode(auth);
        let text = format!(r#"{{"auths": {{"{registry}": {{"auth": "{auth}"}}}}}}"#);
        std::fs::write(&config, text).unwrap();
        let pulled = runtime.pull(&missing).await;
        assert_eq!(pulled.is_ok(), is_right, "{pulled:?}");
        let printed = format!("{runtime:?} {pulled:?}");
        assert!(!printed.contains(password) && !printed.contains(&auth), "{printed}");
    }
    forget(&cell, &image).await;
}

#[tokio::test]
async fn a_pull_that_nobody_waits_for_ends() {
    let Some(cell) = TestCell::new() else { return };
    // A registry that accepts and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("{}/plimsoll-test:1", listener.local_addr().unwrap());
    let slow = pull(&image, PullPolicy::Missing);
    let waited = tokio::time::timeout(Duration::from_millis(300), cell.runtime.pull(&slow)).await;
    assert!(waited.is_err(), "{waited:?}");
    let here = cell.start(1, super::harness::idle()).await;
    assert!(cell.status(&here).await.is_some_and(|status| status.is_running()));
}
