//! Reads a stream without writing anything: whether it is whole, and how much is in it.

use std::io::{self, Read};

use super::{Entry, EntryKind, EntrySink, PIECE, VolumeTotals, records};

/// Reads all of it, and says how much is in it.
pub fn check(from: impl Read) -> io::Result<VolumeTotals> {
    let mut counted = Counter { totals: VolumeTotals::default() };
    let announced = records(from, &mut counted)?;
    announced.compare(counted.totals)?;
    Ok(announced)
}

struct Counter {
    totals: VolumeTotals,
}

impl EntrySink for Counter {
    fn entry(&mut self, entry: Entry, from: &mut impl Read) -> io::Result<()> {
        // The volume's own directory does not count.
        if !entry.path.is_empty() {
            self.totals.files += 1;
        }
        let EntryKind::File { size } = entry.kind else { return Ok(()) };
        let mut piece = vec![0; PIECE];
        let mut left = size;
        while left > 0 {
            let most = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
            from.read_exact(&mut piece[..most])?;
            left -= most as u64;
        }
        self.totals.bytes = self.totals.bytes.saturating_add(size);
        Ok(())
    }
}
