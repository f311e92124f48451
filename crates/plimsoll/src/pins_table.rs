//! What data keeps on a node, as it is printed.

use plimsoll_api::view::DataPin;

use crate::replica_line::plain;
use crate::table::Table;

/// A line for each group of services; nothing where none is pinned. Nodes are shown where they are known.
pub(crate) fn table(pins: &[DataPin]) -> String {
    if pins.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["PINNED BY DATA", "NODE", "DATA"]);
    for DataPin { services, data, nodes } in pins {
        let nodes = if nodes.is_empty() { "-".to_owned() } else { nodes.join(", ") };
        table.row([services.join(", "), nodes, plain(&data.join(", "))]);
    }
    if pins.iter().all(|pin| pin.nodes.is_empty()) {
        table = table.without("NODE");
    }
    table.render()
}
