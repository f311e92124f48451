//! Lines that are drawn again: what to write so that a terminal that shows one page shows another, touching only the
//! lines that differ. What the pages say is settled by whoever draws them.

use std::fmt::Write as _;

use crate::table::columns_of;

/// A terminal that knows it shows the whole of what is between these at once; others take no notice.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

/// Cursor hidden, and lines that are too long cut instead of continued on the next.
const STILL: &str = "\x1b[?25l\x1b[?7l";
const RESTORED: &str = "\x1b[?7h\x1b[?25h";

/// A page that has the terminal to itself, until it is left.
#[derive(Debug, Default)]
pub(crate) struct FullScreen {
    shown: Vec<String>,
}

impl FullScreen {
    pub(crate) fn open() -> String {
        format!("\x1b[?1049h{STILL}\x1b[H\x1b[2J")
    }

    /// What was there before comes back.
    pub(crate) fn close() -> String {
        format!("{RESTORED}\x1b[?1049l")
    }

    /// After a change of size nothing that was drawn can be relied on.
    pub(crate) fn forget(&mut self) -> String {
        self.shown.clear();
        "\x1b[H\x1b[2J".to_owned()
    }

    pub(crate) fn draw(&mut self, lines: Vec<String>) -> String {
        let mut text = String::new();
        for row in 0..lines.len().max(self.shown.len()) {
            let (before, after) = (self.shown.get(row), lines.get(row));
            if before != after {
                let line = after.map_or("", String::as_str);
                let _ = write!(text, "\x1b[{};1H{line}\x1b[K", row + 1);
            }
        }
        self.shown = lines;
        if text.is_empty() { text } else { format!("{BEGIN}{text}{END}") }
    }
}

/// A few lines at the end of what a terminal shows; the cursor rests below them.
#[derive(Debug, Default)]
pub(crate) struct Block {
    shown: Vec<String>,
    width: usize,
}

impl Block {
    pub(crate) fn draw(&mut self, lines: Vec<String>, width: usize) -> String {
        let is_resized = self.width != width && !self.shown.is_empty();
        if lines == self.shown && !is_resized {
            return String::new();
        }
        let mut text = format!("{BEGIN}{STILL}");
        let up = self.rows(width);
        if up > 0 {
            let _ = write!(text, "\x1b[{up}A\r");
        }
        if is_resized {
            text.push_str("\x1b[J");
            self.shown.clear();
        }
        for (row, line) in lines.iter().enumerate() {
            if self.shown.get(row) != Some(line) {
                text.extend([line, "\x1b[K"]);
            }
            text.push_str("\r\n");
        }
        if lines.len() < self.shown.len() {
            text.push_str("\x1b[J");
        }
        text.extend([RESTORED, END]);
        (self.shown, self.width) = (lines, width);
        text
    }

    /// Terminals fold lines that have become too long for them.
    fn rows(&self, width: usize) -> usize {
        if self.width == width || width == 0 {
            return self.shown.len();
        }
        self.shown.iter().map(|line| columns_of(line).min(self.width).div_ceil(width).max(1)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn plain(text: &str) -> String {
        let text = text.replace(BEGIN, "").replace(END, "").replace(STILL, "");
        text.replace(RESTORED, "").replace('\x1b', "^")
    }

    #[test]
    fn only_lines_that_differ_are_drawn() {
        let mut page = FullScreen::default();
        assert_eq!(plain(&page.draw(lines("a b c"))), "^[1;1Ha^[K^[2;1Hb^[K^[3;1Hc^[K");
        assert_eq!(plain(&page.draw(lines("a x c"))), "^[2;1Hx^[K");
        assert_eq!(page.draw(lines("a x c")), "", "nothing changed, nothing is written");
        assert_eq!(plain(&page.draw(lines("a"))), "^[2;1H^[K^[3;1H^[K");
        assert_eq!(plain(&page.forget()), "^[H^[2J");
        assert_eq!(plain(&page.draw(lines("a"))), "^[1;1Ha^[K");
    }

    #[test]
    fn a_block_grows_and_shrinks_in_place() {
        let mut block = Block::default();
        assert_eq!(plain(&block.draw(lines("a b"), 80)), "a^[K\r\nb^[K\r\n");
        assert_eq!(block.draw(lines("a b"), 80), "");
        assert_eq!(plain(&block.draw(lines("a c d"), 80)), "^[2A\r\r\nc^[K\r\nd^[K\r\n");
        assert_eq!(plain(&block.draw(lines("a"), 80)), "^[3A\r\r\n^[J");
    }

    #[test]
    fn a_narrower_terminal_has_folded_what_was_drawn() {
        let mut block = Block::default();
        block.draw(lines("aaaaaaaaaa b"), 80);
        assert_eq!(
            plain(&block.draw(lines("aaaaaaaaaa b"), 4)),
            "^[4A\r^[Jaaaaaaaaaa^[K\r\nb^[K\r\n"
        );
    }
}
