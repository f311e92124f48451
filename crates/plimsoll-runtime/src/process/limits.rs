//! Resource limits of a process, by the names Compose gives them.

use plimsoll_model::ContainerSpec;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::error::Reason;

const NAMED: &[(&str, Resource)] = &[
    ("as", Resource::As),
    ("core", Resource::Core),
    ("cpu", Resource::Cpu),
    ("data", Resource::Data),
    ("fsize", Resource::Fsize),
    ("locks", Resource::Locks),
    ("memlock", Resource::Memlock),
    ("msgqueue", Resource::Msgqueue),
    ("nice", Resource::Nice),
    ("nofile", Resource::Nofile),
    ("nproc", Resource::Nproc),
    ("rss", Resource::Rss),
    ("rtprio", Resource::Rtprio),
    ("rttime", Resource::Rttime),
    ("sigpending", Resource::Sigpending),
    ("stack", Resource::Stack),
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Limit {
    name: String,
    /// Negative is no limit.
    soft: i64,
    hard: i64,
}

pub(super) fn of(spec: &ContainerSpec) -> Result<Vec<Limit>, Reason> {
    let known = |name: &str| NAMED.iter().any(|(known, _)| *known == name);
    spec.ulimits
        .iter()
        .map(|(name, limit)| {
            let name = name.clone();
            if known(&name) {
                Ok(Limit { name, soft: limit.soft, hard: limit.hard })
            } else {
                Err(Reason::UnknownUlimit { name })
            }
        })
        .collect()
}

impl Limit {
    /// Holds this process to it.
    pub(super) fn apply(&self) -> Result<(), String> {
        let named = NAMED.iter().find(|(known, _)| *known == self.name);
        let (_, resource) = named.ok_or_else(|| format!("ulimit {} is not known", self.name))?;
        let limit = Rlimit {
            current: u64::try_from(self.soft).ok(),
            maximum: u64::try_from(self.hard).ok(),
        };
        setrlimit(*resource, limit)
            .map_err(|error| format!("cannot set ulimit {}: {error}", self.name))
    }
}
