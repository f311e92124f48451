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

    #[test]
    fn no_broken_state_breaks_its_reader() {
        let state = shop().state;
        Fuzz::new("state").one_of(2).input(postcard::to_stdvec(&state).unwrap()).run(|input| {
            let _ = decode::<State>(input);
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
