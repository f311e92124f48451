//! Reads what begins with its level, and tells what is newer than this build from what is damaged.

use plimsoll_model::Level;
use plimsoll_model::level::{VERSION, outdated, remedy};
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why a command or a state cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Undecoded {
    #[error("{}: {}", outdated(VERSION, *.0), remedy(None))]
    Newer(Level),
    #[error("cannot decode its content ({0})")]
    Damaged(postcard::Error),
}

/// A command or a state. A newer one is refused before the rest of it is looked at, which may have a form of its own.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Undecoded> {
    let (level, _) = postcard::take_from_bytes::<Level>(bytes).map_err(Undecoded::Damaged)?;
    if !level.is_readable() {
        return Err(Undecoded::Newer(level));
    }
    postcard::from_bytes(bytes).map_err(Undecoded::Damaged)
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Author, CellId, Command, State, Term, Timestamp, Writer};

    use super::*;

    #[test]
    fn what_is_newer_says_so_whatever_else_it_holds() {
        let next = Level(Level::BUILD.0 + 1);
        let state = postcard::to_stdvec(&State::new(CellId::new("test").unwrap())).unwrap();
        let by = Author::new(Writer::Operator, "ann");
        let command = Command::new(Timestamp(1), Term(1), by, Vec::new());
        let command = postcard::to_stdvec(&command).unwrap();
        assert!(decode::<State>(&state).is_ok() && decode::<Command>(&command).is_ok());
        let mut newer = postcard::to_stdvec(&next).unwrap();
        newer.extend_from_slice(b"in another form");
        assert_eq!(decode::<State>(&newer), Err(Undecoded::Newer(next)));
        assert_eq!(decode::<Command>(&newer), Err(Undecoded::Newer(next)));
        assert!(matches!(decode::<State>(&state[..4]), Err(Undecoded::Damaged(_))));
    }
}
