//! What a shard has, in few bytes: reports come every ten seconds from every cell, and most say what the last one said.
//!
//! The kinds of machines are numbered in the order in which both sides know them, and only what is not zero is written: a byte for
//! which numbers follow, and each number in as few bytes as it needs.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::fleet::ids::Pool;
use crate::fleet::report::{MAX_POOLS, Supply};

/// Why bytes are no summary.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SummaryError {
    #[error("the summary ends in the middle")]
    Truncated,
    #[error("the summary goes on after its end")]
    TooLong,
    #[error("the summary has a number that no count can be")]
    Number,
    #[error("the summary names kind {found} of {known}")]
    Unknown { found: u64, known: usize },
    #[error("{pool} is not among the kinds that were registered")]
    Unregistered { pool: Pool },
}

/// The supply of a shard whose kinds of machines are `pools`, in that order.
pub fn encode_summary(
    pools: &[Pool],
    supply: &BTreeMap<Pool, Supply>,
) -> Result<Vec<u8>, SummaryError> {
    let index: BTreeMap<&Pool, usize> =
        pools.iter().enumerate().map(|(at, pool)| (pool, at)).collect();
    let mut rows = Vec::new();
    for (pool, supply) in supply.iter().filter(|(_, supply)| **supply != Supply::default()) {
        let at =
            index.get(pool).ok_or_else(|| SummaryError::Unregistered { pool: pool.clone() })?;
        rows.push((*at, supply));
    }
    rows.sort_unstable_by_key(|(at, _)| *at);
    let mut bytes = Vec::with_capacity(rows.len() * 7);
    let mut before = 0;
    for (at, supply) in rows {
        let counts = [supply.idle, supply.configured, supply.quota_used];
        let present = counts
            .iter()
            .enumerate()
            .fold(0_u64, |mask, (bit, count)| mask | u64::from(*count > 0) << bit);
        // How far it is from the last one, with the mask in the low bits: one byte for most rows.
        put(&mut bytes, u64::try_from(at - before).unwrap_or(u64::MAX) << 3 | present);
        for count in counts.into_iter().filter(|count| *count > 0) {
            put(&mut bytes, u64::from(count));
        }
        before = at;
    }
    Ok(bytes)
}

/// What [`encode_summary`] wrote.
pub fn decode_summary(
    pools: &[Pool],
    bytes: &[u8],
) -> Result<BTreeMap<Pool, Supply>, SummaryError> {
    let mut supply = BTreeMap::new();
    let (mut rest, mut at) = (bytes, 0_u64);
    while !rest.is_empty() {
        if supply.len() >= MAX_POOLS {
            return Err(SummaryError::TooLong);
        }
        let head = take(&mut rest)?;
        at = at.saturating_add(head >> 3);
        let pool = usize::try_from(at).ok().and_then(|at| pools.get(at));
        let Some(pool) = pool else {
            return Err(SummaryError::Unknown { found: at, known: pools.len() });
        };
        let mut count = |bit: u64| {
            if head & bit == 0 {
                return Ok(0);
            }
            u32::try_from(take(&mut rest)?).map_err(|_| SummaryError::Number)
        };
        let row = Supply { idle: count(1)?, configured: count(2)?, quota_used: count(4)? };
        if supply.insert(pool.clone(), row).is_some() {
            return Err(SummaryError::TooLong);
        }
    }
    Ok(supply)
}

/// Seven bits a byte, the low ones first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or(0));
}

fn take(bytes: &mut &[u8]) -> Result<u64, SummaryError> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(SummaryError::Truncated)?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(SummaryError::Number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fleet::ids::{MachineType, Zone};

    fn pools(count: usize) -> Vec<Pool> {
        let pool = |nth: usize| Pool {
            machine_type: MachineType::new(format!("m{}", nth / 3)).unwrap(),
            zone: Zone::new(format!("z{}", nth % 3)).unwrap(),
        };
        (0..count).map(pool).collect()
    }

    /// A shard of thirty kinds with thousands of machines of each.
    #[test]
    fn thirty_kinds_of_machines_take_at_most_240_bytes() {
        let pools = pools(30);
        let row = Supply { idle: 16_000, configured: 16_000, quota_used: 16_000 };
        let supply = pools.iter().map(|pool| (pool.clone(), row)).collect();
        let bytes = encode_summary(&pools, &supply).unwrap();
        assert!(bytes.len() <= 240, "{} bytes", bytes.len());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(counts in prop::collection::vec((0_u32..9, any::<u32>(), 0_u32..300), 0..60)) {
            let pools = pools(counts.len());
            let supply: BTreeMap<Pool, Supply> = pools.iter().zip(&counts)
                .map(|(pool, (idle, configured, quota_used))| {
                    (pool.clone(), Supply { idle: *idle, configured: *configured, quota_used: *quota_used })
                })
                .filter(|(_, supply)| *supply != Supply::default())
                .collect();
            let bytes = encode_summary(&pools, &supply).unwrap();
            prop_assert_eq!(decode_summary(&pools, &bytes).unwrap(), supply);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_summary(&pools(7), &bytes);
        }
    }
}
