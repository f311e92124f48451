//! The cells that a person has logged in to, each a file of its own with the token in it, and which of them is meant when
//! nobody says. Files are the owner's alone: one that others may read is not used, and no symbolic link is followed.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll_api::view::Time;
use plimsoll_files::modes::{self, Reach};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::default_paths::Who;
use crate::error::CliError;

/// The context of whoever uses none: the socket of this machine's daemon.
pub(crate) const DEFAULT: &str = "default";

/// The most bytes that a file may have; a context has a kilobyte.
const MAX_FILE: u64 = 64 << 10;

/// A cell, the way to it, and who one is there.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Context {
    pub(crate) name: String,
    pub(crate) cell: String,
    /// As the audit names whoever uses it.
    pub(crate) identity: String,
    pub(crate) role: String,
    pub(crate) expires_at: Option<Time>,
    /// Where the API of some nodes listens; any will do.
    pub(crate) addresses: Vec<String>,
    /// The fingerprints of the authorities that are believed.
    pub(crate) authorities: Vec<String>,
    /// Since which change of them; none until a node has said.
    #[serde(default)]
    pub(crate) authority_epoch: Option<u64>,
    /// Empty where a certificate is shown.
    pub(crate) token: String,
    /// The file with the certificate that is shown, and its key.
    #[serde(default)]
    pub(crate) certificate: Option<PathBuf>,
}

/// Where contexts are kept.
#[derive(Debug, Clone)]
pub(crate) struct ContextStore {
    dir: PathBuf,
}

impl ContextStore {
    pub(crate) fn of(who: &Who) -> Result<Self, CliError> {
        let dir = who.config_dir().ok_or_else(|| {
            CliError::failed(
                "there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set",
            )
        })?;
        Ok(Self { dir })
    }

    fn contexts(&self) -> PathBuf {
        self.dir.join("contexts")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.contexts().join(format!("{name}.json"))
    }

    /// All of them, by name.
    pub(crate) fn list(&self) -> Result<Vec<Context>, CliError> {
        let dir = self.contexts();
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(cannot("read", &dir, &error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| cannot("read", &dir, &error))?.path();
            if path.extension() == Some(OsStr::new("json"))
                && let Some(name) = path.file_stem().and_then(OsStr::to_str)
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        names.iter().filter_map(|name| self.load(name).transpose()).collect()
    }

    /// None where there is none of this name.
    pub(crate) fn load(&self, name: &str) -> Result<Option<Context>, CliError> {
        check_name(name)?;
        let path = self.file(name);
        let Some(text) = read_own(&path)? else { return Ok(None) };
        let damaged = |why: String| {
            CliError::failed(format!("{} is damaged: {why}", path.display()))
                .hint(format!("remove it with `plimsoll context rm {name}`, and log in again"))
        };
        let context: Context =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        Ok(Some(Context { name: name.to_owned(), ..context }))
    }

    pub(crate) fn save(&self, context: &Context) -> Result<(), CliError> {
        check_name(&context.name)?;
        self.prepare()?;
        let text = serde_json::to_string_pretty(context)
            .map_err(|error| CliError::failed(format!("cannot write the context: {error}")))?;
        write(&self.file(&context.name), &(text + "\n"))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), CliError> {
        check_name(name)?;
        let path = self.file(name);
        fs::remove_file(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Self::unknown(name),
            _ => cannot("remove", &path, &error),
        })
    }

    /// Which is meant when nobody says; none: the socket of this machine's daemon.
    pub(crate) fn current(&self) -> Result<Option<String>, CliError> {
        let name = read_own(&self.dir.join("current"))?;
        let name = name.map(|name| name.trim().to_owned());
        Ok(name.filter(|name| !name.is_empty() && name != DEFAULT))
    }

    pub(crate) fn set_current(&self, name: Option<&str>) -> Result<(), CliError> {
        self.prepare()?;
        write(&self.dir.join("current"), &format!("{}\n", name.unwrap_or(DEFAULT)))
    }

    /// What to say of a name that none has.
    pub(crate) fn unknown(name: &str) -> CliError {
        CliError::refused(format!("there is no context {name}")).hint(
            "`plimsoll context list` lists them; `plimsoll login STRING` makes one of what `plimsoll token create` prints",
        )
    }

    /// Makes the directories, or sees to it that they are nobody else's.
    fn prepare(&self) -> Result<(), CliError> {
        for dir in [&self.dir, &self.contexts()] {
            plimsoll_files::create_dir(dir, modes::DIR)
                .map_err(|error| cannot("create", dir, &error))?;
            let found =
                fs::symlink_metadata(dir).map_err(|error| cannot("look at", dir, &error))?;
            if !found.is_dir() {
                return Err(CliError::failed(format!(
                    "{} is a symbolic link, and tokens are not written through one",
                    dir.display()
                ))
                .hint("put a directory in its place, or set XDG_CONFIG_HOME"));
            }
            check_owner(dir, found.uid())?;
            modes::narrow(dir, modes::DIR, Reach::Itself)
                .map_err(|error| cannot("set the mode of", dir, &error))?;
        }
        Ok(())
    }
}

