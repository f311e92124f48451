//! Aligned columns without borders: two blanks between them, numbers to the right, nothing after the last word.

use owo_colors::OwoColorize;

/// A last column narrower than this would be a column of single words; it goes below its row instead.
const LEAST_LAST: usize = 24;

/// How far the last column stands in when it goes below.
const BELOW: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells; every row has as many as there are columns.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Align>,
    least: Vec<usize>,
    header: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// With a header; a name that begins with `>` is of a column of numbers.
    pub(crate) fn new<const N: usize>(names: [&str; N]) -> Self {
        let align = |name: &&str| if name.starts_with('>') { Align::Right } else { Align::Left };
        let header = names.iter().map(|name| name.trim_start_matches('>').to_owned()).collect();
        let columns = names.iter().map(align).collect();
        Self { columns, least: vec![0; N], header: Some(header), rows: Vec::new(), indent: 0 }
    }

    /// Without a header, below a sentence that says what the lines are.
    pub(crate) fn list(columns: usize) -> Self {
        let (columns, least) = (vec![Align::Left; columns], vec![0; columns]);
        Self { columns, least, header: None, rows: Vec::new(), indent: 2 }
    }

    /// A column that stays this wide though its cells change, so that a page that is drawn again keeps still.
    pub(crate) fn least(mut self, column: usize, width: usize) -> Self {
        self.least[column] = width;
        self
    }

    /// Leaves a column out.
    pub(crate) fn without(mut self, name: &str) -> Self {
        let header = self.header.iter().flatten();
        let Some(at) = header.into_iter().position(|known| known == name) else { return self };
        for row in self.header.iter_mut().chain(&mut self.rows) {
            row.remove(at);
        }
        self.columns.remove(at);
        self.least.remove(at);
        self
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells.into());
    }

    /// A row of nothing, between groups.
    pub(crate) fn blank(&mut self) {
        self.rows.push(vec![String::new(); self.columns.len()]);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn render(&self) -> String {
        self.within(None)
    }

    /// With the last column broken between words, so that no line is longer than this where that can be helped.
    pub(crate) fn within(&self, width: Option<usize>) -> String {
        let all = || self.header.iter().chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| all().map(|row| columns_of(&row[at])).max().unwrap_or(0).max(self.least[at]))
            .collect();
        let last = widths.len().saturating_sub(1);
        let before = self.indent + widths[..last].iter().map(|width| width + 2).sum::<usize>();
        let mut text = String::new();
        if let Some(header) = &self.header {
            text.push_str(&self.line(header, &widths).dimmed().to_string());
            text.push('\n');
        }
        for row in &self.rows {
            let room = width.map_or(usize::MAX, |width| width.saturating_sub(before));
            if columns_of(&row[last]) <= room {
                text.extend([&self.line(row, &widths), "\n"]);
                continue;
            }
            let is_below = room < LEAST_LAST;
            let (inset, room) = if is_below {
                (self.indent + BELOW, width.unwrap_or(usize::MAX).saturating_sub(BELOW))
            } else {
                (before, room)
            };
            let mut pieces = broken(&row[last], room.max(1)).into_iter();
            let mut first = row.clone();
            first[last] = if is_below { String::new() } else { pieces.next().unwrap_or_default() };
            text.extend([&self.line(&first, &widths), "\n"]);
            for piece in pieces {
                text.extend([&" ".repeat(inset), piece.as_str(), "\n"]);
            }
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = " ".repeat(self.indent);
        for (at, cell) in cells.iter().enumerate() {
            let blanks = " ".repeat(widths[at].saturating_sub(columns_of(cell)));
            let between = if at > 0 { "  " } else { "" };
            match self.columns[at] {
                Align::Left => line.extend([between, cell, &blanks]),
                Align::Right => line.extend([between, &blanks, cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// All we print stands one column wide, so characters count, not bytes, and those that only colour do not.
pub(crate) fn columns_of(cell: &str) -> usize {
    if cell.contains('\x1b') {
        anstream::adapter::strip_str(cell).map(|piece| piece.chars().count()).sum()
    } else {
        cell.chars().count()
    }
}

/// Broken between words; a word that is too long by itself is cut.
pub(crate) fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("there is always a line");
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        while used + word.len() > width {
            let rest = word.split_off(width - used);
            lines.last_mut().expect("there is always a line").extend(word);
            lines.push(String::new());
            (word, used) = (rest, 0);
        }
        used += word.len();
        lines.last_mut().expect("there is always a line").extend(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn page(width: Option<usize>) -> String {
        let mut table = Table::new(["NAME", ">COUNT", "DETAIL"]);
        table.row(["web".green().to_string(), "3".into(), "as it was asked for".into()]);
        table.row(["cache".into(), "12".into(), "one word after another, far too many".into()]);
        anstream::adapter::strip_str(&table.within(width)).to_string()
    }

    #[test]
    fn colour_takes_no_room() {
        expect![[r"
            NAME   COUNT  DETAIL
            web        3  as it was asked for
            cache     12  one word after another, far too many
        "]]
        .assert_eq(&page(None));
    }

    #[test]
    fn the_last_column_is_broken_between_words() {
        expect![[r"
            NAME   COUNT  DETAIL
            web        3  as it was asked for
            cache     12  one word after another,
                          far too many
        "]]
        .assert_eq(&page(Some(38)));
    }

    #[test]
    fn on_a_narrow_terminal_it_goes_below() {
        expect![[r"
            NAME   COUNT  DETAIL
            web        3
                  as it was asked
                  for
            cache     12
                  one word after
                  another, far too
                  many
        "]]
        .assert_eq(&page(Some(22)));
    }

    #[test]
    fn a_word_too_long_for_any_line_is_cut() {
        assert_eq!(broken("ab abcdefgh c", 3), ["ab", "abc", "def", "gh", "c"]);
    }
}
