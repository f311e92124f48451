//! The key that a cell seals its values in etcd with. The first server makes it, every other one is given it by hand, and each
//! keeps it in its data directory, under its unlock key where it has one: whoever reaches etcd alone can neither read the cell nor
//! be one of its servers.

use std::path::{Path, PathBuf};

use plimsoll_model::CellId;
use plimsoll_store::checked_file::FileFormat;
use plimsoll_store::disk::RealDisk;
use plimsoll_store::embedded::OpenError;
use plimsoll_store::keys::{CellKey, KeyringError, UnlockKey};
use plimsoll_store_etcd::cell_at;

use super::{Error, EtcdOptions};

const SEAL_KEY: FileFormat = FileFormat { magic: *b"plimssea", format: 1, name: "etcd seal key" };

fn path(dir: &Path) -> PathBuf {
    dir.join("etcd-seal.key")
}

/// The key that the node of a data directory keeps; none where it keeps none.
pub fn read(dir: &Path, unlock: Option<&UnlockKey>) -> Result<Option<CellKey>, Error> {
    let body = SEAL_KEY.read(&RealDisk, &path(dir)).map_err(OpenError::from)?;
    let Some(body) = body else { return Ok(None) };
    match CellKey::from_file(&body, unlock) {
        Ok(key) => Ok(Some(key)),
        Err(KeyringError::Locked) => Err(OpenError::Locked { dir: dir.to_owned() }.into()),
        Err(KeyringError::WrongKey) => {
            Err(OpenError::WrongUnlockKey { dir: dir.to_owned() }.into())
        }
        Err(why @ KeyringError::Damaged) => {
            Err(Error::NodeFile { path: path(dir), why: why.to_string() })
        }
    }
}

fn write(dir: &Path, key: &CellKey, unlock: Option<&UnlockKey>) -> Result<(), Error> {
    let path = path(dir);
    let written = key.to_file(unlock).and_then(|body| SEAL_KEY.write(&RealDisk, &path, &body));
    written.map_err(|source| Error::Io { action: "write", path, source })
}

/// Keeps the key of a stopped node under another unlock key, or under none. False: it has no such key.
pub fn change_lock(
    dir: &Path,
    from: Option<&UnlockKey>,
    to: Option<&UnlockKey>,
) -> Result<bool, Error> {
    let _held = super::etcd::lock(dir)?;
    let Some(key) = read(dir, from)? else { return Ok(false) };
    write(dir, &key, to)?;
    Ok(true)
}

/// A key that is in use from now on, kept before anything is sealed with it.
#[derive(Debug)]
pub(super) struct SealKey {
    pub(super) key: CellKey,
    dir: PathBuf,
    /// What was kept before.
    before: Option<CellKey>,
}

impl SealKey {
    /// What was given, else what is kept, else a new one where there is no cell yet.
    pub(super) async fn of(
        dir: &Path,
        said: &EtcdOptions,
        cell_id: &CellId,
        unlock: Option<&UnlockKey>,
    ) -> Result<Self, Error> {
        let before = read(dir, unlock)?;
        let key = match (said.given_seal_key()?, &before) {
            (Some(given), _) => given,
            (None, Some(kept)) => kept.clone(),
            (None, None) => fresh(said, cell_id).await?,
        };
        // Also where it is known: it is locked from the first start with an unlock key on.
        if before.as_ref() != Some(&key) || unlock.is_some() {
            write(dir, &key, unlock)?;
        }
        Ok(Self { key, dir: dir.to_owned(), before })
    }

    /// Nothing was sealed with it: what was kept before is kept again.
    pub(super) fn take_back(self, unlock: Option<&UnlockKey>) {
        match &self.before {
            Some(before) if *before != self.key => {
                let _ = write(&self.dir, before, unlock);
            }
            Some(_) => {}
            None => {
                let _ = std::fs::remove_file(path(&self.dir));
            }
        }
    }
}

/// A new key, unless there is a cell whose key this node lacks.
async fn fresh(said: &EtcdOptions, cell_id: &CellId) -> Result<CellKey, Error> {
    let found = cell_at(&said.config()?, &said.prefix_of(cell_id)).await?;
    match found.filter(|found| found.cell_id == *cell_id && !found.has_left) {
        Some(found) => Err(Error::Unfit(format!(
            "cell {cell_id} in etcd is sealed with key {}, which this node does not have; print it on a server of the cell with \
             `plimsoll cell etcd-seal-key`, and give it here with --etcd-seal-key-file FILE",
            found.seal
        ))),
        None => CellKey::generate().map_err(|source| {
            let path = PathBuf::from("/dev/urandom");
            Error::Io { action: "read random bytes from", path, source }
        }),
    }
}

impl EtcdOptions {
    fn given_seal_key(&self) -> Result<Option<CellKey>, Error> {
        let Some(file) = &self.seal_key_file else { return Ok(None) };
        let failed = |source| Error::Io { action: "read", path: file.clone(), source };
        let text = std::fs::read_to_string(file).map_err(failed)?;
        let key = text.parse().map_err(|why| {
            Error::Unfit(format!(
                "{}: {why}; `plimsoll cell etcd-seal-key` prints the right one",
                file.display()
            ))
        })?;
        Ok(Some(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path, key: Option<&CellKey>) -> EtcdOptions {
        let seal_key_file = key.map(|key| {
            let file = dir.join("given");
            std::fs::write(&file, format!("{key}\n")).unwrap();
            file
        });
        EtcdOptions { seal_key_file, ..EtcdOptions::default() }
    }

    #[tokio::test]
    async fn a_key_that_was_given_is_kept_under_the_unlock_key_and_taken_back_where_it_was_wrong() {
        let home = tempfile::tempdir().unwrap();
        let (dir, cell_id) = (home.path(), CellId::new("home").unwrap());
        let [first, second] = [0, 1].map(|_| CellKey::generate().unwrap());
        let unlock = UnlockKey::generate().unwrap();
        assert!(read(dir, None).unwrap().is_none());

        let given = SealKey::of(dir, &options(dir, Some(&first)), &cell_id, None).await.unwrap();
        assert_eq!(given.key, first);
        let kept = SealKey::of(dir, &options(dir, None), &cell_id, None).await.unwrap();
        assert_eq!(kept.key, first, "it is asked for once");
        let wrong = SealKey::of(dir, &options(dir, Some(&second)), &cell_id, None).await.unwrap();
        wrong.take_back(None);
        assert_eq!(read(dir, None).unwrap(), Some(first.clone()));

        let locked = SealKey::of(dir, &options(dir, None), &cell_id, Some(&unlock)).await.unwrap();
        assert_eq!(locked.key, first);
        assert!(matches!(read(dir, None), Err(Error::Store(OpenError::Locked { .. }))));
        assert!(!std::fs::read(path(dir)).unwrap().windows(32).any(|it| it == first.expose()));
        assert!(change_lock(dir, None, None).is_err());
        assert!(change_lock(dir, Some(&unlock), None).unwrap());
        assert_eq!(read(dir, None).unwrap(), Some(first));
    }
}
