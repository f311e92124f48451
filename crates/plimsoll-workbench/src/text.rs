//! Counts and times as sentences say them.

use plimsoll_model::Millis;

/// `1 error`, `3 errors`, `2 replicas`.
pub fn count(n: usize, what: &str) -> String {
    let plural = match what.strip_suffix('y') {
        Some(stem) if n != 1 => format!("{stem}ies"),
        None if n != 1 => format!("{what}s"),
        _ => what.to_owned(),
    };
    format!("{n} {plural}")
}

/// Time since the beginning of a run, to the second whatever the length: `14s`, `20m 15s`, `1h 02m 15s`, `3d 04h 00m 15s`.
pub fn elapsed(at: Millis) -> String {
    let total = at.0 / 1_000;
    let (days, hours, minutes) = (total / 86_400, total / 3_600 % 24, total / 60 % 60);
    let seconds = total % 60;
    match total {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m {seconds:02}s"),
        3_600..86_400 => format!("{hours}h {minutes:02}m {seconds:02}s"),
        _ => format!("{days}d {hours:02}h {minutes:02}m {seconds:02}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_tells_time_to_the_second() {
        for (seconds, text) in [
            (0, "0s"),
            (14, "14s"),
            (20 * 60 + 5, "20m 05s"),
            (3_600 + 15, "1h 00m 15s"),
            (90_061, "1d 01h 01m 01s"),
        ] {
            assert_eq!(elapsed(Millis::seconds(seconds)), text);
        }
    }
}
