//! What the searches found, in numbers: a line an instance.

use std::fmt::Write as _;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct ReassignmentFacts {
    pub seconds: f64,
    pub seed: u64,
    pub searches: Vec<ReassignmentRow>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ReassignmentRow {
    pub instance: String,
    /// The most processes that were allowed to move, in percent; all of them where none is stated.
    pub moved_percent: Option<u32>,
    pub machines: usize,
    pub processes: usize,
    /// The cost with no move.
    pub start: i64,
    /// The cost after a second and after five, where the search went on for longer.
    pub after_1s: Option<i64>,
    pub after_5s: Option<i64>,
    pub cost: i64,
    /// The winning team's after 300 seconds.
    pub winner: Option<i64>,
    pub moved: usize,
    /// Hard rules that the layout breaks.
    pub violations: usize,
    /// Steps looked at.
    pub steps: u64,
    /// The machine of each process in the end.
    #[serde(skip)]
    pub layout: Vec<usize>,
}

impl ReassignmentRow {
    /// The cost in shares of the winner's.
    #[expect(clippy::cast_precision_loss, reason = "four places of it are shown")]
    pub fn ratio(&self) -> Option<f64> {
        self.winner.filter(|winner| *winner > 0).map(|winner| self.cost as f64 / winner as f64)
    }
}

impl ReassignmentFacts {
    pub fn heads(&self) -> [String; 12] {
        let end = format!("{} s", self.seconds);
        let heads = [
            "instance",
            "machines",
            "processes",
            "may move",
            "start",
            "1 s",
            "5 s",
            &end,
            "winner, 300 s",
            "ratio",
            "moved",
            "violations",
        ];
        heads.map(str::to_owned)
    }

    pub fn rows(&self) -> impl Iterator<Item = [String; 12]> {
        let or_none = |cost: Option<i64>| cost.map_or_else(|| "-".to_owned(), |it| it.to_string());
        self.searches.iter().map(move |row| {
            [
                row.instance.clone(),
                row.machines.to_string(),
                row.processes.to_string(),
                row.moved_percent.map_or_else(|| "all".to_owned(), |it| format!("{it} %")),
                row.start.to_string(),
                or_none(row.after_1s),
                or_none(row.after_5s),
                row.cost.to_string(),
                or_none(row.winner),
                row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}")),
                row.moved.to_string(),
                row.violations.to_string(),
            ]
        })
    }

    pub fn markdown(&self) -> String {
        let mut text = format!("| {} |\n|{}\n", self.heads().join(" | "), "---|".repeat(12));
        for row in self.rows() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }
}
