//! Measured days: read from the files of those who measured them, replayed through the shipped rebalancer, and how hot
//! nodes stay with and without it.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_model::Millis;
use plimsoll_sim::trace::{self, Conditions, Replayed, Trace};

mod facts;
mod google;
mod planetlab;
pub(crate) mod read;

pub use facts::TraceFacts;

/// Whose traces they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceFormat {
    /// Processor use of virtual machines in March and April 2011.
    Planetlab,
    /// Processor and memory use of jobs in May 2011.
    Google,
    /// Requests for virtual machines in 2019, which are packed and not measured.
    Azure,
}

/// One day with one seed, without the rebalancer and with it.
#[derive(Debug)]
pub struct TraceRun {
    pub trace: Trace,
    pub seed: String,
    pub without: Replayed,
    pub with: Replayed,
}

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("there is no directory {}", .0.display())]
    NoDirectory(PathBuf),
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("cannot list {}", path.display())]
    Unlisted { path: PathBuf, source: io::Error },
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} has more than {most} bytes", path.display())]
    TooLarge { path: PathBuf, most: u64 },
    #[error("{}:{line}: {message}", path.display())]
    BadLine { path: PathBuf, line: usize, message: String },
    #[error("{} holds no {}", path.display(), format.contents())]
    Empty { path: PathBuf, format: TraceFormat },
    #[error("{} has no day {day}", path.display())]
    NoDay { path: PathBuf, day: String, known: Vec<String> },
}

impl TraceError {
    /// Whether other arguments or files would do: else the world is at fault.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Unlisted { .. } | Self::Unreadable { .. })
    }

    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoDirectory(_) => "name the directory that the traces are in",
            Self::NotADirectory(_) => "name the directory that the traces are in, not a file of it",
            Self::BadLine { .. } => "docs/reference/rebalancer.md says what these files hold",
            Self::Empty { format: TraceFormat::Planetlab, .. } => {
                "a day is a file YYYYMMDD.csv or YYYYMMDD.csv.gz"
            }
            Self::Empty { format: TraceFormat::Google, .. } => {
                "a line is vm_<job>_<day>,cpu or mem, and percentages, in a file *.csv or *.csv.gz"
            }
            Self::Empty { format: TraceFormat::Azure, .. } => {
                "a sample is a file *.csv or *.csv.gz; docs/reference/optimize.md says what it holds"
            }
            Self::NoDay { known, .. } => return Some(format!("it has {}", known.join(", "))),
            Self::Unlisted { .. } | Self::Unreadable { .. } | Self::TooLarge { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

impl TraceFormat {
    pub fn word(self) -> &'static str {
        match self {
            Self::Planetlab => "planetlab",
            Self::Google => "google",
            Self::Azure => "azure",
        }
    }

    fn contents(self) -> &'static str {
        match self {
            Self::Planetlab => "day of PlanetLab",
            Self::Google => "jobs of Google's",
            Self::Azure => "sample of requests",
        }
    }

    /// The days of the directory with each seed's tasks where it puts them; of those named, if any are.
    pub fn days(
        self,
        directory: &Path,
        seeds: &[String],
        only: &[String],
    ) -> Result<Vec<(Trace, String)>, TraceError> {
        let mut all = Vec::new();
        for seed in seeds {
            let mut days = self.read(directory, seed)?;
            if let Some(missing) = only.iter().find(|day| days.iter().all(|it| it.name != **day)) {
                let known = days.into_iter().map(|day| day.name).collect();
                let (path, day) = (directory.to_owned(), missing.clone());
                return Err(TraceError::NoDay { path, day, known });
            }
            days.retain(|day| only.is_empty() || only.contains(&day.name));
            all.extend(days.into_iter().map(|day| (day, seed.clone())));
        }
        Ok(all)
    }

    /// Each day in the directory, by name, with its tasks where the seed puts them.
    fn read(self, directory: &Path, seed: &str) -> Result<Vec<Trace>, TraceError> {
        let days = match self {
            Self::Planetlab => planetlab::read(directory, seed),
            Self::Google => google::read(directory, seed),
            // Nothing was measured of these: see [`packing`](crate::packing).
            Self::Azure => Ok(Vec::new()),
        }?;
        if days.is_empty() {
            return Err(TraceError::Empty { path: directory.to_owned(), format: self });
        }
        Ok(days)
    }
}

impl TraceRun {
    /// Replays a day twice; how far the second has come is told on the way.
    pub fn replay(trace: Trace, seed: String, at: &mut dyn FnMut(Millis)) -> Self {
        let without = trace::replay(&trace, &Conditions::off(), &mut |_| {});
        let with = trace::replay(&trace, &Conditions::default(), &mut |now| at(now));
        Self { trace, seed, without, with }
    }
}
