//! The screen: what the cell is, where one is in it, the list or text itself, and what can be pressed.

use plimsoll_model::Timestamp;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, Widget};

use super::bar::LoadLines;
use super::cells::{Drawing, columns};
use super::list::{Entry, List, Seen, TABS};
use super::state::{Page, TopState, View};
use crate::commands::get::full;
use crate::output::count;
use crate::replica_line::{plain, silence};
use crate::table::broken;

/// On a screen with fewer rows the list has all of them.
const ROOM_FOR_NEWS: u16 = 20;

/// How many moves and events are told below the nodes.
const MOVES_SHOWN: usize = 3;
const EVENTS_SHOWN: usize = 5;

const HELP: &str = "\
  1 … 5, Tab     nodes, services, replicas, moves, audit
  ↑ ↓ j k        choose; PgUp, PgDn, g and G go further
  Enter →        open what is chosen: a node's replicas, a replica, an event
  Esc ←          back; clears a filter first
  /              filter by what a row says; Enter keeps it, Esc clears it
  s  r           sort by the next column; the other way round
  e              explain a node or a replica: why it is where it is
  l              follow the logs of a replica or a service
  q  Ctrl-C      quit

  █ load  ┃ load line: a node that stays above it is relieved
          ┊ destination cap: no move takes a node above it
  45→62%  what moves under way will make of it";

const KEYS: &str = "? help  / filter  s sort  Enter open  e explain  l logs  q quit";

impl TopState {
    /// Draws all of it. What has become too far down or is gone is put right here, where the size of the screen is known.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, now: Timestamp) {
        let area = frame.area();
        let troubles = self.troubles();
        let heights = [
            Constraint::Length(1),
            Constraint::Length(u16::try_from(troubles.len()).unwrap_or(1)),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ];
        let [title, trouble, tabs, body, footer] = Layout::vertical(heights).areas(area);
        let buffer = frame.buffer_mut();
        self.title().render(title, buffer);
        let red = Style::new().fg(Color::Red);
        Paragraph::new(troubles.join("\n")).style(red).render(trouble, buffer);
        self.tabs().render(tabs, buffer);
        let lines = self.seen.pressure.as_ref().map(LoadLines::of);
        let drawing = Drawing { now, lines, width: area.width.into() };
        if matches!(self.page().view, View::List(_)) {
            self.draw_list(drawing, body, buffer);
        } else {
            self.draw_text(now, body, buffer);
        }
        self.footer().render(footer, buffer);
        if self.has_help {
            help(area, buffer);
        }
        if !self.has_colour {
            for cell in &mut buffer.content {
                (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
            }
        }
    }

