//! How an etcd is named on the command line, for the commands that use one.

use std::path::PathBuf;

use plimsoll_daemon::node::{EtcdOptions, Password};

/// Where a password is looked for that is in no file.
const PASSWORD: &str = "PLIMSOLL_ETCD_PASSWORD";

/// The shortest and the longest lease, in seconds.
const TTL: std::ops::RangeInclusive<u64> =
    plimsoll_store_etcd::MIN_TTL.as_secs()..=plimsoll_store_etcd::MAX_TTL.as_secs();

#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Etcd")]
pub(crate) struct EtcdArgs {
    /// etcd endpoints: https:// URLs, or http:// on this host, comma-separated
    #[arg(long = "etcd-endpoints", value_name = "URL,...", value_delimiter = ',')]
    endpoints: Vec<String>,
    /// Key prefix of the cell [default: /plimsoll/<cell>/]
    #[arg(long = "etcd-prefix", value_name = "PREFIX")]
    prefix: Option<String>,
    /// TTL of the leader's lease, 2 to 60 seconds [default: 15]
    #[arg(long = "etcd-ttl", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(TTL))]
    ttl: Option<u64>,
    /// Allow http:// to an etcd on another host: its passwords, and what the cell does not seal, travel unencrypted
    #[arg(long = "etcd-allow-plaintext")]
    allow_plaintext: bool,
    /// CA certificate of etcd, for https
    #[arg(long = "etcd-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long = "etcd-cert", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long = "etcd-key", value_name = "FILE")]
    key: Option<PathBuf>,
    /// etcd user, if authentication is enabled
    #[arg(long = "etcd-user", value_name = "NAME")]
    user: Option<String>,
    /// File with the password of the etcd user [default: `PLIMSOLL_ETCD_PASSWORD`]
    #[arg(long = "etcd-password-file", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// File with the key that the cell's values in etcd are sealed with; only the first server of a cell needs none
    #[arg(long = "etcd-seal-key-file", value_name = "FILE")]
    seal_key_file: Option<PathBuf>,
}

impl EtcdArgs {
    /// What was typed, with paths that hold wherever the daemon is started the next time.
    pub(crate) fn options(&self) -> EtcdOptions {
        let absolute = |path: &Option<PathBuf>| {
            let path = path.clone()?;
            Some(std::path::absolute(&path).unwrap_or(path))
        };
        let password = std::env::var(PASSWORD).ok().filter(|_| self.password_file.is_none());
        EtcdOptions {
            endpoints: self.endpoints.clone(),
            prefix: self.prefix.clone(),
            ttl_seconds: self.ttl,
            allow_plaintext: self.allow_plaintext,
            ca: absolute(&self.ca),
            certificate: absolute(&self.cert),
            key: absolute(&self.key),
            user: self.user.clone(),
            password_file: absolute(&self.password_file),
            password: password.map(Password),
            seal_key_file: absolute(&self.seal_key_file),
        }
    }
}
