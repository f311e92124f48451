//! A cron expression: five fields as Vixie's cron reads them, and its short names for common ones.

use std::fmt;

use jiff::civil::{Date, DateTime};
use jiff::{Span, ToSpan as _};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// No expression that has a date at all has none for longer: the 29th of February on a given day of the week, around 2100.
const MAX_DAYS: u32 = 366 * 41;

/// Longer texts are no expression that anyone wrote.
const MAX_TEXT: usize = 200;

/// When something is due, in local time: to the minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both days are said: then either will do, as with any cron.
    is_either_day: bool,
}

/// Why a text is no cron expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidCron {
    #[error("a schedule has five fields (minute hour day month weekday), found {found}")]
    Fields { found: usize },
    #[error("{name} is no schedule; use five fields, or {}", known())]
    Macro { name: String },
    #[error("{part:?} is no {field} of a schedule: {why}")]
    Field { field: &'static str, part: String, why: String },
    #[error("no date ever matches this schedule")]
    Never,
    #[error("a schedule has at most {MAX_TEXT} characters")]
    Long,
}

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

fn known() -> String {
    MACROS.map(|(name, _)| name).join(", ")
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// One of the five: its bounds, and the names some numbers have.
struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, names: &[] },
    Field { name: "hour", min: 0, max: 23, names: &[] },
    Field { name: "day", min: 1, max: 31, names: &[] },
    Field { name: "month", min: 1, max: 12, names: &MONTHS },
    // Sunday is 0 and 7.
    Field { name: "weekday", min: 0, max: 7, names: &WEEKDAYS },
];

impl Field {
    /// The numbers that the text stands for, a bit each.
    fn read(&self, text: &str) -> Result<u64, InvalidCron> {
        text.split(',').try_fold(0, |bits, part| Ok(bits | self.part(part)?))
    }

    fn part(&self, part: &str) -> Result<u64, InvalidCron> {
        let wrong =
            |why: String| InvalidCron::Field { field: self.name, part: part.to_owned(), why };
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let step = step.parse::<u8>().ok().filter(|step| *step > 0);
                (range, Some(step.ok_or_else(|| wrong("a step is a number above 0".to_owned()))?))
            }
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" || (range == "?" && self.max_is_day()) => (self.min, self.max),
            Some((first, last)) => (self.number(first, &wrong)?, self.number(last, &wrong)?),
            None => {
                let first = self.number(range, &wrong)?;
                (first, if step.is_some() { self.max } else { first })
            }
        };
        if first > last {
            return Err(wrong(format!("{first} comes after {last}; write two ranges")));
        }
        let all = (first..=last).step_by(step.unwrap_or(1).into());
        Ok(all.fold(0, |bits, number| bits | 1 << number))
    }

    fn max_is_day(&self) -> bool {
        matches!(self.name, "day" | "weekday")
    }

    fn number(&self, text: &str, wrong: &dyn Fn(String) -> InvalidCron) -> Result<u8, InvalidCron> {
        let position = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let position = position.and_then(|at| u8::try_from(at).ok());
        // Months count from 1, weekdays from 0.
        let number = position.map(|at| at + self.min).or_else(|| text.parse().ok());
        let (min, max) = (self.min, self.max);
        number.filter(|it| (min..=max).contains(it)).ok_or_else(|| {
            let names = match self.names {
                [first, .., last] => format!(", or {first} to {last}"),
                _ => String::new(),
            };
            wrong(format!("it takes numbers from {min} to {max}{names}"))
        })
    }
}

impl Cron {
    pub fn parse(text: &str) -> Result<Self, InvalidCron> {
        if text.len() > MAX_TEXT {
            return Err(InvalidCron::Long);
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let written = words.join(" ");
        let words = match words.as_slice() {
            [name] if name.starts_with('@') => {
                let is_it = |known: &&(&str, &str)| known.0.eq_ignore_ascii_case(name);
                let known = MACROS.iter().find(is_it);
                let known = known.ok_or_else(|| InvalidCron::Macro { name: (*name).to_owned() })?;
                known.1.split(' ').collect()
            }
            [name, ..] if name.starts_with('@') => {
                return Err(InvalidCron::Macro { name: written });
            }
            _ => words,
        };
        let [minute, hour, day, month, weekday] = words[..] else {
            return Err(InvalidCron::Fields { found: words.len() });
        };
        let is_said = |text: &str| !text.starts_with(['*', '?']);
        let weekdays = FIELDS[4].read(weekday)?;
        let cron = Self {
            text: written,
            minutes: FIELDS[0].read(minute)?,
            hours: FIELDS[1].read(hour)?,
            days: FIELDS[2].read(day)?,
            months: FIELDS[3].read(month)?,
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            is_either_day: is_said(day) && is_said(weekday),
        };
        let is_ever =
            cron.next(Date::constant(2024, 1, 1).to_datetime(jiff::civil::Time::midnight()));
        if is_ever.is_some() { Ok(cron) } else { Err(InvalidCron::Never) }
    }

    /// The first time that matches, at or after this one; none where no date does.
    pub(super) fn next(&self, from: DateTime) -> Option<DateTime> {
        let mut at = from;
        if at.second() > 0 || at.subsec_nanosecond() > 0 {
            at = at
                .with()
                .second(0)
                .subsec_nanosecond(0)
                .build()
                .ok()?
                .checked_add(1.minute())
                .ok()?;
        }
        for _ in 0..MAX_DAYS {
            if self.has_day(at.date())
                && let Some((hour, minute)) = self.time_from(at.hour(), at.minute())
            {
                return Some(at.date().at(hour, minute, 0, 0));
            }
            at = at.date().checked_add(Span::new().days(1)).ok()?.at(0, 0, 0, 0);
        }
        None
    }

    /// Whether it is due in every hour of the day: then it goes by the time that passes, not by what clocks show.
    pub(super) fn is_hourly(&self) -> bool {
        self.hours == (1 << 24) - 1
    }

    fn has_day(&self, date: Date) -> bool {
        let has = |bits: u64, number: i8| bits >> number & 1 == 1;
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        has(self.months, date.month())
            && if self.is_either_day { day || weekday } else { day && weekday }
    }

    fn time_from(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        let first = |bits: u64, from: i8| {
            let left = bits >> from;
            (left != 0).then(|| from + i8::try_from(left.trailing_zeros()).unwrap_or(0))
        };
        if self.hours >> hour & 1 == 1
            && let Some(minute) = first(self.minutes, minute)
        {
            return Some((hour, minute));
        }
        Some((first(self.hours, hour + 1)?, first(self.minutes, 0)?))
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl TryFrom<String> for Cron {
    type Error = InvalidCron;
    fn try_from(text: String) -> Result<Self, InvalidCron> {
        Self::parse(&text)
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text
    }
}
