//! When a change of the cell's authority goes a step further: once every node has done what the present step asks of it.
//! Whoever leads decides it from the state alone, so that a leader that is lost costs nothing.

use plimsoll_model::rotation::RotationPhase;
use plimsoll_model::{Change, Guarded, State};

/// The next step of the rotation under way; nothing while nodes are awaited.
pub fn next(state: &State) -> Vec<Guarded> {
    let Some(rotation) = &state.access().rotation else { return Vec::new() };
    if state.awaited().next().is_some() {
        return Vec::new();
    }
    let change = match rotation.phase {
        RotationPhase::Trust => Change::SwitchAuthority,
        RotationPhase::Renew => Change::RetireAuthority,
    };
    vec![change.free()]
}

#[cfg(test)]
mod tests {
    use plimsoll_model::Writer;
    use plimsoll_model::access::{Authority, Digest};
    use plimsoll_model::testkit::{Cell, cell, cpus, node_id};

    use super::*;

    fn confirm(cell: &mut Cell) {
        let (node, epoch) = (node_id("ash"), cell.state.access().authority_epoch);
        cell.change(Writer::Agent, Change::ConfirmAuthority { node, epoch });
    }

    #[test]
    fn a_rotation_goes_on_when_nobody_is_awaited_and_ends_by_itself() {
        let mut cell = cell().node("ash", cpus(4)).node("keyless", cpus(4));
        let authority = |byte: u8| Authority { certificate: vec![byte], key: vec![byte] };
        let (node, key) = (node_id("ash"), Digest([1; 32]));
        let found = Change::Found { authority: authority(1), node, key };
        cell.change(Writer::Operator, found);
        assert_eq!(next(&cell.state), []);
        let start = Change::RotateAuthority { next: authority(2), without: Vec::new() };
        cell.change(Writer::Operator, start);
        for step in [Change::SwitchAuthority, Change::RetireAuthority] {
            assert_eq!(next(&cell.state), [], "{step:?} waits for ash");
            confirm(&mut cell);
            let batch = next(&cell.state);
            assert_eq!(batch, [step.free()]);
            cell.apply(Writer::Scheduler, batch).unwrap();
        }
        assert_eq!(next(&cell.state), []);
        assert_eq!(cell.state.access().authority, Some(authority(2)));
    }
}
