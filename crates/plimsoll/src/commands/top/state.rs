//! What `plimsoll top` shows, given what was seen of the cell and the keys that were pressed. It asks nobody: what a page needs
//! besides, logs or an explanation, it names as a [`Question`], and the answer is given to it.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::list::{Entry, List, Seen, Sort, TABS, entries};

/// How many lines of a text are kept: of a log that is followed, the last.
pub(super) const MAX_LINES: usize = 2_000;

/// How far one can drill down before the way back begins to be forgotten.
const MAX_DEPTH: usize = 32;

/// The most that is typed for a filter.
const MAX_FILTER: usize = 100;

/// What a page asks the daemon besides what is always seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    ExplainNode(String),
    ExplainReplica(String),
    /// Followed for as long as the page is open.
    LogsOfReplica(String),
    LogsOfService(String),
}

impl Question {
    pub(super) fn title(&self) -> String {
        match self {
            Self::ExplainNode(name) | Self::ExplainReplica(name) => format!("{name} › explain"),
            Self::LogsOfReplica(name) | Self::LogsOfService(name) => format!("{name} › logs"),
        }
    }

    pub(super) fn is_log(&self) -> bool {
        matches!(self, Self::LogsOfReplica(_) | Self::LogsOfService(_))
    }
}

/// What is on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum View {
    List(List),
    Replica(String),
    Event(u64),
    Answer { question: Question, lines: VecDeque<String>, is_whole: bool },
}

#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) view: View,
    /// The row that is chosen, by what it is: it stays chosen wherever it moves.
    pub(super) chosen: Option<String>,
    /// Of a list, the first row shown; of a text, how many lines are above the screen.
    pub(super) offset: usize,
    /// A text that grows is shown to its end, until somebody scrolls up.
    pub(super) is_at_end: bool,
    pub(super) filter: String,
    pub(super) sort: usize,
    pub(super) is_reversed: bool,
}

impl Page {
    fn of(view: View) -> Self {
        let is_at_end = matches!(&view, View::Answer { question, .. } if question.is_log());
        let (chosen, filter) = (None, String::new());
        Self { view, chosen, offset: 0, is_at_end, filter, sort: 0, is_reversed: false }
    }

    pub(super) fn order(&self, list: &List) -> Sort {
        let sorts = list.sorts();
        sorts[self.sort % sorts.len()]
    }
}

/// Whether it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Quit,
}

#[derive(Debug)]
pub(crate) struct TopState {
    pub(super) seen: Seen,
    /// What is wrong with the connection; what is shown is from before.
    pub(super) lost: Option<String>,
    /// The last is on the screen; there is always one.
    pages: Vec<Page>,
    pub(super) is_typing: bool,
    pub(super) has_help: bool,
    pub(super) has_colour: bool,
    /// How many rows the last drawn list or text had room for: how far a page key goes.
    pub(super) room: usize,
    /// Said once, until the next key.
    pub(super) remark: Option<&'static str>,
}

impl TopState {
    pub(crate) fn new(seen: Seen, has_colour: bool) -> Self {
        Self {
            seen,
            lost: None,
            pages: vec![Page::of(View::List(List::Nodes))],
            is_typing: false,
            has_help: false,
            has_colour,
            room: 1,
            remark: None,
        }
    }

    /// The cell, seen again.
    pub(crate) fn see(&mut self, seen: Seen) {
        (self.seen, self.lost) = (seen, None);
    }

