//! When a cell may write newer forms: once every node that must read them has said that it can.

use std::collections::BTreeMap;

use plimsoll_model::{Level, Node, NodeId, NodeStatus, State};

/// The level to raise the cell to, given what the nodes that are linked to the leader can read. Every server counts, also
/// one that is away: it comes back to a log it must read. A node without the log counts while it is heard; one that comes
/// back too old later is told so, and its replicas run on.
pub fn next(
    state: &State,
    servers: impl Fn(&NodeId) -> bool,
    announced: &BTreeMap<NodeId, Level>,
) -> Option<Level> {
    let counts = |(id, node): &(&NodeId, &Node)| servers(id) || node.status == NodeStatus::Ready;
    let readers = state.nodes().iter().filter(counts);
    let lowest = readers.map(|(id, _)| announced.get(id).copied()).min()??;
    (lowest > state.level()).then_some(lowest)
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cell, cpus, node_id};
    use plimsoll_model::{Change, Writer};

    use super::*;

    #[test]
    fn a_cell_speaks_what_all_can_read_and_no_more() {
        let (one, two, three) = (Level(1), Level(2), Level(3));
        let mut cell = cell().node("ash", cpus(4)).node("birch", cpus(4)).node("elm", cpus(4));
        let is_server = |id: &NodeId| id.as_str() != "elm";
        let all = |levels: [Option<Level>; 3]| {
            let names = ["ash", "birch", "elm"].map(node_id);
            names.into_iter().zip(levels).filter_map(|(id, level)| Some((id, level?))).collect()
        };
        for (case, levels, expected) in [
            ("nothing is newer", [Some(one); 3], None),
            ("one server is old", [Some(two), Some(one), Some(two)], None),
            ("one server has not said", [Some(two), None, Some(two)], None),
            ("one that only runs replicas is old", [Some(two), Some(two), Some(one)], None),
            ("all are upgraded", [Some(two); 3], Some(two)),
            ("some are further", [Some(three), Some(two), Some(three)], Some(two)),
        ] {
            assert_eq!(next(&cell.state, is_server, &all(levels)), expected, "{case}");
        }
        for (node, expected) in [("elm", Some(two)), ("birch", None)] {
            let down = Change::SetStatus { node: node_id(node), status: NodeStatus::Down };
            cell.apply(Writer::Liveness, vec![down.free()]).unwrap();
            let mut levels: BTreeMap<NodeId, Level> = all([Some(two); 3]);
            levels.remove(&node_id(node));
            levels.remove(&node_id("elm"));
            assert_eq!(next(&cell.state, is_server, &levels), expected, "{node} is down");
        }
        assert_eq!(
            next(&State::new(cell.state.cell_id().clone()), is_server, &all([None; 3])),
            None
        );
    }
}
