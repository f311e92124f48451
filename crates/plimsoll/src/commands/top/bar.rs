//! A node's hull as a bar: how far it is loaded, and the lines it is held against.

use plimsoll_api::view::CellPressure;
use plimsoll_model::Pressure;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

/// Loaded, still empty, the trigger, and what no move takes a destination above.
const FULL: &str = "█";
const EMPTY: &str = "░";
const LOAD_LINE: &str = "┃";
const CAP_LINE: &str = "┊";

/// The lines of the cell; none while the daemon has not told them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadLines {
    trigger: Pressure,
    cap: Pressure,
}

impl LoadLines {
    pub(super) fn of(pressure: &CellPressure) -> Self {
        Self { trigger: pressure.trigger, cap: pressure.destination_cap }
    }

    fn colour(self, level: Pressure) -> Color {
        if level >= self.trigger {
            Color::Red
        } else if level >= self.cap {
            Color::Yellow
        } else {
            Color::Green
        }
    }
}

/// `█████░░░░░┊┃░` as wide as it is told. What was not measured is empty.
pub(super) fn bar(
    width: usize,
    level: Option<Pressure>,
    lines: Option<LoadLines>,
) -> Line<'static> {
    let at = |share: Pressure| column(share, width);
    let filled = level.map_or(0, |level| filled(level, width));
    let colour = match (level, lines) {
        (Some(level), Some(lines)) => lines.colour(level),
        _ => Color::Green,
    };
    let spans = (0..width).map(|column| match lines {
        Some(lines) if column == at(lines.trigger) => {
            Span::styled(LOAD_LINE, Style::new().fg(Color::Red))
        }
        Some(lines) if column == at(lines.cap) => {
            Span::styled(CAP_LINE, Style::new().fg(Color::Yellow))
        }
        _ if column < filled => Span::styled(FULL, Style::new().fg(colour)),
        _ => Span::styled(EMPTY, Style::new().fg(Color::DarkGray)),
    });
    spans.collect()
}

/// `45%`, `45→62%` where moves under way change it, and a dash where nothing was measured.
pub(super) fn percent(level: Option<Pressure>, predicted: Option<Pressure>) -> String {
    let whole = |level: Pressure| level.millionths() / 10_000;
    match (level.map(whole), predicted.map(whole)) {
        (None, _) => "-".to_owned(),
        (Some(now), Some(then)) if now != then => format!("{now}→{then}%"),
        (Some(now), _) => format!("{now}%"),
    }
}

/// In which column a share of the node falls.
fn column(share: Pressure, width: usize) -> usize {
    scaled(share, width).min(width.saturating_sub(1))
}

/// How many columns a level fills: one as soon as there is anything, all of them only when the node is full.
fn filled(level: Pressure, width: usize) -> usize {
    let columns = scaled(level, width).min(width);
    if columns == 0 && level > Pressure::ZERO { 1 } else { columns }
}

fn scaled(share: Pressure, width: usize) -> usize {
    let full = u64::from(Pressure::FULL.millionths());
    let columns = u64::from(share.millionths()) * width as u64 / full;
    usize::try_from(columns).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: LoadLines =
        LoadLines { trigger: Pressure::percent(85), cap: Pressure::percent(75) };

    #[test]
    fn the_level_is_seen_against_the_load_line() {
        for (case, level, shown, colour) in [
            ("nothing measured", None, "░░░░░░░░░░░░░░░┊░┃░░", Color::Green),
            ("idle", Some(0), "░░░░░░░░░░░░░░░┊░┃░░", Color::Green),
            ("hardly anything is still seen", Some(1), "█░░░░░░░░░░░░░░┊░┃░░", Color::Green),
            ("half", Some(50), "██████████░░░░░┊░┃░░", Color::Green),
            ("above the cap", Some(80), "███████████████┊░┃░░", Color::Yellow),
            ("above its line", Some(95), "███████████████┊█┃█░", Color::Red),
            ("more than there is", Some(300), "███████████████┊█┃██", Color::Red),
        ] {
            let level = level.map(Pressure::percent);
            let drawn = bar(20, level, Some(LINES));
            assert_eq!(drawn.to_string(), shown, "{case}");
            assert_eq!(level.map_or(Color::Green, |level| LINES.colour(level)), colour, "{case}");
        }
        assert_eq!(bar(4, Some(Pressure::FULL), None).to_string(), "████");
        assert_eq!(bar(0, None, Some(LINES)).to_string(), "");
    }

    #[test]
    fn what_moves_will_change_is_told_beside_it() {
        let share = |percent| Some(Pressure::percent(percent));
        assert_eq!(percent(None, share(3)), "-");
        assert_eq!(percent(share(45), None), "45%");
        assert_eq!(percent(share(45), share(45)), "45%");
        assert_eq!(percent(share(45), share(62)), "45→62%");
    }
}
