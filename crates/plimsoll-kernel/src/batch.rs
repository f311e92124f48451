//! How a long batch becomes entries of the log. While an entry is encoded, sent and applied, whoever needs the state waits: a
//! leader that deletes ten thousand replicas with one entry is deposed by those who hear nothing of it meanwhile.

use plimsoll_model::Guarded;

/// The most changes one entry has. A release build applies some 300,000 a second, so an entry keeps others from the state for
/// about a millisecond; the disk is synced once for all entries that wait.
pub const MAX_CHANGES: usize = 256;

/// The batch in its order, cut into pieces that are committed one after the other. What is decided of one replica stays
/// together: the rest of a batch is as true after its first piece as before it, since each change names what it was decided
/// on.
pub fn pieces(batch: Vec<Guarded>, most: usize) -> Vec<Vec<Guarded>> {
    let mut pieces: Vec<Vec<Guarded>> = Vec::new();
    for change in batch {
        match pieces.last_mut() {
            Some(piece) if piece.len() < most.max(1) || goes_with(piece, &change) => {
                piece.push(change);
            }
            _ => pieces.push(vec![change]),
        }
    }
    pieces
}

fn goes_with(piece: &[Guarded], next: &Guarded) -> bool {
    let last = piece.last().and_then(|last| last.change.replica());
    last.is_some() && last == next.change.replica()
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{node_id, replica_id, spread};
    use plimsoll_model::{Change, MoveCause, NodeStatus};

    use super::*;

    fn change(text: &str) -> Guarded {
        let (node, replica) = (node_id("ash"), replica_id("shop/web/1"));
        let (spec, cause) = (spread(1).hash, MoveCause::Outdated);
        match text {
            "succeed" => Change::Succeed { replica, node, spec, cause }.free(),
            "promote" => Change::Promote { replica }.free(),
            "down" => Change::SetStatus { node, status: NodeStatus::Down }.free(),
            id => Change::Retire { replica: replica_id(id) }.free(),
        }
    }

    #[test]
    fn a_batch_is_cut_where_it_is_long_and_never_within_one_replica() {
        let batch = |texts: &[&str]| texts.iter().map(|text| change(text)).collect::<Vec<_>>();
        let (two, three) = ("shop/web/2", "shop/web/3");
        for (case, given, lengths) in [
            ("nothing", &[][..], &[][..]),
            ("as many as fit", &[two, three], &[2]),
            ("one more", &[two, three, "down"], &[2, 1]),
            ("one replica", &[two, "succeed", "promote", three], &[3, 1]),
            ("what is of no replica", &["down", "down", "down"], &[2, 1]),
        ] {
            let pieces = pieces(batch(given), 2);
            assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{case}");
            assert_eq!(pieces.concat(), batch(given), "{case}: in its order");
        }
    }
}
