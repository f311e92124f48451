//! What the plots mark: the scripted events by number, and what chance did as ticks.

use plimsoll_model::Millis;

use super::{EventMark, action};
use crate::scenario::WrittenScenario;

/// Beyond so many, numbers are no help.
const MAX_MARKS: usize = 50;

/// What happens at one time is said in one mark while it is not longer than this.
const MAX_WORDS: usize = 200;

#[derive(Debug, Default)]
pub(super) struct EventMarks {
    /// In order of time; what happens at once is one mark.
    pub(super) scripted: Vec<EventMark>,
    /// Scripted events beyond the limit.
    pub(super) more: usize,
    /// When chance struck.
    pub(super) chance: Vec<Millis>,
}

impl EventMarks {
    pub(super) fn of(written: &WrittenScenario, seed: u64) -> Self {
        let mut scripted: Vec<EventMark> = Vec::new();
        let mut more = 0;
        for (at, action) in &written.scenario.script {
            let what = action::words(action);
            let is_full = scripted.len() >= MAX_MARKS;
            match scripted.last_mut() {
                Some(last) if last.at == *at && last.what.len() < MAX_WORDS => {
                    last.what.extend([", ", &what]);
                }
                _ if is_full => more += 1,
                _ => scripted.push(EventMark { at: *at, what }),
            }
        }
        let mut chance = Vec::new();
        if let Some(chaos) = written.chaos {
            let drawn = written.seeded(seed).script.split_off(written.scenario.script.len());
            // When it ends, all that is gone comes back at once: that is no fault.
            chance.extend(drawn.into_iter().map(|(at, _)| at).filter(|at| *at < chaos.until));
            chance.sort();
        }
        Self { scripted, more, chance }
    }
}
