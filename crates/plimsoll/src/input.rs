//! Reads a file, or stdin where `-` stands for it, whole and up to a bound.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::output::count;
use crate::trouble::Trouble;

/// No file plimsoll reads comes near it; what does is the wrong file, or never ends.
const MAX_BYTES: u64 = 64 << 20;

/// Where text came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Stdin,
    File(PathBuf),
}

impl Place {
    pub(crate) fn of(argument: &str) -> Self {
        if argument == "-" { Self::Stdin } else { Self::File(PathBuf::from(argument)) }
    }

    /// As messages name it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Stdin => "<stdin>".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// What paths written in it are relative to.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Self::Stdin => PathBuf::from("."),
            Self::File(path) => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            },
        }
    }

    pub(crate) fn read(&self) -> Result<Vec<u8>, Trouble> {
        let bytes = match self {
            Self::Stdin => bounded(io::stdin().lock()),
            Self::File(path) => {
                if path.is_dir() {
                    return Err(directory(path));
                }
                File::open(path).and_then(bounded)
            }
        };
        let bytes = bytes.map_err(|error| unreadable(&self.shown(), &error))?;
        if bytes.len() as u64 > MAX_BYTES {
            let size = self.size().map_or_else(String::new, |size| format!(" {size} bytes,"));
            let message = format!("{} has{size} more than the {MAX_BYTES} read", self.shown());
            return Err(Trouble::refused(message).hint("is this the right file?"));
        }
        Ok(bytes)
    }

    /// Reads text; a byte that is not UTF-8 is refused with its place.
    pub(crate) fn read_text(&self) -> Result<String, Trouble> {
        let bytes = self.read()?;
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
        String::from_utf8(bytes.to_vec()).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..at].split(|byte| *byte == b'\n').count();
            let wrong = error.as_bytes()[at];
            let shown = self.shown();
            Trouble::refused(format!("{shown}:{line}: byte {at} is 0x{wrong:02x}, not UTF-8"))
                .hint("save the file as UTF-8")
        })
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

fn directory(path: &Path) -> Trouble {
    let inside = fs::read_dir(path).into_iter().flatten().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let extension = Path::new(&name).extension()?.to_str()?.to_owned();
        matches!(extension.as_str(), "yaml" | "yml" | "json").then_some(name)
    });
    let first = inside.min();
    let trouble = Trouble::refused(format!("{} is a directory", path.display()));
    match first {
        Some(name) => trouble.hint(format!("name a file in it: {}", path.join(name).display())),
        None => trouble.hint(format!("name a file; {} has no YAML or JSON", path.display())),
    }
}

/// A file that is not there was named wrongly; anything else is the world's fault.
fn unreadable(shown: &str, error: &io::Error) -> Trouble {
    match error.kind() {
        ErrorKind::NotFound => Trouble::refused(format!("there is no file {shown}")).hint(
            beside(Path::new(shown))
                .unwrap_or_else(|| "check the path; `-` reads stdin".to_owned()),
        ),
        _ => Trouble::failed(format!("cannot read {shown}: {error}")),
    }
}

/// A file of almost that name in the same directory.
pub(crate) fn beside(path: &Path) -> Option<String> {
    let place = Place::File(path.to_owned());
    let wanted = path.file_name()?.to_str()?;
    let entries = fs::read_dir(place.directory()).ok()?;
    let names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let near = *crate::near::nearest(wanted, names.iter().map(String::as_str)).first()?;
    Some(format!("did you mean {}?", path.with_file_name(near).display()))
}

/// `3 errors in a.yaml and b.yaml`
pub(crate) fn errors_in(errors: usize, files: &[String]) -> String {
    format!("{} in {}", count(errors, "error"), files.join(" and "))
}
