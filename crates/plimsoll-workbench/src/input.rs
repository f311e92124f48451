//! Reads a file, or stdin where `-` stands for it, whole and up to a bound.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use plimsoll_api::suggest;

use crate::mistake::InputText;
use crate::text::count;

/// No file plimsoll reads comes near it; what does is the wrong file, or never ends.
const MAX_BYTES: u64 = 64 << 20;

/// Where text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Stdin,
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{} is a directory", path.display())]
    Directory { path: PathBuf, inside: Option<PathBuf> },
    #[error("there is no file {shown}")]
    NotFound { shown: String, near: Option<String> },
    #[error("cannot read {shown}")]
    Unreadable { shown: String, source: io::Error },
    #[error("{shown} has{} more than the {MAX_BYTES} read", size.map_or_else(String::new, |size| format!(" {size} bytes,")))]
    TooLarge { shown: String, size: Option<u64> },
    #[error("{shown}:{line}: byte {at} is 0x{byte:02x}, not UTF-8")]
    NotUtf8 { shown: String, line: usize, at: usize, byte: u8 },
}

impl InputError {
    /// Whether another file, or the same one put right, would do: else the world is at fault.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Unreadable { .. })
    }

    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Directory { inside: Some(inside), .. } => {
                format!("name a file in it: {}", inside.display())
            }
            Self::Directory { path, inside: None } => {
                format!("name a file; {} has no YAML or JSON", path.display())
            }
            Self::NotFound { near: Some(near), .. } => near.clone(),
            Self::NotFound { near: None, .. } => "check the path; `-` reads stdin".to_owned(),
            Self::Unreadable { .. } => return None,
            Self::TooLarge { .. } => "is this the right file?".to_owned(),
            Self::NotUtf8 { .. } => "save the file as UTF-8".to_owned(),
        };
        Some(hint)
    }
}

impl Input {
    pub fn of(argument: &str) -> Self {
        if argument == "-" { Self::Stdin } else { Self::File(PathBuf::from(argument)) }
    }

    /// As messages name it.
    pub fn shown(&self) -> String {
        match self {
            Self::Stdin => "<stdin>".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// What paths written in it are relative to.
    pub fn directory(&self) -> PathBuf {
        match self {
            Self::Stdin => PathBuf::from("."),
            Self::File(path) => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            },
        }
    }

    pub fn read(&self) -> Result<Vec<u8>, InputError> {
        let bytes = match self {
            Self::Stdin => bounded(io::stdin().lock()),
            Self::File(path) => {
                if path.is_dir() {
                    let inside = first_document(path);
                    return Err(InputError::Directory { path: path.clone(), inside });
                }
                File::open(path).and_then(bounded)
            }
        };
        let bytes = bytes.map_err(|error| self.unreadable(error))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(InputError::TooLarge { shown: self.shown(), size: self.size() });
        }
        Ok(bytes)
    }

    /// Reads text; a byte that is not UTF-8 is refused with its place.
    pub fn read_text(&self) -> Result<InputText, InputError> {
        let bytes = self.read()?;
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
        let text = String::from_utf8(bytes.to_vec()).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..at].split(|byte| *byte == b'\n').count();
            InputError::NotUtf8 { shown: self.shown(), line, at, byte: error.as_bytes()[at] }
        })?;
        Ok(InputText { name: self.shown(), text })
    }

    /// A file that is not there was named wrongly; anything else is the world's fault.
    fn unreadable(&self, source: io::Error) -> InputError {
        let shown = self.shown();
        match source.kind() {
            ErrorKind::NotFound => {
                let near = beside(Path::new(&shown));
                InputError::NotFound { shown, near }
            }
            _ => InputError::Unreadable { shown, source },
        }
    }

    fn size(&self) -> Option<u64> {
        match self {
            Self::Stdin => None,
            Self::File(path) => {
                fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|m| m.len())
            }
        }
    }
}

fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first file of a directory, by name, that could have been meant.
fn first_document(path: &Path) -> Option<PathBuf> {
    let inside = fs::read_dir(path).into_iter().flatten().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let extension = Path::new(&name).extension()?.to_str()?.to_owned();
        matches!(extension.as_str(), "yaml" | "yml" | "json").then_some(name)
    });
    inside.min().map(|name| path.join(name))
}

/// A file of almost that name in the same directory.
pub fn beside(path: &Path) -> Option<String> {
    let input = Input::File(path.to_owned());
    let wanted = path.file_name()?.to_str()?;
    let entries = fs::read_dir(input.directory()).ok()?;
    let names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let near = *suggest::nearest(wanted, names.iter().map(String::as_str)).first()?;
    Some(format!("did you mean {}?", path.with_file_name(near).display()))
}

/// `3 errors in a.yaml and b.yaml`
pub fn errors_in(errors: usize, files: &[String]) -> String {
    format!("{} in {}", count(errors, "error"), files.join(" and "))
}
