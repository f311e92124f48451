//! Quantities as types. All are integers: gates compare them at their edges, and every machine must agree.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A point in time: milliseconds since the Unix epoch, read by the leader and carried in its commands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp(pub u64);

/// A length of time in milliseconds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Millis(pub u64);

impl Timestamp {
    pub const fn plus(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// How long ago `earlier` was; zero when it lies ahead, since time never runs backwards here.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }

    pub const fn minutes(minutes: u64) -> Self {
        Self::seconds(minutes * 60)
    }
}

/// The two largest units that are not zero: `1h 30m`, `5m`, `1.5s`, `40ms`.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0;
        let (days, hours) = (total / 86_400_000, total / 3_600_000 % 24);
        let (minutes, seconds) = (total / 60_000 % 60, total / 1_000 % 60);
        let text = match total {
            0 => "0s".to_owned(),
            1..1_000 => format!("{total}ms"),
            1_000..60_000 if !total.is_multiple_of(1_000) => {
                format!("{seconds}.{}s", total % 1_000 / 100)
            }
            1_000..60_000 => format!("{seconds}s"),
            60_000..3_600_000 if seconds > 0 => format!("{minutes}m {seconds}s"),
            60_000..3_600_000 => format!("{minutes}m"),
            3_600_000..86_400_000 if minutes > 0 => format!("{hours}h {minutes}m"),
            3_600_000..86_400_000 => format!("{hours}h"),
            _ if hours > 0 => format!("{days}d {hours}h"),
            _ => format!("{days}d"),
        };
        f.pad(&text)
    }
}

/// Processor time in thousandths of a core.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct MilliCpus(pub u64);

/// Memory.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Bytes(pub u64);

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidQuantity {
    #[error("{0:?} is not a number of cpus; write 0.5 or 2")]
    Cpus(String),
    #[error("{0:?} is not a size; write 512m, 2gb or a number of bytes")]
    Bytes(String),
    #[error("{0:?} is not a duration; write 30s, 1m30s or 500ms")]
    Duration(String),
}

/// `0.5`, `2`, `1.25`: decimal cores, exact to a thousandth, rounded up beyond it.
impl FromStr for MilliCpus {
    type Err = InvalidQuantity;
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let wrong = || InvalidQuantity::Cpus(text.to_owned());
        let (whole, thousandths) = decimal(text.trim(), 3).ok_or_else(wrong)?;
        let total = whole.checked_mul(1_000).and_then(|t| t.checked_add(thousandths));
        total.map(Self).ok_or_else(wrong)
    }
}

/// `512m`, `1.5gb`, `64 MiB`, `1024`: binary multiples, as Docker reads them.
impl FromStr for Bytes {
    type Err = InvalidQuantity;
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let wrong = || InvalidQuantity::Bytes(text.to_owned());
        let trimmed = text.trim();
        let digits =
            trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "ki" | "kib" => 10,
            "m" | "mb" | "mi" | "mib" => 20,
            "g" | "gb" | "gi" | "gib" => 30,
            "t" | "tb" | "ti" | "tib" => 40,
            "p" | "pb" | "pi" | "pib" => 50,
            _ => return Err(wrong()),
        };
        let (whole, billionths) = decimal(number, 9).ok_or_else(wrong)?;
        let total =
            (u128::from(whole) << shift) + ((u128::from(billionths) << shift) / 1_000_000_000);
        u64::try_from(total).map(Self).map_err(|_| wrong())
    }
}

/// `1h30m`, `90s`, `500ms`, `1.5s`: Go's durations, as Compose writes them.
impl FromStr for Millis {
    type Err = InvalidQuantity;
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let wrong = || InvalidQuantity::Duration(text.to_owned());
        let mut rest = text.trim();
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(wrong());
        }
        let mut micros: u64 = 0;
        while !rest.is_empty() {
            let digits =
                rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
            let (number, tail) = rest.split_at(digits);
            let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit);
            let scale: u64 = match unit {
                "us" | "µs" => 1,
                "ms" => 1_000,
                "s" => 1_000_000,
                "m" => 60_000_000,
                "h" => 3_600_000_000,
                "d" => 86_400_000_000,
                "w" => 604_800_000_000,
                _ => return Err(wrong()),
            };
            let (whole, millionths) = decimal(number, 6).ok_or_else(wrong)?;
            let part = whole
                .checked_mul(scale)
                .and_then(|w| w.checked_add(millionths.checked_mul(scale)? / 1_000_000));
            micros = part.and_then(|p| micros.checked_add(p)).ok_or_else(wrong)?;
            rest = tail;
        }
        Ok(Self(micros / 1_000))
    }
}

