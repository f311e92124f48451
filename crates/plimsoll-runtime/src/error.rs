//! What can go wrong with a runtime, and why a spec is refused.

use std::fmt;

use plimsoll_model::{CellId, RegistryHost};
use serde::Serialize;
use thiserror::Error;

use crate::runtime::Tag;

pub type Result<T, E = Error> = std::result::Result<T, E>;

type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot {operation} {object}")]
    Failed { operation: Operation, object: String, source: Cause },
    #[error("cannot start {tag}: {}", sentence(reasons))]
    Refused { tag: Tag, reasons: Vec<Reason> },
    #[error("cannot {operation} {tag}: not found on this node")]
    Absent { operation: Operation, tag: Tag },
    #[error("cannot {operation} {tag}: not running")]
    NotRunning { operation: Operation, tag: Tag },
    #[error("cannot remove {tag}: still running; stop it first")]
    StillRunning { tag: Tag },
    #[error("cannot {operation} {tag}: it belongs to cell {}, this node to {cell_id}", tag.cell_id)]
    Foreign { operation: Operation, tag: Tag, cell_id: CellId },
    /// The node has no addresses left for the network of what was to start.
    #[error("cannot start {object}")]
    SubnetPoolExhausted { object: String, source: Cause },
    #[error("{runtime} does not answer")]
    Unavailable { runtime: &'static str, source: Cause },
}

impl Error {
    pub(crate) fn failed(
        operation: Operation,
        object: impl fmt::Display,
        source: impl Into<Cause>,
    ) -> Self {
        Self::Failed { operation, object: format!("{object}"), source: source.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Describe,
    Start,
    Stop,
    Remove,
    List,
    Usage,
    Logs,
    Exec,
    RemoveVolumes,
    RemoveVolume,
    CreateVolume,
    FindVolume,
    Open,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Describe => "describe",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Remove => "remove",
            Self::List => "list",
            Self::Usage => "read the usage of",
            Self::Logs => "read the logs of",
            Self::Exec => "run a command in",
            Self::RemoveVolumes => "remove the volumes of",
            Self::RemoveVolume => "remove volume",
            Self::CreateVolume => "create volume",
            Self::FindVolume => "find volume",
            Self::Open => "open",
        })
    }
}

/// Why an image is not here. Every one says which image, and what the other side said.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PullError {
    #[error("{image} does not exist: {error}")]
    NotFound { image: String, error: String },
    /// With the user of the cell's own credentials, if it has some for that registry.
    #[error("{}", denied(image, error, user.as_deref()))]
    Denied { image: String, error: String, user: Option<String> },
    #[error("{image} is not on this node and its pull policy is never")]
    NeverPulled { image: String },
    #[error("{image} has no build for {platform}: {error}")]
    WrongPlatform { image: String, platform: String, error: String },
    #[error("no disk space for {image}: {error}")]
    NoSpace { image: String, error: String },
    #[error("the registry of {image} does not answer: {error}")]
    Unreachable { image: String, error: String },
    /// Nobody was there to pull it, which says nothing of the image.
    #[error("cannot pull {image}: {error}")]
    Unavailable { image: String, error: String },
    #[error("cannot pull {image}: {error}")]
    Other { image: String, error: String },
}

impl PullError {
    pub fn image(&self) -> &str {
        match self {
            Self::NotFound { image, .. }
            | Self::Denied { image, .. }
            | Self::NeverPulled { image }
            | Self::WrongPlatform { image, .. }
            | Self::NoSpace { image, .. }
            | Self::Unreachable { image, .. }
            | Self::Unavailable { image, .. }
            | Self::Other { image, .. } => image,
        }
    }
}

/// Why a runtime cannot run a spec. Where it would run it with less isolation than asked for, it says so in its
/// description; it refuses where the service would not work, or would work on something else than was meant.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    #[error("no command, and the process runtime has no image to take one from; set `command`")]
    NoCommand,
    #[error("user {user:?} is not known on this host")]
    UnknownUser { user: String },
    #[error("group {group:?} is not known on this host")]
    UnknownGroup { group: String },
    #[error(
        "it would run as root of this node, which needs role admin; set `user` to one other than root"
    )]
    RootUser,
    #[error("running as user {user:?} requires root")]
    NotRoot { user: String },
    #[error("unknown stop signal {signal:?}")]
    UnknownSignal { signal: String },
    #[error("unknown ulimit {name:?}")]
    UnknownUlimit { name: String },
    #[error("{target:?} is not a mount target; use an absolute path without \"..\"")]
    MountTarget { target: String },
    #[error("{inner} is inside {outer}; the process runtime cannot nest mounts")]
    MountNested { inner: String, outer: String },
    #[error("{name:?} is not a valid volume name")]
    VolumeName { name: String },
    #[error(
        "volume {volume} needs the driver {driver:?}; the process runtime supports local directories only"
    )]
    VolumeDriver { volume: String, driver: String },
    #[error(
        "{path} is below no bind root of this node; bind below one, start the node with `--bind-root`, or apply with role admin"
    )]
    BindOutside { path: String },
    #[error("a symlink of {path} leads out of the bind root {root}; remove the symlink")]
    BindEscapes { path: String, root: String },
    #[error("cannot bind {path}: {error}; create it on this node first")]
    BindUnresolved { path: String, error: String },
    #[error("{name} is external: this node cannot read its content")]
    ExternalFile { name: String },
    #[error("port {target} cannot be published as {published}; a process binds its own ports")]
    PortRemapped { target: u16, published: u16 },
    #[error("the process runtime does not support {field}")]
    Unsupported { field: &'static str },
    #[error("no image is set")]
    NoImage,
    #[error(
        "{field} is shared with service {service}, whose container may be on another node; run both as one service or on a network"
    )]
    SharedNamespace { field: &'static str, service: String },
    #[error("{field} needs engine API {needs} or later; upgrade the engine")]
    EngineTooOld { field: &'static str, needs: &'static str },
}

fn denied(image: &str, error: &str, user: Option<&str>) -> String {
    let host = RegistryHost::of_image(image);
    let host = host.as_ref().map_or("HOST", RegistryHost::as_str);
    match user {
        Some(user) => format!(
            "the registry denied user {user} access to {image}: {error}; log in again with `plimsoll registry login \
             {host} -u {user} --password-stdin`"
        ),
        None => format!(
            "the registry denied access to {image}: {error}; log in with `plimsoll registry login {host} -u USER \
             --password-stdin`"
        ),
    }
}

fn sentence(reasons: &[Reason]) -> String {
    reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// An error and everything that led to it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
