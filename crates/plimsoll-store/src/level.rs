//! Reads what begins with its level, and tells what is newer than this build from what is damaged.

use std::io::{self, Read};

use plimsoll_model::Level;
use plimsoll_model::level::{VERSION, outdated, remedy};
use postcard::de_flavors::Flavor;
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

/// The same, read a piece at a time: what is decoded is in memory once, and nothing else of its size is.
pub(crate) fn decode_from<T: DeserializeOwned>(
    mut read: impl Read,
) -> io::Result<Result<T, Undecoded>> {
    let mut first = Vec::new();
    read.by_ref().take(LEVEL_BYTES).read_to_end(&mut first)?;
    let level = match postcard::take_from_bytes::<Level>(&first) {
        Ok((level, _)) => level,
        Err(error) => return Ok(Err(Undecoded::Damaged(error))),
    };
    if !level.is_readable() {
        return Ok(Err(Undecoded::Newer(level)));
    }
    let pieces = Pieces::new(first.chain(read));
    let mut deserializer = postcard::Deserializer::from_flavor(pieces);
    let decoded = T::deserialize(&mut deserializer);
    match deserializer.finalize() {
        Ok(Some(error)) => Err(error),
        Ok(None) | Err(_) => Ok(decoded.map_err(Undecoded::Damaged)),
    }
}

/// The most bytes a level takes.
const LEVEL_BYTES: u64 = 5;

/// How much is read at a time.
const PIECE: usize = 1 << 18;

/// What is read and not decoded yet.
struct Pieces<R> {
    read: R,
    held: Vec<u8>,
    /// How much of what is held was decoded.
    at: usize,
    /// Why no more could be read.
    failed: Option<io::Error>,
}

impl<R: Read> Pieces<R> {
    fn new(read: R) -> Self {
        Self { read, held: Vec::new(), at: 0, failed: None }
    }

    /// So many bytes. However many are asked for, no more is held than has come.
    fn take(&mut self, count: usize) -> postcard::Result<&[u8]> {
        while self.held.len() - self.at < count {
            self.held.drain(..self.at);
            self.at = 0;
            let most = PIECE.max((count - self.held.len()).min(16 * PIECE));
            let more = self.read.by_ref().take(most as u64).read_to_end(&mut self.held);
            match more {
                Ok(0) => return Err(postcard::Error::DeserializeUnexpectedEnd),
                Ok(_) => {}
                Err(error) => {
                    self.failed = Some(error);
                    return Err(postcard::Error::DeserializeUnexpectedEnd);
                }
            }
        }
        let from = self.at;
        self.at += count;
        Ok(&self.held[from..self.at])
    }
}

