//! How long ago, and how long: as pages show it, and as people type it.

use plimsoll_api::view::Time;
use plimsoll_model::{Millis, Timestamp};

/// `4s`, `12m`, `3h`, `40d`: one unit, so that a page of ages is easy to compare and seldom changes.
pub(crate) fn age(since: Time, now: Timestamp) -> String {
    whole(Millis(now.0.saturating_sub(since.0.0)))
}

/// `in 8s`, or that it is time.
pub(crate) fn until(at: Time, now: Timestamp) -> String {
    match at.0.0.saturating_sub(now.0) {
        0 => "now".to_owned(),
        left => format!("in {}", whole(Millis(left.saturating_add(999)))),
    }
}

fn whole(length: Millis) -> String {
    let seconds = length.0 / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `4.2 s`, `3m 05s`: how long something took.
pub(crate) fn took(length: Millis) -> String {
    if length.0 < 60_000 {
        format!("{}.{} s", length.0 / 1_000, length.0 % 1_000 / 100)
    } else {
        plimsoll_workbench::text::elapsed(length)
    }
}

/// `90s`, `10m`, `1h30m`, `500ms`, `2d`.
pub(crate) fn length(text: &str) -> Result<Millis, String> {
    let wrong = || format!("`{text}` is no length of time; write it as 30s, 10m or 1h30m");
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        total =
            number.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Millis(total)) }
}

/// A moment someone named: so long ago, or the moment itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    Ago(Millis),
    At(Time),
}

impl Since {
    pub(crate) fn from(self, now: Timestamp) -> Time {
        match self {
            Self::Ago(length) => Time(Timestamp(now.0.saturating_sub(length.0))),
            Self::At(time) => time,
        }
    }
}

/// `10m`, or `2026-11-16T00:30:00Z`.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    if let Ok(length) = length(text) {
        return Ok(Since::Ago(length));
    }
    text.parse().map(Since::At).map_err(|_| {
        format!("`{text}` is no moment; write how long ago (10m) or when (2026-11-16T00:30:00Z)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_typed_as_everywhere_else() {
        for (text, millis) in [
            ("90s", Some(90_000)),
            ("10m", Some(600_000)),
            ("1h30m", Some(5_400_000)),
            ("500ms", Some(500)),
            ("2d", Some(172_800_000)),
            ("", None),
            ("10", None),
            ("m", None),
            ("10 m", None),
            ("-5s", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(length(text).ok(), millis.map(Millis), "{text}");
        }
    }

    #[test]
    fn a_moment_is_so_long_ago_or_a_date() {
        let now = Timestamp(1_000_000);
        assert_eq!(since("10m").unwrap().from(now), Time(Timestamp(400_000)));
        let date = since("1970-01-01T00:00:07Z").unwrap();
        assert_eq!(date.from(now), Time(Timestamp(7_000)));
        assert!(since("yesterday").unwrap_err().contains("write how long ago (10m)"));
    }

    #[test]
    fn ages_have_one_unit() {
        let now = Timestamp(10 * 86_400_000);
        for (ago, text) in
            [(0, "0s"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h"), (172_800_000, "2d")]
        {
            assert_eq!(age(Time(Timestamp(now.0 - ago)), now), text);
        }
        assert_eq!(age(Time(Timestamp(now.0 + 5_000)), now), "0s", "clocks differ");
        assert_eq!(until(Time(Timestamp(now.0 + 7_400)), now), "in 8s");
        assert_eq!(until(Time(now), now), "now");
        assert_eq!(took(Millis(4_230)), "4.2 s");
        assert_eq!(took(Millis(185_000)), "3m 05s");
    }
}
