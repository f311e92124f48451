//! What can go wrong between us and the engine, and what a person can do about it.

use std::io;
use std::path::Path;

use bollard::errors::Error as Bollard;
use thiserror::Error;

use crate::bridge::Block;
use crate::error::{Error, Operation};

#[derive(Debug, Error)]
pub(super) enum EngineError {
    /// Nobody answers, or the answer broke off.
    #[error("{0}")]
    Silent(String),
    /// The engine said no.
    #[error("{}", advise(message))]
    Said { status: u16, message: String },
    #[error(
        "its name {name} is held by container {id}, which is not ours; remove or rename that one"
    )]
    Held { name: String, id: String },
    #[error("volume {name} is external and not there; create it with: docker volume create {name}")]
    NoVolume { name: String },
    #[error(
        "network {name} is external and not there; create it with: docker network create {name}"
    )]
    NoNetwork { name: String },
    #[error(
        "volume {name} was made with a driver or options of its own, which needs role admin; use another volume"
    )]
    DrivenVolume { name: String },
    #[error(
        "volume {name} has scope global in its file, and its driver {driver} keeps it on this node alone; use a driver that \
         every node reaches, or leave the scope out"
    )]
    LocalVolume { name: String, driver: String },
    #[error("cannot write its file {name}")]
    File { name: String, source: io::Error },
    #[error("cannot read the security profile {path}")]
    Profile { path: String, source: io::Error },
    #[error(
        "address pool {pool} has no subnet left for network {network}; remove unused networks, or start the node with a \
         larger --address-pool"
    )]
    PoolExhausted { pool: Block, network: String },
    /// Something we did not expect of an engine.
    #[error("the engine's answer makes no sense: {0}")]
    Odd(String),
}

impl EngineError {
    pub(super) fn silent(socket: &Path, error: Bollard) -> Self {
        match Self::from(error) {
            Self::Silent(text) => {
                Self::Silent(format!("{}: {text}; is the engine running?", socket.display()))
            }
            fault => fault,
        }
    }

    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Said { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.status() == Some(404)
    }

    /// A container was removed between two looks of the engine at it, as Podman says it, whatever it was asked for.
    pub(super) fn has_vanished(&self) -> bool {
        match self {
            Self::Said { message, .. } => VANISHED.iter().any(|sign| message.contains(sign)),
            _ => false,
        }
    }

    /// A container is between running and exited: Podman lists it in a state of its own for that moment, which no client of
    /// Docker can read, and with it none of the list.
    pub(super) fn is_between(&self) -> bool {
        matches!(self, Self::Odd(text) if text.contains("unknown variant `stopped`"))
    }

    /// Another was faster, or took away what we built upon: a second look shows how things are now.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Said { status: 409, .. } => true,
            Self::Said { message, .. } => {
                has_lost_network(message)
                    || message.contains("No such container")
                    || message.contains(NAME_TAKEN)
                    || self.has_vanished()
            }
            _ => false,
        }
    }

    /// No network can be made: neither now, nor for any other replica, until one is removed or more addresses are given.
    fn is_without_subnet(&self) -> bool {
        match self {
            Self::PoolExhausted { .. } => true,
            Self::Said { message, .. } => NO_SUBNET.iter().any(|sign| message.contains(sign)),
            _ => false,
        }
    }

    pub(super) fn error(self, operation: Operation, object: impl std::fmt::Display) -> Error {
        match self {
            Self::Silent(text) => Error::Unavailable { runtime: "docker", source: text.into() },
            fault if fault.is_without_subnet() => {
                Error::SubnetPoolExhausted { object: object.to_string(), source: fault.into() }
            }
            fault => Error::failed(operation, object, fault),
        }
    }
}

impl From<Bollard> for EngineError {
    fn from(error: Bollard) -> Self {
        match error {
            Bollard::DockerResponseServerError { status_code, message } => {
                Self::Said { status: status_code, message: message.trim().to_owned() }
            }
            Bollard::DockerStreamError { error } => Self::Said { status: 200, message: error },
            Bollard::SocketNotFoundError(_) => Self::Silent("there is no such socket".to_owned()),
            Bollard::RequestTimeoutError => Self::Silent("no answer in time".to_owned()),
            Bollard::HyperLegacyError { err } => Self::Silent(root(&err)),
            Bollard::HyperResponseError { err } => Self::Silent(root(&err)),
            Bollard::IOError { err } => Self::Silent(err.to_string()),
            other => Self::Odd(other.to_string()),
        }
    }
}

/// The cause at the bottom, which is the one that says something: the layers above it say that there was an error.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Taken away, or made twice at the same moment and about to be one again.
fn has_lost_network(message: &str) -> bool {
    let signs = ["not found", "is ambiguous"];
    message.contains("network") && signs.iter().any(|sign| message.contains(sign))
}

