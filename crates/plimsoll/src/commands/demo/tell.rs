//! Tells the story while it happens, each line with the seconds since it began.

use std::time::Instant;

use owo_colors::OwoColorize;
use plimsoll_model::Millis;

use crate::age::took;
use crate::error::CliError;
use crate::output::stream;

#[derive(Debug)]
pub(super) struct Teller {
    begun: Instant,
    acts: u32,
}

impl Teller {
    pub(super) fn begin() -> Self {
        Self { begun: Instant::now(), acts: 0 }
    }

    pub(super) fn act(&mut self, title: &str) -> Result<(), CliError> {
        self.acts += 1;
        let number = self.acts;
        stream(&format!("\n{}\n", format!("{number}. {title}").bold()))
    }

    /// What has just happened.
    pub(super) fn now(&self, text: &str) -> Result<(), CliError> {
        stream(&format!("{:>8}  {text}\n", took(since(self.begun))))
    }

    /// What is to be said of it.
    pub(super) fn also(text: &str) -> Result<(), CliError> {
        stream(&format!("{:>8}  {text}\n", ""))
    }

    pub(super) fn elapsed(&self) -> Millis {
        since(self.begun)
    }
}

pub(super) fn since(begun: Instant) -> Millis {
    Millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
}
