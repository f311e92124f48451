//! Aligned columns without borders: two blanks between them, numbers to the right, nothing after the last word.

use owo_colors::OwoColorize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells; every row has as many as there are columns.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Align>,
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
        Self { columns, header: Some(header), rows: Vec::new(), indent: 0 }
    }

    /// Without a header, below a sentence that says what the lines are.
    pub(crate) fn list(columns: usize) -> Self {
        Self { columns: vec![Align::Left; columns], header: None, rows: Vec::new(), indent: 2 }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn render(&self) -> String {
        let all = || self.header.iter().chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| all().map(|row| width(&row[at])).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        if let Some(header) = &self.header {
            text.push_str(&self.line(header, &widths).dimmed().to_string());
            text.push('\n');
        }
        for row in &self.rows {
            text.push_str(&self.line(row, &widths));
            text.push('\n');
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = " ".repeat(self.indent);
        for (at, cell) in cells.iter().enumerate() {
            let blanks = " ".repeat(widths[at].saturating_sub(width(cell)));
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

/// All we print stands one column wide, so characters count, not bytes.
fn width(cell: &str) -> usize {
    cell.chars().count()
}