/// How Podman says that a container has just gone: from its database, from itself, and from its storage.
const VANISHED: [&str; 3] =
    ["no such container", "container has already been removed", "container not known"];

/// How Podman says that another made a container of that name at the same moment. Docker says it with a status.
const NAME_TAKEN: &str = "that name is already in use";

/// How engines say that no subnet is left: older ones the first, newer ones the second.
const NO_SUBNET: [&str; 2] =
    ["non-overlapping IPv4 address pool", "address pools have been fully subnetted"];

/// The engine's words, and the next step where we know one.
fn advise(message: &str) -> String {
    let steps = [
        (
            &["port is already allocated", "address already in use"][..],
            "a port it publishes is taken on this node; stop what holds it, or publish another",
        ),
        (&["No such image", "no such image"], "its image is not here; pull it first"),
        (
            &["no space left on device"],
            "the disk is full; make room, with docker system prune for example",
        ),
        (
            &["could not select device driver"],
            "this engine cannot give devices; install the vendor's container toolkit",
        ),
        (
            &["bind source path does not exist"],
            "create it on this node, or let create_host_path do so",
        ),
        (
            &NO_SUBNET,
            "the engine has no addresses left for another network; remove networks that are not used, or give it \
             more default-address-pools",
        ),
    ];
    let known = steps.iter().find(|(signs, _)| signs.iter().any(|sign| message.contains(sign)));
    known.map_or_else(|| message.to_owned(), |(_, step)| format!("{step} ({message})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status_code: u16, message: &str) -> EngineError {
        EngineError::from(Bollard::DockerResponseServerError {
            status_code,
            message: message.into(),
        })
    }

    #[test]
    fn an_error_names_the_next_step() {
        let port = "driver failed: Bind for 127.0.0.1:80 failed: port is already allocated";
        for (fault, expected) in [
            (
                said(500, port),
                "a port it publishes is taken on this node; stop what holds it, or publish another \
                 (driver failed: Bind for 127.0.0.1:80 failed: port is already allocated)",
            ),
            (said(500, "something new\n"), "something new"),
            (
                EngineError::silent(Path::new("/run/d.sock"), Bollard::RequestTimeoutError),
                "/run/d.sock: no answer in time; is the engine running?",
            ),
        ] {
            assert_eq!(fault.to_string(), expected);
        }
    }

    #[test]
    fn an_engine_without_subnets_is_no_fault_of_what_was_to_start() {
        let pool = Block::new("10.208.0.0".parse().unwrap(), 12);
        let network = "shop_default".to_owned();
        for (fault, is_exhausted) in [
            (said(500, "all predefined address pools have been fully subnetted"), true),
            (
                said(
                    404,
                    "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network",
                ),
                true,
            ),
            (EngineError::PoolExhausted { pool, network }, true),
            (said(500, "no space left on device"), false),
            (said(403, "Pool overlaps with other one on this address space"), false),
        ] {
            let text = fault.to_string();
            let error = fault.error(Operation::Start, "shop-web-1");
            let found = matches!(error, Error::SubnetPoolExhausted { .. });
            assert_eq!(found, is_exhausted, "{text}");
            assert!(error.to_string().contains("cannot start shop-web-1"), "{error}");
        }
    }

    #[test]
    fn a_list_with_a_container_between_running_and_exited_is_known_by_how_it_fails_to_be_read() {
        type Listed = Vec<bollard::models::ContainerSummary>;
        let unread = |state: &str| {
            let listed = format!(r#"[{{"Id": "12ab", "State": "{state}"}}]"#);
            let error = serde_json::from_str::<Listed>(&listed).err()?;
            let (message, column) = (error.to_string(), error.column());
            Some(EngineError::from(Bollard::JsonDataError { message, column }))
        };
        assert!(unread("stopped").is_some_and(|fault| fault.is_between()));
        assert!(unread("exited").is_none());
        assert!(unread("adrift").is_some_and(|fault| !fault.is_between()));
    }

    #[test]
    fn what_passes_is_tried_again() {
        for (case, fault, is_passing) in [
            ("a name taken at the same moment", said(409, "Conflict. The container name"), true),
            (
                "the same of Podman",
                said(500, "creating container storage: that name is already in use"),
                true,
            ),
            ("a container removed meanwhile", said(404, "No such container: 12ab"), true),
            ("the same, on Podman", said(500, "12ab: container has already been removed"), true),
            ("a network removed meanwhile", said(404, "network 12ab not found"), true),
            ("a network made twice", said(400, "network x is ambiguous (2 matches)"), true),
            ("no such image", said(404, "No such image: a:1"), false),
            ("a full disk", said(500, "no space left on device"), false),
            ("silence", EngineError::Silent(String::new()), false),
        ] {
            assert_eq!(fault.is_passing(), is_passing, "{case}");
        }
    }
}
