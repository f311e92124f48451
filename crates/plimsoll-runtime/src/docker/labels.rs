//! How a container is known again: its name for people, its labels for us.

use std::collections::HashMap;

use plimsoll_model::{CellId, DeploymentName, Generation};

use crate::runtime::Tag;

pub(super) const CELL: &str = "plimsoll.cell";
pub(super) const DEPLOYMENT: &str = "plimsoll.deployment";
const REPLICA: &str = "plimsoll.replica";
const GENERATION: &str = "plimsoll.generation";

/// `shop-web-1.g7.harbour`: what it is, which assignment of it, and whose. Two cells may share one engine.
pub(super) fn name(tag: &Tag) -> String {
    format!("{}.{}.{}", tag.replica, tag.generation, tag.cell_id)
}

/// The labels of a container. Compose's own are among them, so that tools show what belongs together.
pub(super) fn of(tag: &Tag) -> HashMap<String, String> {
    let service = &tag.replica.service;
    let mut labels = shared(&tag.cell_id, &service.deployment);
    labels.extend(
        [
            (REPLICA, written(tag)),
            (GENERATION, tag.generation.0.to_string()),
            ("com.docker.compose.service", service.service.to_string()),
            ("com.docker.compose.container-number", tag.replica.slot.to_string()),
            ("com.docker.compose.oneoff", "False".to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    labels
}

/// The labels of what a deployment's containers share: networks and volumes.
pub(super) fn shared(cell_id: &CellId, deployment: &DeploymentName) -> HashMap<String, String> {
    [
        (CELL, cell_id.to_string()),
        (DEPLOYMENT, deployment.to_string()),
        ("com.docker.compose.project", deployment.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// The name of something a deployment shares, with the cell's own behind it: for where another cell on the engine has
/// the shorter one.
pub(super) fn scoped(name: &str, tag: &Tag) -> String {
    format!("{name}.{}", tag.cell_id)
}

/// Whether it was made by another cell. What nobody of ours made is anybody's.
pub(super) fn is_of_another(tag: &Tag, labels: Option<&HashMap<String, String>>) -> bool {
    let cell_id = labels.and_then(|labels| labels.get(CELL));
    cell_id.is_some_and(|cell_id| cell_id != tag.cell_id.as_str())
}

/// The tag that labels speak of. None for what is not ours, and for what nobody of ours wrote.
pub(super) fn tag(labels: &HashMap<String, String>) -> Option<Tag> {
    let label = |key: &str| labels.get(key);
    Some(Tag {
        cell_id: CellId::new(label(CELL)?).ok()?,
        replica: label(REPLICA)?.parse().ok()?,
        generation: Generation(label(GENERATION)?.parse().ok()?),
    })
}

/// A filter for everything of a cell, or of one of its deployments.
pub(super) fn filter(
    cell_id: &CellId,
    deployment: Option<&DeploymentName>,
) -> HashMap<String, Vec<String>> {
    let mut labels = vec![format!("{CELL}={cell_id}")];
    labels.extend(deployment.map(|deployment| format!("{DEPLOYMENT}={deployment}")));
    HashMap::from([("label".to_owned(), labels)])
}

/// The form that can be read back: `shop/web/1`, or `shop/web/@ash` for the copy of a node.
fn written(tag: &Tag) -> String {
    match serde_json::to_value(&tag.replica) {
        Ok(serde_json::Value::String(text)) => text,
        _ => unreachable!("a replica id is written as one text"),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::replica_id;

    use super::*;

    #[test]
    fn labels_read_back_as_the_tag_they_were_made_from() {
        for replica in ["shop/web/1", "shop/web/@3", "a-b/c.d/2", "a/b-c.d/2"] {
            let made = Tag {
                cell_id: CellId::new("harbour").unwrap(),
                replica: replica_id(replica),
                generation: Generation(7),
            };
            assert_eq!(tag(&of(&made)), Some(made), "{replica}");
        }
        assert_eq!(tag(&HashMap::new()), None);
    }
}
