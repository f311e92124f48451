//! Which moments a schedule means, by the clock of its time zone. The zones are part of the program, so that every leader of
//! one version answers alike.
//!
//! Where clocks are put forward, what was due in the hour that is left out is due at once, when they jump. Where they are put
//! back, what is due in the hour that comes twice is due the first time. What is due in every hour of the day has neither: it
//! goes by the time that passes.

use std::fmt;
use std::sync::LazyLock;

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp as Moment, ToSpan as _};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Schedule;
use crate::units::Timestamp;

/// More changes of the clock than lie between two slots of any schedule: two a year, for as long as one is looked for.
const MAX_CHANGES: usize = 128;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The name of a time zone, such as `Europe/Berlin`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ZoneName(String);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no time zone {name:?}; use a name such as Europe/Berlin")]
pub struct InvalidZone {
    pub name: String,
}

impl ZoneName {
    /// As the database spells it.
    pub fn new(name: &str) -> Result<Self, InvalidZone> {
        let found = ZONES.get(name).map_err(|_| InvalidZone { name: name.to_owned() })?;
        Ok(Self(found.iana_name().unwrap_or(name).to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this version knows it.
    pub fn is_known(&self) -> bool {
        ZONES.get(&self.0).is_ok()
    }

    /// One that a newer version wrote and this one has never heard of is taken for UTC: a job that runs an hour off is better
    /// than one that never runs.
    fn zone(&self) -> TimeZone {
        ZONES.get(&self.0).unwrap_or(TimeZone::UTC)
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// `2026-11-19 03:00 UTC`
pub fn utc_minute(at: Timestamp) -> String {
    let moment = i64::try_from(at.0).ok().and_then(|at| Moment::from_millisecond(at).ok());
    moment.unwrap_or(Moment::MAX).strftime("%Y-%m-%d %H:%M UTC").to_string()
}

impl Schedule {
    /// The first slot after this time; none where there is none as long as calendars go.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let zone = self.zone.as_ref().map_or(TimeZone::UTC, ZoneName::zone);
        let after = Moment::from_millisecond(i64::try_from(after.0).ok()?).ok()?;
        let slot = self.next_in(&zone, after)?;
        u64::try_from(slot.as_millisecond()).ok().map(Timestamp)
    }

    fn next_in(&self, zone: &TimeZone, after: Moment) -> Option<Moment> {
        let mut from = after.checked_add(1.millisecond()).ok()?;
        for _ in 0..MAX_CHANGES {
            let offset = zone.to_offset(from);
            let change = zone.following(from).next().map(|it| it.timestamp());
            let begin = offset.to_datetime(from);
            let begin = self.past_repeats(zone, from, begin);
            let local = self.cron.next(begin)?;
            let slot = offset.to_timestamp(local).ok()?;
            let Some(change) = change.filter(|change| slot >= *change) else { return Some(slot) };
            if self.is_in_gap(offset, zone.to_offset(change), change) {
                return Some(change);
            }
            from = change;
        }
        None
    }

    /// Local times that the clock showed before it was put back are over.
    fn past_repeats(&self, zone: &TimeZone, from: Moment, begin: DateTime) -> DateTime {
        if self.cron.is_hourly() {
            return begin;
        }
        let Some(last) =
            from.checked_add(1.millisecond()).ok().and_then(|at| zone.preceding(at).next())
        else {
            return begin;
        };
        let at = last.timestamp();
        let Ok(before) = at.checked_sub(1.millisecond()) else { return begin };
        begin.max(zone.to_offset(before).to_datetime(at))
    }

    /// Whether something was due in the time that is left out when the clock changes.
    fn is_in_gap(&self, before: Offset, after: Offset, change: Moment) -> bool {
        if self.cron.is_hourly() || after <= before {
            return false;
        }
        let next = self.cron.next(before.to_datetime(change));
        next.is_some_and(|next| next < after.to_datetime(change))
    }
}
