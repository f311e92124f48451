//! What a history can have that no register could have done.

use std::fmt;

use super::{Read, Write};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anomaly {
    /// It was acknowledged and is not there.
    Lost { write: Write },
    /// It was acknowledged as one revision and is another.
    OtherRevision { write: Write, found: u64 },
    /// It was refused and is there.
    RefusedAndDone { write: Write, found: u64 },
    /// One write was done twice.
    Twice { value: String, revisions: (u64, u64) },
    /// Nobody wrote it.
    Invented { register: String, revision: u64, value: String },
    /// A revision is missing.
    Gap { register: String, expected: u64, found: u64 },
    /// It was read, and is not what the register has there.
    ReadOther { read: Read, kept: Option<String> },
    /// `first` comes before `then`, and had not begun when that was over.
    OutOfOrder { first: Box<HistoryOp>, then: Box<HistoryOp> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryOp {
    Write(Write),
    Read(Read),
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { write } => write!(f, "{write} was acknowledged and is lost"),
            Self::OtherRevision { write, found } => {
                write!(f, "{write} is revision {found}, not the one it was acknowledged as")
            }
            Self::RefusedAndDone { write, found } => {
                write!(f, "{write} was refused and is revision {found}")
            }
            Self::Twice { value, revisions: (first, second) } => {
                write!(f, "{value} was written twice, as revisions {first} and {second}")
            }
            Self::Invented { register, revision, value } => {
                write!(f, "nobody wrote {value}, revision {revision} of {register}")
            }
            Self::Gap { register, expected, found } => {
                write!(f, "{register} has revision {found} where {expected} should be")
            }
            Self::ReadOther { read, kept: Some(kept) } => write!(f, "{read}, where {kept} is"),
            Self::ReadOther { read, kept: None } => write!(f, "{read}, where nothing is"),
            Self::OutOfOrder { first, then } => {
                write!(f, "{then} was over before this began, which comes before it: {first}")
            }
        }
    }
}

impl fmt::Display for HistoryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(write) => write.fmt(f),
            Self::Read(read) => read.fmt(f),
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { register, value, invoked, outcome } = self;
        write!(f, "the write of {value} to {register} at {invoked:?} ({outcome:?})")
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { register, invoked, answered, seen } = self;
        write!(f, "the read of {register} from {invoked:?} to {answered:?} saw ")?;
        match seen {
            Some((revision, value)) => write!(f, "{value} as revision {revision}"),
            None => f.write_str("nothing"),
        }
    }
}
