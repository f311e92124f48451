//! Resource limits of a process, by the names Compose gives them.

use plimsoll_model::ContainerSpec;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::error::Reason;
use crate::files;

/// How many files may be open.
const FILES: &str = "nofile";

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
    (FILES, Resource::Nofile),
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
    let said = spec
        .ulimits
        .iter()
        .map(|(name, limit)| {
            let name = name.clone();
            if known(&name) {
                Ok(Limit { name, soft: limit.soft, hard: limit.hard })
            } else {
                Err(Reason::UnknownUlimit { name })
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    let says_files = spec.ulimits.contains_key(FILES);
    let given = files::given().filter(|_| !says_files).map(|(soft, hard)| {
        let [soft, hard] = [soft, hard].map(signed);
        Limit { name: FILES.to_owned(), soft, hard }
    });
    Ok(said.into_iter().chain(given).collect())
}

fn signed(limit: Option<u64>) -> i64 {
    limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1)
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