    /// `cell demo: ash leads (term 4), 3 nodes, 12 of 12 replicas running, 1 move`
    fn title(&self) -> Line<'static> {
        let Seen { status, .. } = &self.seen;
        let cell = &status.cell;
        let leads = match &cell.leader {
            Some(leader) => format!("{leader} leads (term {})", cell.term),
            None => "no node leads".to_owned(),
        };
        let (running, wanted) = self
            .seen
            .services()
            .fold((0, 0), |(running, wanted), (_, it)| (running + it.running, wanted + it.wanted));
        let nodes = count(status.nodes.len(), "node");
        let moves = count(self.seen.moves().count(), "move");
        let rest = format!(": {leads}, {nodes}, {running} of {wanted} replicas running, {moves}");
        Line::from_iter([Span::from("cell "), Span::from(cell.name.clone()).bold(), rest.into()])
    }

    /// What should not be overlooked on any page.
    fn troubles(&self) -> Vec<String> {
        let status = &self.seen.status;
        let mut lines = Vec::new();
        if let Some(problem) = &status.cell.trouble {
            lines.push(format!("{}: {}", problem.code, plain(&problem.message)));
        }
        let down: Vec<&str> = status
            .nodes
            .iter()
            .filter(|node| node.status == "down")
            .map(|node| node.name.as_str())
            .collect();
        if !down.is_empty() {
            lines.push(format!("no heartbeat from {}", down.join(", ")));
        }
        let mut silent = status.nodes.iter().filter_map(|it| Some((&it.name, silence(it)?)));
        lines.extend(silent.next().map(|(node, why)| format!("{node}: {why}")));
        lines
    }

    fn tabs(&self) -> Line<'static> {
        let mut line = Line::default();
        let first = self.pages().first().map(|page| &page.view);
        for (at, (name, list)) in TABS.iter().enumerate() {
            let is_open = first == Some(&View::List(list.clone()));
            let style = if is_open { Style::new().reversed() } else { Style::new().dim() };
            line.push_span(Span::styled(format!(" {} {name} ", at + 1), style));
            line.push_span(" ");
        }
        for page in self.pages().iter().skip(1) {
            line.push_span(format!("› {} ", where_is(page)));
        }
        line
    }

    fn footer(&self) -> Line<'static> {
        if let Some(why) = &self.lost {
            return Line::styled(format!("{why}; retrying"), Style::new().fg(Color::Red).bold());
        }
        let page = self.page();
        if self.is_typing {
            return Line::from(format!("/{}▏  Enter keeps the filter, Esc clears it", page.filter));
        }
        if let Some(remark) = self.remark {
            return Line::styled(remark, Style::new().fg(Color::Yellow));
        }
        let mut text = String::new();
        if let View::List(list) = &page.view {
            let turned = if page.is_reversed { ", reversed" } else { "" };
            text = format!("by {}{turned}  ", page.order(list).word());
            if !page.filter.is_empty() {
                text = format!("/{}  {text}", page.filter);
            }
        }
        Line::styled(text + KEYS, Style::new().dim())
    }

    fn draw_list(&mut self, drawing: Drawing, area: Rect, buffer: &mut Buffer) {
        let View::List(list) = self.page().view.clone() else { return };
        let has_news = list == List::Nodes && area.height >= ROOM_FOR_NEWS;
        let news = if has_news { self.news(drawing) } else { Vec::new() };
        let head = self.head(&list, drawing);
        let length = |lines: &[Line<'_>]| u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let heights = [
            Constraint::Length(length(&head)),
            Constraint::Fill(1),
            Constraint::Length(length(&news)),
        ];
        let [above, middle, below] = Layout::vertical(heights).areas(area);
        Paragraph::new(head).render(above, buffer);
        Paragraph::new(news).render(below, buffer);
        // One row is of the names of the columns.
        let room = usize::from(middle.height.saturating_sub(1));
        let rows = self.rows();
        let total = rows.len();
        let chosen = self.chosen(&rows);
        let offset = chosen.map_or(0, |at| window(self.page().offset, at, room, total));
        let shown = rows.iter().enumerate().skip(offset).take(room);
        let shown = shown.map(|(at, entry)| {
            let row = Row::new(drawing.cells(entry));
            if Some(at) == chosen { row.style(Style::new().reversed()) } else { row }
        });
        let names = columns(&list).iter().map(|(name, _)| *name);
        let header = Row::new(names).style(Style::new().add_modifier(Modifier::DIM));
        let widths = columns(&list).iter().map(|(_, width)| *width);
        Widget::render(Table::new(shown, widths).header(header), middle, buffer);
        if total == 0 {
            let nothing = Rect { y: middle.y.saturating_add(1), height: 1, ..middle };
            let text = if self.page().filter.is_empty() { "none" } else { "nothing like that" };
            if middle.height > 1 {
                Paragraph::new(text).dim().render(nothing, buffer);
            }
        }
        let id = chosen.map(|at| rows[at].id());
        let page = self.page_mut();
        (page.offset, page.chosen) = (offset, id);
        self.room = room;
    }

    /// What the rows are of, where they are of one thing.
    fn head(&self, list: &List, drawing: Drawing) -> Vec<Line<'static>> {
        match list {
            List::OnNode(name) => {
                let node = self.seen.status.nodes.iter().find(|node| node.name == *name);
                let gone = || vec![Line::from(format!("there is no node {name} any more"))];
                node.map_or_else(gone, |node| drawing.of_node(node, self.seen.levels(name)))
            }
            List::OfService(name) => {
                let gone = || vec![Line::from(format!("there is no service {name} any more"))];
                let service = self.seen.service(name);
                service.map_or_else(gone, |(it, service)| {
                    Drawing::of_service(&Entry::Service(it, service))
                })
            }
            List::Nodes | List::Services | List::Replicas | List::Moves | List::Audit => Vec::new(),
        }
    }

    /// Below the nodes: what moves, and what happened last.
    fn news(&self, drawing: Drawing) -> Vec<Line<'static>> {
        let heading = |text: &'static str| Line::styled(text, Style::new().bold());
        let mut lines = vec![Line::default(), heading("Moves")];
        let moves: Vec<Entry<'_>> =
            self.seen.moves().map(|(it, from, to)| Entry::Move(it, from, to)).collect();
        for entry in moves.iter().take(MOVES_SHOWN) {
            let Entry::Move(replica, from, to) = entry else { continue };
            let cause = replica.cause.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
            let line = format!("  {} {} → {}{cause}: {}", replica.id, from.node, to.node, to.state);
            lines.push(line.into());
        }
        match moves.len() {
            0 => lines.push(Line::from("  none").dim()),
            more if more > MOVES_SHOWN => {
                lines.push(Line::from(format!("  and {} more", more - MOVES_SHOWN)).dim());
            }
            _ => {}
        }
        lines.push(heading("Audit"));
        for event in self.seen.audit.iter().rev().take(EVENTS_SHOWN) {
            let cells = drawing.cells(&Entry::Event(event));
            let [time, kind, _, text] = cells.as_slice() else { continue };
            lines.push(format!("  {time} {kind}: {text}").into());
        }
        lines
    }

    fn draw_text(&mut self, now: Timestamp, area: Rect, buffer: &mut Buffer) {
        let (width, height) = (usize::from(area.width).max(1), usize::from(area.height));
        let text = self.text(now);
        let lines: Vec<String> = text.iter().flat_map(|line| wrapped(line, width)).collect();
        let last = lines.len().saturating_sub(height);
        let page = self.page_mut();
        page.offset = if page.is_at_end { last } else { page.offset.min(last) };
        page.is_at_end |= page.offset == last && last > 0;
        let shown = lines.into_iter().skip(page.offset).take(height).map(Line::from);
        Paragraph::new(shown.collect::<Vec<_>>()).render(area, buffer);
        self.room = height;
    }

    /// What a page that is no list says.
    fn text(&self, now: Timestamp) -> Vec<String> {
        let lines = |text: String| {
            let text = anstream::adapter::strip_str(&text).to_string();
            text.lines().map(str::to_owned).collect()
        };
        match &self.page().view {
            View::List(_) => Vec::new(),
            View::Replica(id) => match self.seen.replica(id) {
                Some((deployment, service, replica)) => {
                    lines(full::text(deployment, service, replica, now))
                }
                None => vec![format!("there is no replica {id} any more")],
            },
            View::Event(seq) => match self.seen.audit.iter().find(|event| event.seq == *seq) {
                Some(event) => vec![
                    format!("{} {}", event.at, event.what),
                    format!("by {} ({})", plain(&event.by), event.writer),
                    String::new(),
                    plain(&event.text),
                ],
                None => vec!["the event is no longer among the latest".to_owned()],
            },
            View::Answer { question, lines, is_whole } => {
                let mut text: Vec<String> = lines.iter().cloned().collect();
                match (question.is_log(), is_whole) {
                    (false, false) if text.is_empty() => text.push("asking …".to_owned()),
                    (true, false) if text.is_empty() => text.push("no lines yet".to_owned()),
                    (true, true) => text.push("— the log has ended —".to_owned()),
                    _ => {}
                }
                text
            }
        }
    }
}

