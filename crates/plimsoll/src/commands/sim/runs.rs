//! Several runs of one scenario, a line each.

use plimsoll_model::Millis;
use plimsoll_sim::Scenario;
use plimsoll_workbench::sim::{RunFacts, rounded};

use crate::output::count;
use crate::table::Table;

pub(super) fn text(scenario: &Scenario, all: &[RunFacts]) -> String {
    let broken = all.iter().filter(|facts| facts.failure.is_some()).count();
    let (first, last) = (all.first().map_or(0, |f| f.seed), all.last().map_or(0, |f| f.seed));
    let verdict = match broken {
        0 => "every promise kept".to_owned(),
        _ => format!("a promise broken in {}", count(broken, "run")),
    };
    let (name, length) = (&scenario.name, scenario.length);
    let mut text =
        format!("{name}: {length} simulated with seeds {first} to {last}, {verdict}\n\n");
    let mut table = Table::new([
        ">SEED",
        ">PLACED",
        ">MOVES",
        ">UNDONE",
        ">LOST",
        ">MISSING",
        ">LONGEST",
        ">PRESSURE",
        "PROMISES",
    ]);
    for facts in all {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let missing = facts.missing.as_ref();
        table.row([
            facts.seed.to_string(),
            facts.placed.to_string(),
            facts.moves.started.to_string(),
            facts.moves.undone.to_string(),
            facts.nodes_lost.to_string(),
            or_dash(missing.map(|missing| missing.most.to_string())),
            or_dash(missing.map(|missing| Millis(missing.longest_ms).to_string())),
            or_dash(facts.peak.as_ref().map(|peak| rounded(peak.pressure))),
            facts.failure.as_ref().map_or_else(
                || "kept".to_owned(),
                |broken| format!("broken after {}", Millis(broken.at_ms)),
            ),
        ]);
    }
    text.push_str(&table.render());
    text
}
