//! What this node may show a registry: the `config.json` that `docker login` writes, and the helpers it names.
//!
//! It is read at every pull, so that a login counts at once. Nothing here is ever printed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// How long a helper may take; it may have to ask a service of its vendor.
const HELPER_WAIT: Duration = Duration::from_secs(30);

/// What a helper says in place of a user when its secret is a token.
const TOKEN_USER: &str = "<token>";

/// Where the credentials lie. It holds none itself.
#[derive(Debug, Clone)]
pub(super) struct Keyring {
    pub(super) file: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct DockerConfig {
    auths: HashMap<String, Auth>,
    creds_store: Option<String>,
    cred_helpers: HashMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    #[serde(rename = "auth")]
    pair: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperCredentials {
    username: String,
    secret: String,
}

/// Where `docker login` writes for the user we are.
pub(super) fn default_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let dir = match set("DOCKER_CONFIG") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(set("HOME")?).join(".docker"),
    };
    Some(dir.join("config.json"))
}

impl Keyring {
    /// What to show this registry; none to ask it without. What cannot be read is said and left out: the registry's
    /// refusal would otherwise be a riddle.
    pub(super) async fn credentials(&self, registry: &str) -> Option<DockerCredentials> {
        let config = self.read()?;
        let host = host(registry);
        let helper = by_host(&config.cred_helpers, host).or(config.creds_store.as_ref());
        if let Some(helper) = helper {
            let credentials = ask(helper, registry).await;
            if credentials.is_some() {
                return credentials;
            }
        }
        let credentials = by_host(&config.auths, host).and_then(Auth::credentials)?;
        Some(DockerCredentials { serveraddress: Some(registry.to_owned()), ..credentials })
    }

    fn read(&self) -> Option<DockerConfig> {
        let path = self.file.as_deref()?;
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => {
                unreadable(path, &error);
                return None;
            }
        };
        // That it is wrong is said, but not in the parser's words: they may quote the file.
        let config = serde_json::from_slice(&text);
        config.map_err(|_| unreadable(path, &std::io::ErrorKind::InvalidData.into())).ok()
    }
}

fn unreadable(path: &Path, error: &std::io::Error) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(file = %path.display(), error, "pulling without credentials");
}

impl Auth {
    fn credentials(&self) -> Option<DockerCredentials> {
        let (username, password) = match &self.pair {
            Some(pair) if !pair.is_empty() => {
                let text = String::from_utf8(STANDARD.decode(pair.trim()).ok()?).ok()?;
                let (user, password) = text.split_once(':')?;
                // Some versions end it with a zero.
                (Some(user.to_owned()), Some(password.trim_end_matches('\0').to_owned()))
            }
            _ => (self.username.clone(), self.password.clone()),
        };
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (identitytoken, registrytoken) =
            (given(&self.identitytoken), given(&self.registrytoken));
        let is_empty = username.is_none() && identitytoken.is_none() && registrytoken.is_none();
        (!is_empty).then(|| DockerCredentials {
            username,
            password,
            identitytoken,
            registrytoken,
            ..DockerCredentials::default()
        })
    }
}

/// The entry for a host: keys may be written as addresses.
fn by_host<'a, T>(entries: &'a HashMap<String, T>, wanted: &str) -> Option<&'a T> {
    let exact = entries.get(wanted);
    exact.or_else(|| entries.iter().find(|(key, _)| host(key) == wanted).map(|(_, entry)| entry))
}

fn host(registry: &str) -> &str {
    let text = registry.split_once("://").map_or(registry, |(_, rest)| rest);
    text.split('/').next().unwrap_or(text)
}

/// Asks `docker-credential-<helper>`, as the Docker CLI does.
async fn ask(helper: &str, registry: &str) -> Option<DockerCredentials> {
    let program = format!("docker-credential-{helper}");
    let asked = async {
        let mut child = Command::new(&program)
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(registry.as_bytes()).await?;
        }
        child.wait_with_output().await
    };
    let output = match timeout(HELPER_WAIT, asked).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(program, error, "cannot run the credential helper");
            return None;
        }
        Err(_) => {
            tracing::warn!(program, "the credential helper timed out");
            return None;
        }
    };
    // It fails when it knows nothing of this registry.
    if output.status.success() { answer(&output.stdout, registry) } else { None }
}

fn answer(text: &[u8], registry: &str) -> Option<DockerCredentials> {
    let answer: HelperCredentials = serde_json::from_slice(text).ok()?;
    let serveraddress = Some(registry.to_owned());
    Some(if answer.username == TOKEN_USER {
        let identitytoken = Some(answer.secret);
        DockerCredentials { identitytoken, serveraddress, ..DockerCredentials::default() }
    } else {
        DockerCredentials {
            username: Some(answer.username),
            password: Some(answer.secret),
            serveraddress,
            ..DockerCredentials::default()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_answers_with_a_user_or_with_a_token() {
        let ask = |text: &str| answer(text.as_bytes(), "registry.example.org");
        let user = ask(r#"{"ServerURL": "x", "Username": "ash", "Secret": "birch"}"#).unwrap();
        assert_eq!(user.username.as_deref(), Some("ash"));
        assert_eq!(user.password.as_deref(), Some("birch"));
        let token = ask(r#"{"ServerURL": "x", "Username": "<token>", "Secret": "t"}"#).unwrap();
        assert_eq!((token.username, token.identitytoken.as_deref()), (None, Some("t")));
        assert!(ask("credentials not found").is_none());
    }

    #[tokio::test]
    async fn a_login_is_found_by_its_registry() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("config.json");
        let auth = STANDARD.encode("ash:b:rch");
        let text = format!(
            r#"{{"auths": {{
                "registry.example.org": {{"auth": "{auth}"}},
                "https://old.example.org/v1/": {{"username": "elm", "password": "fir"}},
                "token.example.org": {{"identitytoken": "t"}},
                "empty.example.org": {{}}
            }}, "credHelpers": {{"helped.example.org": "of-nobody"}}, "HttpHeaders": {{}}}}"#
        );
        std::fs::write(&file, text).unwrap();
        let keyring = Keyring { file: Some(file.clone()) };
        for (registry, expected) in [
            ("registry.example.org", Some((Some("ash"), Some("b:rch"), None))),
            ("old.example.org", Some((Some("elm"), Some("fir"), None))),
            ("token.example.org", Some((None, None, Some("t")))),
            ("empty.example.org", None),
            ("helped.example.org", None),
            ("other.example.org", None),
        ] {
            let found = keyring.credentials(registry).await;
            let found = found.as_ref().map(|found| {
                let texts = (&found.username, &found.password, &found.identitytoken);
                (texts.0.as_deref(), texts.1.as_deref(), texts.2.as_deref())
            });
            assert_eq!(found, expected, "{registry}");
        }
        std::fs::write(&file, "{ not json").unwrap();
        assert!(keyring.credentials("registry.example.org").await.is_none());
        assert!(Keyring { file: None }.credentials("registry.example.org").await.is_none());
    }
}
