//! The keyring of a store: made with it, renewed at every start, and kept under an unlock key where one is given.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_seal::Keyring;
pub use plimsoll_seal::{CellKey, InvalidKey, KeyId, KeyringError, UnlockKey};

use crate::checked_file::FileFormat;
use crate::disk::Disk;
use crate::embedded::OpenError;

const KEYRING: FileFormat = FileFormat { magic: *b"plimskey", format: 1, name: "keyring" };

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("keyring")
}

/// The keyring of a data directory; none where there is none yet. One that is not locked opens with any key.
pub(crate) fn read(
    disk: &dyn Disk,
    data_dir: &Path,
    unlock: Option<&UnlockKey>,
) -> Result<Option<Arc<Keyring>>, OpenError> {
    let Some(body) = KEYRING.read(disk, &path(data_dir))? else { return Ok(None) };
    let dir = || data_dir.to_owned();
    match Keyring::from_bytes(&body, unlock) {
        Ok(keys) => Ok(Some(Arc::new(keys))),
        Err(KeyringError::Locked) => Err(OpenError::Locked { dir: dir() }),
        Err(KeyringError::WrongKey) => Err(OpenError::WrongUnlockKey { dir: dir() }),
        Err(why @ KeyringError::Damaged) => {
            let (path, what) = (path(data_dir), why.to_string());
            Err(crate::checked_file::Unreadable::Damaged { path, what }.into())
        }
    }
}

/// Puts the keyring in place of the one before, whole or not at all.
pub(crate) fn write(
    disk: &dyn Disk,
    data_dir: &Path,
    keys: &Keyring,
    unlock: Option<&UnlockKey>,
) -> Result<(), OpenError> {
    let path = path(data_dir);
    let written = keys.to_bytes(unlock).and_then(|body| KEYRING.write(disk, &path, &body));
    OpenError::io("write", &path, written)
}

/// A keyring for a store that is about to be made.
pub(crate) fn generate(
    disk: &dyn Disk,
    data_dir: &Path,
    unlock: Option<&UnlockKey>,
) -> Result<Arc<Keyring>, OpenError> {
    let keys = OpenError::io("make a key for", data_dir, Keyring::generate())?;
    write(disk, data_dir, &keys, unlock)?;
    Ok(Arc::new(keys))
}

/// Keeps the keyring of a stopped server under another unlock key, or under none.
pub fn change_lock(
    data_dir: &Path,
    from: Option<&UnlockKey>,
    to: Option<&UnlockKey>,
) -> Result<(), OpenError> {
    change_lock_on(&crate::disk::RealDisk, data_dir, from, to)
}

fn change_lock_on(
    disk: &dyn Disk,
    data_dir: &Path,
    from: Option<&UnlockKey>,
    to: Option<&UnlockKey>,
) -> Result<(), OpenError> {
    let missing = || OpenError::NoStore { dir: data_dir.to_owned() };
    let _held = crate::embedded::start::hold(disk, data_dir)?;
    let keys = read(disk, data_dir, from)?.ok_or_else(missing)?;
    write(disk, data_dir, &keys, to)
}

/// Whether the store of a data directory takes an unlock key.
pub fn is_locked(data_dir: &Path) -> Result<bool, OpenError> {
    let body = KEYRING.read(&crate::disk::RealDisk, &path(data_dir))?;
    Ok(body.is_some_and(|body| Keyring::is_locked(&body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;

    #[test]
    fn a_lock_is_changed_with_the_key_it_has_only() {
        let (disk, dir) = (SimDisk::new(), Path::new("data"));
        let [first, second] = [0, 1].map(|_| UnlockKey::generate().unwrap());
        let sealed = generate(&disk, dir, Some(&first)).unwrap().seal("x", b"it").unwrap();
        let change = |from, to| change_lock_on(&disk, dir, from, to);
        assert!(matches!(change(None, None), Err(OpenError::Locked { .. })));
        assert!(matches!(change(Some(&second), None), Err(OpenError::WrongUnlockKey { .. })));
        change(Some(&first), Some(&second)).unwrap();
        assert!(matches!(read(&disk, dir, Some(&first)), Err(OpenError::WrongUnlockKey { .. })));
        change(Some(&second), None).unwrap();
        let keys = read(&disk, dir, None).unwrap().unwrap();
        assert_eq!(keys.open("x", &sealed).unwrap(), b"it", "the data keys stay");
    }
}