/// Reads `12.5` as (12, 500) for three places. What lies beyond the places is rounded up, never lost.
fn decimal(text: &str, places: u32) -> Option<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let mut whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let kept = &fraction[..fraction.len().min(places as usize)];
    let beyond = fraction[kept.len()..].bytes().any(|b| b != b'0');
    let mut parts: u64 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    parts *= 10_u64.pow(places - u32::try_from(kept.len()).ok()?);
    parts += u64::from(beyond);
    if parts == 10_u64.pow(places) {
        (whole, parts) = (whole.checked_add(1)?, 0);
    }
    Some((whole, parts))
}

impl fmt::Display for MilliCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000, self.0 % 1_000);
        let text = match part {
            0 => whole.to_string(),
            _ => format!("{whole}.{part:03}").trim_end_matches('0').to_owned(),
        };
        f.pad(&text)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 5] =
            [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let unit = UNITS.iter().find(|(_, shift)| self.0 >> shift > 0);
        let text = match unit {
            None => format!("{} B", self.0),
            Some((name, shift)) if self.0.trailing_zeros() >= *shift => {
                format!("{} {name}", self.0 >> shift)
            }
            Some((name, shift)) => {
                let tenths = (u128::from(self.0) * 10) >> shift;
                format!("{}.{} {name}", tenths / 10, tenths % 10)
            }
        };
        f.pad(&text)
    }
}

/// What a replica asks for, or a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Resources {
    pub cpu: MilliCpus,
    pub memory: Bytes,
    pub gpus: u32,
    /// How many ask for every GPU of their node, however many that is: [`on`](Self::on) a node it becomes a number. Always
    /// zero in what is stored, where the requests of a container say it.
    #[serde(skip)]
    pub all_gpus: u32,
}

impl Resources {
    pub const NONE: Self = Self { cpu: MilliCpus(0), memory: Bytes(0), gpus: 0, all_gpus: 0 };

    /// What it comes to on a node of that capacity. All the GPUs of a node that has none are more than it has.
    pub fn on(self, capacity: Self) -> Self {
        let all = self.all_gpus.saturating_mul(capacity.gpus.max(1));
        Self { gpus: self.gpus.saturating_add(all), all_gpus: 0, ..self }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: MilliCpus(self.cpu.0.saturating_add(other.cpu.0)),
            memory: Bytes(self.memory.0.saturating_add(other.memory.0)),
            gpus: self.gpus.saturating_add(other.gpus),
            all_gpus: self.all_gpus.saturating_add(other.all_gpus),
        }
    }

    pub fn minus(self, other: Self) -> Self {
        Self {
            cpu: MilliCpus(self.cpu.0.saturating_sub(other.cpu.0)),
            memory: Bytes(self.memory.0.saturating_sub(other.memory.0)),
            gpus: self.gpus.saturating_sub(other.gpus),
            all_gpus: self.all_gpus.saturating_sub(other.all_gpus),
        }
    }

    /// Whether a node of that capacity, with nothing on it, holds it.
    pub fn fits_in(self, capacity: Self) -> bool {
        let gpus = self.on(capacity).gpus;
        self.cpu <= capacity.cpu && self.memory <= capacity.memory && gpus <= capacity.gpus
    }
}

/// The leader's term. It fences every assignment.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Term(pub u64);

/// Which assignment this is. One counter serves the whole cell, so that no two assignments ever share one, not
/// even those of a replica that was deleted and made again under the same id.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Generation(pub u64);

/// Which applied version of a deployment this is, counted from 1.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Revision(pub u32);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_docker_reads_them() {
        for (text, bytes) in [
            ("1024", 1_024),
            ("512m", 512 << 20),
            ("512MB", 512 << 20),
            ("1.5g", 3 << 29),
            ("64 MiB", 64 << 20),
            ("0.5k", 512),
            ("2b", 2),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "-1", "1x", "m", "1..2", "99999999999p", "1e3"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_read_as_compose_writes_them() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Millis(millis)), "{text}");
        }
        for text in ["", "10", "-5s", "5 s x", "s", "1y", "99999999999999w"] {
            assert!(text.parse::<Millis>().is_err(), "{text}");
        }
    }

    #[test]
    fn cpus_round_up_so_that_a_share_is_never_lost() {
        for (text, millis) in
            [("0.5", 500), ("2", 2_000), ("1.25", 1_250), ("0.0001", 1), ("0.9999", 1_000)]
        {
            assert_eq!(text.parse(), Ok(MilliCpus(millis)), "{text}");
        }
        for text in ["", "-1", "two", "1.2.3", "99999999999999999999"] {
            assert!(text.parse::<MilliCpus>().is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_print_as_people_say_them() {
        assert_eq!(Millis(90_000).to_string(), "1m 30s");
        assert_eq!(Millis(1_500).to_string(), "1.5s");
        assert_eq!(Bytes(512 << 20).to_string(), "512 MiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(MilliCpus(1_250).to_string(), "1.25");
    }
}
