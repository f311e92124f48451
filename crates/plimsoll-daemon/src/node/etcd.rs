//! A node whose log is on an etcd: which one, as whom, and where the keys of its cell are. What was said once is kept, but
//! for a password.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_etcd::{EtcdCredentials, EtcdTls};
use plimsoll_model::{CellId, NodeFacts, NodeId};
use plimsoll_store::disk::{Disk, RealDisk};
use plimsoll_store::embedded::{OpenError, cell_of};
use plimsoll_store::{Peer, ServerId};
use plimsoll_store_etcd::{Etcd, EtcdEngineConfig, cell_at};
use serde::{Deserialize, Serialize};

use super::etcd_seal::SealKey;
use super::node_file::NodeFile;
use super::{Error, NodeOptions, name, store_dir};
use crate::cell::log::{CellLog, Lock};

/// What keeps the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    Embedded,
    Etcd,
}

/// Where an etcd is and how it is used. What is left out is as it was the last time, or as it comes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EtcdOptions {
    pub endpoints: Vec<String>,
    /// What the keys of the cell begin with.
    pub prefix: Option<String>,
    /// How long the leader's lease lasts.
    pub ttl_seconds: Option<u64>,
    /// Whether etcd may be reached in the clear on another host.
    pub allow_plaintext: bool,
    /// The authority that signed etcd's certificate.
    pub ca: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    #[serde(skip)]
    pub password: Option<Password>,
    /// With the key that the cell seals its values with. What is in it is kept, and it can go.
    #[serde(skip)]
    pub seal_key_file: Option<PathBuf>,
}

/// It shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// What a node remembers of its etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EtcdRecord {
    pub(super) cell_id: CellId,
    pub(super) server: u64,
    #[serde(flatten)]
    pub(super) options: EtcdOptions,
}

impl EtcdOptions {
    /// Whether anything was said that only an etcd has. A password in the environment is not said of this node.
    fn is_silent(&self) -> bool {
        Self { password: None, ..self.clone() } == Self::default()
    }

    pub(super) fn or(&self, before: &Self) -> Self {
        let said = self.clone();
        let certificate = said.certificate.is_some() || said.key.is_some();
        let before_certificate = if certificate { &Self::default() } else { before };
        Self {
            endpoints: if said.endpoints.is_empty() {
                before.endpoints.clone()
            } else {
                said.endpoints
            },
            prefix: said.prefix.or_else(|| before.prefix.clone()),
            ttl_seconds: said.ttl_seconds.or(before.ttl_seconds),
            allow_plaintext: said.allow_plaintext || before.allow_plaintext,
            ca: said.ca.or_else(|| before.ca.clone()),
            certificate: said.certificate.or_else(|| before_certificate.certificate.clone()),
            key: said.key.or_else(|| before_certificate.key.clone()),
            user: said.user.or_else(|| before.user.clone()),
            password_file: said.password_file.or_else(|| before.password_file.clone()),
            password: said.password,
            seal_key_file: said.seal_key_file,
        }
    }

    /// How etcd is reached, with the files read.
    pub fn config(&self) -> Result<plimsoll_etcd::EtcdConfig, Error> {
        let open = plimsoll_etcd::EtcdConfig::open(self.endpoints.clone());
        let in_the_clear = self.endpoints.iter().find(|it| plimsoll_etcd::is_exposed(it));
        if let Some(endpoint) = in_the_clear.filter(|_| !self.allow_plaintext) {
            return Err(Error::Unfit(format!(
                "{endpoint} is not encrypted and not on this host: etcd's passwords would travel in the clear, and others could \
                 change what is read; use https:// with --etcd-ca, or say --etcd-allow-plaintext"
            )));
        }
        Ok(plimsoll_etcd::EtcdConfig { tls: self.tls()?, credentials: self.credentials()?, ..open })
    }

    fn tls(&self) -> Result<Option<EtcdTls>, Error> {
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
            (None, None) => None,
            _ => return Err(unfit("--etcd-cert and --etcd-key go together: name both files")),
        };
        match &self.ca {
            Some(ca) => EtcdTls::from_files(ca, identity).map(Some).map_err(Error::Etcd),
            None if identity.is_some() => Err(unfit(
                "--etcd-cert goes with --etcd-ca, the authority of etcd's own certificate",
            )),
            None => Ok(None),
        }
    }

    fn credentials(&self) -> Result<Option<EtcdCredentials>, Error> {
        let Some(user) = self.user.clone() else {
            return match self.password_file {
                None => Ok(None),
                Some(_) => Err(unfit("--etcd-password-file goes with --etcd-user")),
            };
        };
        let password = match (&self.password, &self.password_file) {
            (Some(Password(password)), _) => password.clone(),
            (None, Some(path)) => {
                let failed = |source| Error::Io {
                    action: "read the password in",
                    path: path.clone(),
                    source,
                };
                let text = std::fs::read_to_string(path).map_err(failed)?;
                text.trim_end_matches(['\r', '\n']).to_owned()
            }
            (None, None) => {
                return Err(unfit(
                    "--etcd-user takes a password: name the file that holds it with --etcd-password-file, or set \
                     PLIMSOLL_ETCD_PASSWORD",
                ));
            }
        };
        Ok(Some(EtcdCredentials { user, password }))
    }

    /// What the keys of this cell begin with.
    pub fn prefix_of(&self, cell_id: &CellId) -> String {
        self.given_prefix().unwrap_or_else(|| format!("/plimsoll/{cell_id}/"))
    }

    fn given_prefix(&self) -> Option<String> {
        let mut prefix = self.prefix.clone()?;
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        Some(prefix)
    }
}

