//! How far the runs have come, for someone who watches; nobody else sees any of it.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_model::Millis;

#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    length: Millis,
    begun: u64,
    runs: u64,
    /// The message says which run it is.
    is_named: bool,
}

impl Progress {
    pub(super) fn new(length: Millis, runs: u64) -> Self {
        let bar = ProgressBar::new(length.0.saturating_mul(runs));
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        bar.set_draw_target(target);
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {eta} left");
        bar.set_style(style.expect("a valid template").progress_chars("━━─"));
        Self { bar, length, begun: 0, runs, is_named: runs > 1 }
    }

    pub(super) fn begin(&mut self, seed: u64) {
        self.begun += 1;
        if self.runs > 1 {
            self.bar.set_message(format!("seed {seed}, run {} of {}", self.begun, self.runs));
        }
    }

    pub(super) fn begin_named(&mut self, name: &str) {
        self.begun += 1;
        self.is_named = true;
        self.bar.set_message(name.to_owned());
    }

    pub(super) fn at(&self, now: Millis) {
        let before = self.length.0.saturating_mul(self.begun - 1);
        self.bar.set_position(before.saturating_add(now.0));
        if !self.is_named {
            self.bar.set_message(format!("{now} of {}", self.length));
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
