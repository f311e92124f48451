//! The token that lets in who comes by TCP: random, made once, kept in the data directory for its owner alone.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

use super::socket::BindError;

const BYTES: usize = 32;

/// Where a daemon with this data directory keeps its token.
pub fn token_file(data_dir: &Path) -> PathBuf {
    data_dir.join("api.token")
}

#[derive(Clone)]
pub(super) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The token of this data directory; a new one where there is none yet.
    pub(super) fn of(data_dir: &Path) -> Result<Self, BindError> {
        let path = token_file(data_dir);
        match fs::read_to_string(&path) {
            Ok(text) if is_token(text.trim()) => Ok(Self(text.trim().to_owned())),
            Ok(_) => {
                let damaged = "it holds no token; remove it to get a new one";
                Err(BindError::file("use", &path, io::Error::other(damaged)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::make(&path).map_err(|error| BindError::file("write", &path, error))
            }
            Err(error) => Err(BindError::file("read", &path, error)),
        }
    }

    fn make(path: &Path) -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        let mut text = String::with_capacity(2 * BYTES);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        plimsoll_files::write(path, format!("{text}\n").as_bytes(), 0o600)?;
        Ok(Self(text))
    }

    /// Takes as long for one that is nearly right as for one that is all wrong.
    pub(super) fn admits(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

fn is_token(text: &str) -> bool {
    text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let token = Token::of(dir.path()).unwrap();
        assert!(is_token(&token.0));
        assert_eq!(Token::of(dir.path()).unwrap().0, token.0);
        let mode = fs::metadata(token_file(dir.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(token.admits(&token.0) && !token.admits("") && !token.admits(&token.0[1..]));
        fs::write(token_file(dir.path()), "").unwrap();
        Token::of(dir.path()).expect_err("an emptied file must not become an empty token");
    }
}
