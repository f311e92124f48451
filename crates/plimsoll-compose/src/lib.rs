//! Compose files to specs: given one or more files and an environment, the [`DeploymentSpec`] they describe, or
//! every mistake in them with its place. Where replicas run is decided in `plimsoll-kernel`.
//!
//! The path of a file: text to tree (`yaml`), variables (`interpolate`), what it extends and includes (`assemble`), files laid
//! over each other (`merge`), keys judged by the table (`fields`), values read (`service`), and what only shows in the whole (`check`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use plimsoll_model::spec::DeploymentSpec;

mod assemble;
mod check;
mod declared;
mod diagnostic;
mod disk;
mod dotenv;
mod fields;
mod interpolate;
mod keys;
mod load;
mod merge;
mod name;
mod paths;
mod read;
mod routes;
mod service;
mod traefik;
mod yaml;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use disk::Disk;
pub use dotenv::load_env;
pub use fields::{Field, FieldSupport, Section, field_table};
pub use load::load;
pub use traefik::{LabelRoutes, routes_from_labels};

/// A compose file as it was read.
#[derive(Debug, Clone)]
pub struct ComposeSource {
    /// The path shown in messages.
    pub name: String,
    pub text: Vec<u8>,
}

/// The files a compose file names, relative to the project's directory.
pub trait Files {
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;
}

/// What the command line and the shell add to the files.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// `-p`: wins over every name in the files.
    pub name: Option<String>,
    /// Active profiles; `*` stands for all.
    pub profiles: BTreeSet<String>,
    /// For interpolation, from [`load_env`].
    pub env: BTreeMap<String, String>,
    /// The deployment's name if nothing else names it, usually the directory's.
    pub default_name: String,
    /// What relative bind mounts are relative to. Left empty, they stay as written.
    pub directory: String,
}

/// A deployment and what its author should know about it.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub deployment: DeploymentSpec,
    pub warnings: Vec<Diagnostic>,
}