fn unfit(why: &str) -> Error {
    Error::Unfit(why.to_owned())
}

/// Which engine a node has: the one asked for, else the one of the last time. A data directory stays with its engine.
pub(super) fn choose(
    options: &NodeOptions,
    memory: Option<&NodeFile>,
) -> Result<EngineKind, Error> {
    let kept = memory.and_then(|memory| memory.etcd.as_ref());
    let dir = || options.data_dir.clone();
    let has_store = cell_of(&store_dir(&options.data_dir))?.is_some()
        || memory.is_some_and(|memory| memory.joined.is_some());
    let asked = options.engine.or((!options.etcd.is_silent()).then_some(EngineKind::Etcd));
    match (asked, kept.is_some()) {
        (Some(EngineKind::Embedded), true) => {
            Err(Error::OtherEngine { dir: dir(), found: "etcd", wanted: "embedded" })
        }
        (Some(EngineKind::Etcd), false) if has_store => {
            Err(Error::OtherEngine { dir: dir(), found: "embedded", wanted: "etcd" })
        }
        (Some(EngineKind::Embedded), false) if !options.etcd.is_silent() => {
            Err(unfit("the --etcd options go with --engine etcd"))
        }
        (Some(asked), _) => Ok(asked),
        (None, true) => Ok(EngineKind::Etcd),
        (None, false) => Ok(EngineKind::Embedded),
    }
}

/// Starts the log of this node on its etcd. On return it is read, and it is known who leads.
pub(super) async fn take(
    options: &NodeOptions,
    memory: Option<&NodeFile>,
    node: &NodeId,
    facts: &NodeFacts,
) -> Result<(CellLog, EtcdRecord), Error> {
    let kept = memory.and_then(|memory| memory.etcd.as_ref());
    let said = kept.map_or_else(|| options.etcd.clone(), |kept| options.etcd.or(&kept.options));
    if said.endpoints.is_empty() {
        return Err(unfit("--engine etcd takes --etcd-endpoints, such as http://10.0.0.1:2379"));
    }
    if options.join.is_some() && kept.is_none() {
        return Err(unfit(
            "a node that reaches etcd needs no token; leave out --join, or leave out the --etcd options for a node that \
             does not reach it",
        ));
    }
    let lock = lock(&options.data_dir)?;
    let etcd = said.config()?;
    let cell_id = cell_id(options, kept, &said, &etcd).await?;
    let server = match kept {
        Some(kept) => kept.server,
        None => name::number()?,
    };
    let unlock = options.unlock.as_ref();
    let seal = SealKey::of(&options.data_dir, &said, &cell_id, unlock).await?;
    let config =
        EtcdEngineConfig::scheduler(etcd, cell_id.clone(), ServerId(server), seal.key.clone());
    let address = facts.address.clone().unwrap_or_default();
    let config = EtcdEngineConfig {
        prefix: said.prefix_of(&cell_id),
        peer: Peer { name: node.to_string(), address },
        ttl: said.ttl_seconds.map_or(config.ttl, Duration::from_secs),
        is_known: kept.is_some(),
        ..config
    };
    let engine = match Etcd::start(config).await {
        Ok(engine) => engine,
        Err(error) => {
            // After the claim something may be sealed with it, and then it must not be lost.
            if error.is_before_claim() {
                seal.take_back(unlock);
            }
            return Err(error.into());
        }
    };
    let log = CellLog::Etcd { engine, lock: Arc::new(lock) };
    Ok((log, EtcdRecord { cell_id, server, options: said }))
}

async fn cell_id(
    options: &NodeOptions,
    kept: Option<&EtcdRecord>,
    said: &EtcdOptions,
    etcd: &plimsoll_etcd::EtcdConfig,
) -> Result<CellId, Error> {
    match (&options.cell_id, kept) {
        (Some(wanted), Some(EtcdRecord { cell_id: found, .. })) if wanted != found => {
            let (dir, found, wanted) = (options.data_dir.clone(), found.clone(), wanted.clone());
            Err(OpenError::OtherCell { dir, found, wanted }.into())
        }
        (Some(cell_id), _) | (None, Some(EtcdRecord { cell_id, .. })) => Ok(cell_id.clone()),
        (None, None) => {
            let found = match said.given_prefix() {
                Some(prefix) => cell_at(etcd, &prefix).await?,
                None => None,
            };
            found.map(|found| found.cell_id).ok_or_else(|| {
                unfit(
                    "name the cell with --cell, the same on all its nodes: its keys in etcd go by that name",
                )
            })
        }
    }
}

/// The lock on the data directory.
pub(super) fn lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join("lock");
    match RealDisk.lock(&path) {
        Ok(lock) => Ok(Lock::new(lock)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(OpenError::InUse { dir: dir.to_owned() }.into())
        }
        Err(source) => Err(Error::Io { action: "lock", path, source }),
    }
}

#[cfg(test)]
mod tests;
