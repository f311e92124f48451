//! Which part of a list is asked for, and the header that says how long the list is.

use serde::{Deserialize, Serialize};

/// How many there are in all, said with every part of a list.
pub const TOTAL: &str = "plimsoll-total";

/// How many are told where nobody says.
pub const DEFAULT_LIMIT: u32 = 1_000;

/// The most that are told at once, whatever is asked for.
pub const MAX_LIMIT: u32 = 10_000;

/// A part of a list.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::IntoParams,
)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// At most so many; 1 000 where it is left out, and never more than 10 000.
    pub limit: Option<u32>,
    /// Without so many of the first. `plimsoll-total` in the answer is how many there are.
    pub offset: Option<u32>,
}

impl Page {
    pub fn new(limit: Option<u32>, offset: Option<u32>) -> Self {
        Self { limit, offset }
    }

    pub fn of<T>(self, all: &[T]) -> &[T] {
        let skipped = usize::try_from(self.offset.unwrap_or(0)).unwrap_or(usize::MAX);
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
        let rest = all.get(skipped..).unwrap_or_default();
        &rest[..rest.len().min(usize::try_from(limit).unwrap_or(usize::MAX))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_part_of_the_list() {
        let all: Vec<u32> = (0..20_000).collect();
        for (case, limit, offset, part) in [
            ("the first thousand", None, None, 0..1_000),
            ("some of it", Some(3), Some(5), 5..8),
            ("the end", Some(10), Some(19_995), 19_995..20_000),
            ("beyond the end", None, Some(30_000), 0..0),
            ("nothing but how many there are", Some(0), None, 0..0),
            ("more than is told at once", Some(u32::MAX), None, 0..10_000),
        ] {
            let part: Vec<u32> = part.collect();
            assert_eq!(Page::new(limit, offset).of(&all), part, "{case}");
        }
    }
}