impl<'de, R: Read + 'de> Flavor<'de> for Pieces<R> {
    type Remainder = Option<io::Error>;
    type Source = R;

    fn pop(&mut self) -> postcard::Result<u8> {
        if let Some(byte) = self.held.get(self.at) {
            self.at += 1;
            return Ok(*byte);
        }
        self.take(1).map(|bytes| bytes[0])
    }

    /// What lives on in what is decoded is copied: there is nothing to borrow from.
    fn try_take_n(&mut self, _: usize) -> postcard::Result<&'de [u8]> {
        Err(postcard::Error::WontImplement)
    }

    fn try_take_n_temp<'a>(&'a mut self, count: usize) -> postcard::Result<&'a [u8]>
    where
        'de: 'a,
    {
        self.take(count)
    }

    fn finalize(self) -> postcard::Result<Option<io::Error>> {
        Ok(self.failed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use plimsoll_fuzz::Fuzz;
    use plimsoll_model::testkit::{Cell, cell, cpus, global, hosts, node_id, replica_id, spread};
    use plimsoll_model::{
        Author, Availability, CellId, Change, Command, DeploymentName, ServiceName, State, Term,
        Timestamp, Writer,
    };

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

    fn shop() -> Cell {
        let services = [("web", spread(3).host_port(80).reserve(100, 64)), ("all", global())];
        cell().node("ash", cpus(4)).node("birch", cpus(2)).deploy("shop", services).obey()
    }

    /// Gives one byte after the other, and then fails, or ends.
    struct Dripping<'b>(&'b [u8], Option<io::ErrorKind>);

    impl Read for Dripping<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match (self.0.split_first(), self.1) {
                (Some((byte, rest)), _) if !into.is_empty() => {
                    (into[0], self.0) = (*byte, rest);
                    Ok(1)
                }
                (None, Some(kind)) => Err(kind.into()),
                _ => Ok(0),
            }
        }
    }

    #[test]
    fn a_state_is_read_the_same_in_pieces_as_whole() {
        let mut large = shop();
        // Several times what is read at a time.
        large = large.node("cedar", cpus(1).label("large", &"x".repeat(5 * PIECE)));
        for cell in [shop(), large] {
            let bytes = postcard::to_stdvec(&cell.state).unwrap();
            let read = decode_from::<State>(&bytes[..]).unwrap();
            assert!(read == decode(&bytes) && read == Ok(cell.state), "{} bytes", bytes.len());
        }
        let bytes = postcard::to_stdvec(&shop().state).unwrap();
        assert!(decode_from::<State>(Dripping(&bytes, None)).unwrap() == Ok(shop().state));
        let cut = decode_from::<State>(Dripping(&bytes[..99], None)).unwrap();
        let ended = postcard::Error::DeserializeUnexpectedEnd;
        assert_eq!(cut.map(drop), Err(Undecoded::Damaged(ended)));
        let kind = io::ErrorKind::InvalidData;
        let failed = decode_from::<State>(Dripping(&bytes[..99], Some(kind)));
        assert_eq!(failed.map(drop).map_err(|error| error.kind()), Err(kind), "the disk says so");
        let mut newer = postcard::to_stdvec(&Level(Level::BUILD.0 + 1)).unwrap();
        newer.extend_from_slice(b"in another form");
        let newer = decode_from::<State>(&newer[..]).unwrap();
        assert_eq!(newer, Err(Undecoded::Newer(Level(Level::BUILD.0 + 1))));
    }

    /// A number that says that more follows than there is must not be believed before that has come.
    #[test]
    fn a_length_is_not_believed_before_its_bytes_have_come() {
        let mut bytes = postcard::to_stdvec(&Level::BUILD).unwrap();
        bytes.extend_from_slice(&[255, 255, 255, 255, 127]);
        let decoded = decode_from::<(Level, String)>(&bytes[..]).unwrap();
        let ended = postcard::Error::DeserializeUnexpectedEnd;
        assert_eq!(decoded, Err(Undecoded::Damaged(ended)));
    }

    #[test]
    fn no_broken_state_breaks_its_reader() {
        let state = shop().state;
        Fuzz::new("state").one_of(2).input(postcard::to_stdvec(&state).unwrap()).run(|input| {
            let whole = decode::<State>(input);
            assert!(decode_from::<State>(input).unwrap() == whole, "in pieces and whole");
        });
    }

    /// What a server that has gone mad may put into the log: it is refused or applied, the same on every server.
    #[test]
    fn no_broken_command_breaks_the_state() {
        let cell = shop();
        let (node, replica) = (node_id("ash"), replica_id("shop/web/1"));
        let services: BTreeMap<_, _> = [("web", spread(2)), ("db", hosts(1, ["ash"]).volume("d"))]
            .map(|(name, spec)| (ServiceName::new(name).unwrap(), Arc::new(spec)))
            .into();
        let deployment = DeploymentName::new("shop").unwrap();
        let spec = spread(3).hash;
        let changes = [
            Change::PutNode { node: node.clone(), facts: cpus(4).label("disk", "ssd") },
            Change::Place { replica: replica.clone(), node: node.clone(), spec },
            Change::Deploy { deployment: deployment.clone(), services, routes: Vec::new() },
            Change::Undeploy { deployment },
            Change::SetAvailability { node, availability: Availability::Cordoned },
            Change::Retire { replica },
        ];
        let mut fuzz = Fuzz::new("command").one_of(2);
        for change in changes {
            let by = Author::new(Writer::Operator, "ann");
            let command = Command::new(Timestamp(1), Term(1), by, vec![change.free()]);
            fuzz = fuzz.input(postcard::to_stdvec(&command).unwrap());
        }
        fuzz.run(|input| {
            let Ok(command) = decode::<Command>(input) else { return };
            let (mut one, mut other) = (cell.state.clone(), cell.state.clone());
            assert_eq!(one.apply(&command), other.apply(&command));
            assert!(one == other, "{command:?}");
        });
    }
}