fn where_is(page: &Page) -> String {
    match &page.view {
        View::List(List::OnNode(name) | List::OfService(name)) | View::Replica(name) => {
            name.clone()
        }
        View::List(_) => String::new(),
        View::Event(seq) => format!("event {seq}"),
        View::Answer { question, .. } => question.title(),
    }
}

/// The first row to show: as before, moved no further than it takes to show the chosen one.
fn window(before: usize, chosen: usize, room: usize, total: usize) -> usize {
    let first = before.min(total.saturating_sub(room));
    let least = (chosen + 1).saturating_sub(room);
    first.clamp(least.min(chosen), chosen)
}

/// A line as it fits, its indent kept.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    broken(line, width)
}

fn help(area: Rect, buffer: &mut Buffer) {
    let lines = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX);
    let widest = HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(area.width);
    let height = lines.saturating_add(2).min(area.height);
    let within = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(within, buffer);
    let block = Block::bordered().title(" Help: any key closes it ");
    Paragraph::new(HELP).block(block).render(within, buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves_no_further_than_it_must() {
        for (case, before, chosen, room, total, first) in [
            ("all fit", 0, 2, 10, 3, 0),
            ("the chosen one is in sight", 3, 5, 5, 20, 3),
            ("it is below", 0, 7, 5, 20, 3),
            ("it is above", 8, 2, 5, 20, 2),
            ("the list has become shorter", 15, 4, 5, 6, 1),
            ("no room at all", 0, 3, 0, 5, 3),
        ] {
            assert_eq!(window(before, chosen, room, total), first, "{case}");
        }
    }
}