    /// The daemon does not answer; what was seen last stays on the screen.
    pub(crate) fn lose(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// What the page on the screen wants to know.
    pub(crate) fn question(&self) -> Option<&Question> {
        match &self.page().view {
            View::Answer { question, .. } => Some(question),
            View::List(_) | View::Replica(_) | View::Event(_) => None,
        }
    }

    /// More of the answer. One to a question that nobody asks any more is dropped.
    pub(crate) fn answer(&mut self, to: &Question, more: impl IntoIterator<Item = String>) {
        if let View::Answer { question, lines, .. } = &mut self.page_mut().view
            && question == to
        {
            lines.extend(more);
            let surplus = lines.len().saturating_sub(MAX_LINES);
            lines.drain(..surplus);
        }
    }

    /// Nothing more will come.
    pub(crate) fn answered(&mut self, to: &Question) {
        if let View::Answer { question, is_whole, .. } = &mut self.page_mut().view
            && question == to
        {
            *is_whole = true;
        }
    }

    pub(super) fn page(&self) -> &Page {
        self.pages.last().expect("there is always a page")
    }

    pub(super) fn page_mut(&mut self) -> &mut Page {
        self.pages.last_mut().expect("there is always a page")
    }

    pub(super) fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// The rows of the list on the screen; none where it is a text.
    pub(super) fn rows(&self) -> Vec<Entry<'_>> {
        let page = self.page();
        match &page.view {
            View::List(list) => {
                let sort = page.order(list);
                entries(&self.seen, list, &page.filter, sort, page.is_reversed)
            }
            View::Replica(_) | View::Event(_) | View::Answer { .. } => Vec::new(),
        }
    }