/// A context is a file of its name.
pub(crate) fn check_name(name: &str) -> Result<(), CliError> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = (1..=63).contains(&name.len()) && !name.starts_with(['.', '-']);
    if fits && name.chars().all(is_word) {
        return Ok(());
    }
    Err(CliError::refused(format!("{name:?} cannot be the name of a context"))
        .hint("use 1 to 63 letters, digits, '-', '_' and '.'"))
}

/// A file of this user that nobody else may read; none where there is none.
fn read_own(path: &Path) -> Result<Option<String>, CliError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(CWD, path, flags, Mode::empty()) {
        Ok(opened) => fs::File::from(opened),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            let message =
                format!("{} is a symbolic link, and none is followed to a token", path.display());
            return Err(CliError::failed(message).hint("put the file itself in its place"));
        }
        Err(error) => return Err(cannot("read", path, &error.into())),
    };
    let found = opened.metadata().map_err(|error| cannot("look at", path, &error))?;
    if !found.is_file() || found.len() > MAX_FILE {
        return Err(CliError::failed(format!("{} is not a file of plimsoll's", path.display())));
    }
    check_owner(path, found.uid())?;
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        let message = format!(
            "other users may open {} (mode {mode:04o}), which holds a token; it is not used",
            path.display()
        );
        return Err(CliError::failed(message)
            .hint("have the token revoked and log in again; if nobody else uses this machine, `chmod 600` it"));
    }
    let mut text = String::new();
    opened
        .take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(|error| cannot("read", path, &error))?;
    Ok(Some(text))
}

fn check_owner(path: &Path, owner: u32) -> Result<(), CliError> {
    let own = geteuid().as_raw();
    if owner == own || owner == 0 {
        return Ok(());
    }
    let message = format!("{} belongs to user {owner}, not to {own}", path.display());
    Err(CliError::failed(message).hint("under sudo, set XDG_CONFIG_HOME to a directory of root's"))
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    plimsoll_files::write(path, text.as_bytes(), modes::FILE)
        .map_err(|error| cannot("write", path, &error))
}

fn cannot(action: &str, path: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!("cannot {action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn store(dir: &Path) -> ContextStore {
        ContextStore { dir: dir.join("plimsoll") }
    }

    fn context(name: &str) -> Context {
        Context {
            name: name.to_owned(),
            cell: "home".to_owned(),
            identity: "token:ci".to_owned(),
            role: "deploy".to_owned(),
            expires_at: None,
            addresses: vec!["10.0.0.1:7654".to_owned()],
            authorities: vec!["00".repeat(32)],
            authority_epoch: None,
            token: "hush".to_owned(),
            certificate: None,
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_kept_is_the_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        assert!(store.list().unwrap().is_empty() && store.current().unwrap().is_none());
        store.save(&context("prod")).unwrap();
        store.set_current(Some("prod")).unwrap();
        assert_eq!(store.current().unwrap().as_deref(), Some("prod"));
        assert_eq!(store.load("prod").unwrap().unwrap().token, "hush");
        let modes = [&store.dir, &store.contexts(), &store.file("prod")].map(|path| mode(path));
        assert_eq!(modes, [0o700, 0o700, 0o600]);
        fs::set_permissions(&store.dir, fs::Permissions::from_mode(0o755)).unwrap();
        store.save(&context("test")).unwrap();
        assert_eq!(mode(&store.dir), 0o700, "what was opened is closed");
        let names: Vec<String> = store.list().unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["prod", "test"]);
        store.set_current(None).unwrap();
        assert_eq!(store.current().unwrap(), None);
        store.remove("prod").unwrap();
        assert!(store.load("prod").unwrap().is_none());
        assert!(store.remove("prod").unwrap_err().text().contains("there is no context prod"));
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_a_link_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        store.save(&context("prod")).unwrap();
        let (file, elsewhere) = (store.file("prod"), dir.path().join("elsewhere.json"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = store.load("prod").err().unwrap().text();
        assert!(refused.contains("(mode 0640)") && !refused.contains("hush"), "{refused}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(store.load("prod").err().unwrap().text().contains("symbolic link"));
        store.save(&context("prod")).unwrap();
        assert!(!fs::symlink_metadata(&file).unwrap().is_symlink(), "it takes the link's place");
        assert!(elsewhere.exists());

        fs::rename(store.contexts(), dir.path().join("moved")).unwrap();
        symlink(dir.path().join("moved"), store.contexts()).unwrap();
        let refused = store.save(&context("test")).unwrap_err().text();
        assert!(refused.contains("not written through one"), "{refused}");
    }

    #[test]
    fn a_name_is_no_path() {
        for name in ["", ".", "..", "../prod", "a/b", ".hidden", "-f", "grün", &"x".repeat(64)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["prod", "cell-1a2b", "ann.work_2"] {
            check_name(name).unwrap();
        }
    }
}
