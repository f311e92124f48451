//! How entries and segment headers are written. A frame is length, checksum, index, floor and payload.
//!
//! The *floor* is the place in the file up to which all was synced when the frame was written. One write carries
//! the frames of many entries, and a crash may keep its end and lose its middle; the floor tells such a torn write,
//! which nobody was promised, from damage to entries that somebody was.

use std::ops::Range;

use super::MAX_ENTRY;

/// The newest segment format this build reads, and the one it writes.
pub(super) const FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"plimslog";

/// magic, format, checksum, first index, salt
pub(super) const SEGMENT_HEADER: usize = 8 + 4 + 4 + 8 + 8;

/// length, checksum, index, floor
pub(super) const FRAME_HEADER: usize = 4 + 4 + 8 + 8;

/// Frames begin at multiples of this, so that a search for one may take big steps.
pub(super) const ALIGN: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) first: u64,
    /// Goes into every checksum of the segment: no payload can hold bytes that pass for one of its frames.
    pub(super) salt: u64,
}

/// Why bytes are not a segment header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    Newer(u32),
    Damaged(&'static str),
}

impl SegmentHeader {
    pub(super) fn encode(self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.salt.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        if bytes.len() < SEGMENT_HEADER {
            return Err(BadHeader::Damaged("the header is cut short"));
        }
        if bytes[..8] != MAGIC {
            return Err(BadHeader::Damaged("it does not begin as a log segment does"));
        }
        // Before the checksum: a newer format may well have another header.
        let format = u32_at(bytes, 8);
        if format > FORMAT {
            return Err(BadHeader::Newer(format));
        }
        if crc32c::crc32c(&bytes[16..SEGMENT_HEADER]) != u32_at(bytes, 12) {
            return Err(BadHeader::Damaged("the checksum of its header does not match"));
        }
        Ok(Self { first: u64_at(bytes, 16), salt: u64_at(bytes, 24) })
    }
}

/// A frame as found: where its payload lies, and what its header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) index: u64,
    pub(super) floor: u64,
    pub(super) payload: Range<usize>,
    /// Where the next frame begins.
    pub(super) end: usize,
}

/// How many bytes the frame of a payload takes.
pub(super) fn frame_size(payload: usize) -> usize {
    (FRAME_HEADER + payload).next_multiple_of(ALIGN)
}

/// Adds a frame to the end of `bytes`.
pub(super) fn push_frame(bytes: &mut Vec<u8>, salt: u64, index: u64, floor: u64, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("entries are bounded by MAX_ENTRY");
    let checksum = checksum(salt, length, index, floor, payload);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&floor.to_le_bytes());
    bytes.extend_from_slice(payload);
    let padding = payload.len().wrapping_neg() % ALIGN;
    bytes.extend_from_slice(&[0; ALIGN][..padding]);
}

/// The frame that begins at `at`, or why there is none.
pub(super) fn frame_at(segment: &[u8], at: usize, salt: u64) -> Result<Frame, &'static str> {
    let header = segment.get(at..at + FRAME_HEADER).ok_or("the frame is cut short")?;
    let length = u32_at(header, 0);
    let size = length as usize;
    if size == 0 || size > MAX_ENTRY {
        return Err("its length cannot be");
    }
    let payload = at + FRAME_HEADER..at + FRAME_HEADER + size;
    let end = at + frame_size(size);
    if end > segment.len() {
        return Err("the frame is cut short");
    }
    let (index, floor) = (u64_at(header, 8), u64_at(header, 16));
    let found = u32_at(header, 4);
    if checksum(salt, length, index, floor, &segment[payload.clone()]) != found {
        return Err("its checksum does not match");
    }
    Ok(Frame { index, floor, payload, end })
}

/// What would be the floor of a frame that begins at `at`.
pub(super) fn floor_at(segment: &[u8], at: usize) -> Option<u64> {
    segment.get(at..at + FRAME_HEADER).map(|header| u64_at(header, 16))
}

fn checksum(salt: u64, length: u32, index: u64, floor: u64, payload: &[u8]) -> u32 {
    let mut header = [0; 28];
    header[..8].copy_from_slice(&salt.to_le_bytes());
    header[8..12].copy_from_slice(&length.to_le_bytes());
    header[12..20].copy_from_slice(&index.to_le_bytes());
    header[20..28].copy_from_slice(&floor.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&header), payload)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_as_it_was_written_and_no_flipped_bit_passes() {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, 7, 41, 32, b"hello world");
        assert_eq!(bytes.len(), frame_size(11));
        let frame = frame_at(&bytes, 0, 7).unwrap();
        assert_eq!((frame.index, frame.floor, frame.end), (41, 32, bytes.len()));
        assert_eq!(&bytes[frame.payload], b"hello world");
        assert!(frame_at(&bytes, 0, 8).is_err(), "the frame of another segment");
        for bit in 0..(FRAME_HEADER + 11) * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(frame_at(&wrong, 0, 7).is_err(), "bit {bit} was flipped");
        }
    }

    #[test]
    fn a_header_says_whether_it_is_newer_or_damaged() {
        let bytes = SegmentHeader { first: 9, salt: 3 }.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(SegmentHeader { first: 9, salt: 3 }));
        let mut newer = bytes;
        newer[8] = 2;
        assert_eq!(SegmentHeader::decode(&newer), Err(BadHeader::Newer(2)));
        let mut damaged = bytes;
        damaged[17] ^= 1;
        assert!(matches!(SegmentHeader::decode(&damaged), Err(BadHeader::Damaged(_))));
        assert!(matches!(SegmentHeader::decode(&bytes[..20]), Err(BadHeader::Damaged(_))));
    }
}