    /// Which of the rows is chosen: the first where none was, or where it has gone.
    pub(super) fn chosen(&self, rows: &[Entry<'_>]) -> Option<usize> {
        let is_chosen = |entry: &Entry<'_>| Some(entry.id()) == self.page().chosen;
        rows.iter().position(is_chosen).or((!rows.is_empty()).then_some(0))
    }

    pub(crate) fn press(&mut self, key: KeyEvent) -> Next {
        self.remark = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c' | 'd') => return Next::Quit,
                KeyCode::Char('u') if self.is_typing => self.page_mut().filter.clear(),
                _ => {}
            }
            return Next::Stay;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Next::Stay;
        }
        if self.has_help {
            self.has_help = false;
            return if key.code == KeyCode::Char('q') { Next::Quit } else { Next::Stay };
        }
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.has_help = true,
            KeyCode::Char(digit @ '1'..='5') => self.open_tab(digit as usize - '1' as usize),
            KeyCode::Tab => self.step_tab(1),
            KeyCode::BackTab => self.step_tab(TABS.len() - 1),
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-self.stride()),
            KeyCode::PageDown | KeyCode::Char(' ') => self.go(self.stride()),
            KeyCode::Home | KeyCode::Char('g') => self.go(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.go(isize::MAX),
            KeyCode::Enter | KeyCode::Right => self.enter(),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.back(),
            KeyCode::Char('/') => self.begin_filter(),
            KeyCode::Char('s') => self.sort_next(),
            KeyCode::Char('r') => self.page_mut().is_reversed ^= true,
            KeyCode::Char('e') => self.explain(),
            KeyCode::Char('l') => self.logs(),
            _ => {}
        }
        Next::Stay
    }

    fn stride(&self) -> isize {
        isize::try_from(self.room.max(1)).unwrap_or(isize::MAX)
    }

    fn type_filter(&mut self, code: KeyCode) {
        let filter = &mut self.page_mut().filter;
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                filter.clear();
                self.is_typing = false;
            }
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(letter) if filter.len() < MAX_FILTER => filter.push(letter),
            _ => {}
        }
    }

    fn begin_filter(&mut self) {
        if matches!(self.page().view, View::List(_)) {
            self.is_typing = true;
        } else {
            self.remark = Some("only lists have a filter");
        }
    }

    fn sort_next(&mut self) {
        if let View::List(list) = &self.page().view {
            let next = (self.page().sort + 1) % list.sorts().len();
            self.page_mut().sort = next;
        }
    }

    fn open_tab(&mut self, at: usize) {
        if let Some((_, list)) = TABS.get(at) {
            self.pages = vec![Page::of(View::List(list.clone()))];
        }
    }

    /// The tab that many to the right of the one that the way here began at.
    fn step_tab(&mut self, by: usize) {
        let first = self.pages.first().map(|page| &page.view);
        let is_first = |(_, list): &(&str, List)| first == Some(&View::List(list.clone()));
        let at = TABS.iter().position(is_first).unwrap_or(0);
        self.open_tab((at + by) % TABS.len());
    }

    /// Down that many rows of a list, or lines of a text; what is drawn bounds it.
    fn go(&mut self, by: isize) {
        if matches!(self.page().view, View::List(_)) {
            let rows = self.rows();
            let Some(at) = self.chosen(&rows) else { return };
            let to = at.saturating_add_signed(by).min(rows.len() - 1);
            let chosen = rows[to].id();
            self.page_mut().chosen = Some(chosen);
        } else {
            let page = self.page_mut();
            page.is_at_end = by == isize::MAX;
            page.offset = page.offset.saturating_add_signed(by);
        }
    }

    fn open(&mut self, view: View) {
        if self.pages.len() >= MAX_DEPTH {
            // The first is the tab that the way began at.
            self.pages.remove(1);
        }
        self.pages.push(Page::of(view));
    }

    fn enter(&mut self) {
        let rows = self.rows();
        let Some(entry) = self.chosen(&rows).map(|at| rows[at]) else { return };
        let view = match entry {
            Entry::Node(node, _) => View::List(List::OnNode(node.name.clone())),
            Entry::Service(..) => View::List(List::OfService(entry.id())),
            Entry::Replica(..) | Entry::Move(..) => View::Replica(entry.id()),
            Entry::Event(event) => View::Event(event.seq),
        };
        let id = entry.id();
        self.page_mut().chosen = Some(id);
        self.open(view);
    }

    fn back(&mut self) {
        if !self.page().filter.is_empty() {
            self.page_mut().filter.clear();
        } else if self.pages.len() > 1 {
            self.pages.pop();
        } else {
            self.remark = Some("q quits");
        }
    }

    fn explain(&mut self) {
        let question = match self.subject() {
            Some(Subject::Node(name)) => Question::ExplainNode(name),
            Some(Subject::Replica(id)) => Question::ExplainReplica(id),
            Some(Subject::Service(_)) | None => {
                self.remark = Some("a node or a replica can be explained; choose one");
                return;
            }
        };
        self.ask(question);
    }

    fn logs(&mut self) {
        let question = match self.subject() {
            Some(Subject::Replica(id)) => Question::LogsOfReplica(id),
            Some(Subject::Service(name)) => Question::LogsOfService(name),
            Some(Subject::Node(_)) | None => {
                self.remark = Some("a replica or a service has logs; choose one");
                return;
            }
        };
        self.ask(question);
    }

    /// At most one page asks: what is open does not ask again, and another takes its place.
    fn ask(&mut self, question: Question) {
        if self.question() == Some(&question) {
            return;
        }
        if self.question().is_some() {
            self.pages.pop();
        }
        let lines = VecDeque::new();
        self.open(View::Answer { question, lines, is_whole: false });
    }

    /// What a key that asks is about: the chosen row, or what the page shows. Of a node without replicas, the node.
    fn subject(&self) -> Option<Subject> {
        match &self.page().view {
            View::Replica(id) => return Some(Subject::Replica(id.clone())),
            View::Event(_) => return None,
            View::Answer { question, .. } => {
                return Some(match question.clone() {
                    Question::ExplainNode(name) => Subject::Node(name),
                    Question::ExplainReplica(id) | Question::LogsOfReplica(id) => {
                        Subject::Replica(id)
                    }
                    Question::LogsOfService(name) => Subject::Service(name),
                });
            }
            View::List(_) => {}
        }
        let rows = self.rows();
        match (self.chosen(&rows).map(|at| rows[at]), &self.page().view) {
            (Some(entry @ Entry::Service(..)), _) => Some(Subject::Service(entry.id())),
            (Some(entry @ (Entry::Replica(..) | Entry::Move(..))), _) => {
                Some(Subject::Replica(entry.id()))
            }
            (Some(entry @ Entry::Node(..)), _) => Some(Subject::Node(entry.id())),
            (None, View::List(List::OnNode(node))) => Some(Subject::Node(node.clone())),
            (None, View::List(List::OfService(name))) => Some(Subject::Service(name.clone())),
            (Some(Entry::Event(_)) | None, _) => None,
        }
    }
}

enum Subject {
    Node(String),
    Service(String),
    Replica(String),
}
