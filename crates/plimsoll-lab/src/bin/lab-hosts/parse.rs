//! Lengths of time and shares, as people type them.

use std::time::Duration;

/// `50ms`, `2s`, `250us`.
pub(crate) fn length_of_time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| format!("{text:?} has no number"))?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(format!("{text:?} has no unit; append us, ms or s")),
    }
}

/// `20%` or `20`.
pub(crate) fn share(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| format!("{text:?} is not between 0% and 100%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_shares_end_at_all() {
        assert_eq!(length_of_time("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(length_of_time("2s"), Ok(Duration::from_secs(2)));
        assert!(length_of_time("50").is_err() && length_of_time("ms").is_err());
        assert_eq!((share("20%"), share("100")), (Ok(20), Ok(100)));
        assert!(share("101%").is_err() && share("-1%").is_err());
    }
}
