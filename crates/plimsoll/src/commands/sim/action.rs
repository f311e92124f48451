//! What happens to the cell, in words.

use plimsoll_sim::Action;

pub(super) fn words(action: &Action) -> String {
    match action {
        Action::Crash(node) => format!("{node} loses power"),
        Action::Cut(node) => format!("{node} is cut off"),
        Action::Return(node) => format!("{node} returns"),
        Action::Join(node, _) => format!("{node} joins"),
        Action::Cordon(node) => format!("{node} is cordoned"),
        Action::Uncordon(node) => format!("{node} is uncordoned"),
        Action::Clear(node) => format!("{node} is drained by force"),
        Action::Drain(node) => format!("{node} is drained"),
        Action::Restart(deployment) => format!("every replica of {deployment} is to start anew"),
        Action::Kill(node) => format!("a container on {node} ends by itself"),
        Action::NewLeader => "the leader is lost".to_owned(),
        Action::Deploy(name, _) => format!("{name} is deployed"),
        Action::Undeploy(name) => format!("{name} is deleted"),
        Action::Break(image) => format!("{image} no longer starts"),
        Action::Mend(image) => format!("{image} starts again"),
    }
}
