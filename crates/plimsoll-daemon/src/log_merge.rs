//! What containers print, as lines: those of one runtime, those of several places by the time they were printed, and
//! those that come as they are printed put in order as far as a moment's wait can.
//!
//! Whose lines are asked for, and where they are, is settled in [`api`](crate::api).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, select_all, unfold};
use plimsoll_model::Timestamp;
use plimsoll_runtime::{LogQuery, Logs, Output, Runtime, Tag};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::operations::Error;
use plimsoll_api::view::{self, Problem, Time};

/// How long a line that has come waits for older ones that are still on their way from elsewhere.
const WINDOW: Duration = Duration::from_millis(100);

/// How many lines may wait at once; beyond it the oldest goes at once.
const MAX_WAITING: usize = 1_024;

/// One line of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedLine {
    /// Which of the containers that were asked for.
    pub of: usize,
    /// By the clock of the node it was printed on.
    pub at: Timestamp,
    pub from: Output,
    pub text: String,
}

/// Lines, and what ended them if it was not their end. After a problem nothing comes.
pub type Lines = BoxStream<'static, Result<MergedLine, Problem>>;

impl MergedLine {
    pub fn view(self, tag: &Tag) -> view::LogLine {
        let from = match self.from {
            Output::Stdout => "stdout",
            Output::Stderr => "stderr",
        };
        let replica = tag.replica.to_string();
        view::LogLine { replica, at: Time(self.at), from: from.to_owned(), text: self.text }
    }
}

/// The lines of these containers of this node: by time, or as they come where they are followed. A container that is
/// not here has printed nothing, unless none of them is.
pub async fn here(
    runtime: &Arc<dyn Runtime>,
    tags: &[Tag],
    query: LogQuery,
) -> Result<Lines, Error> {
    let mut opened = Vec::with_capacity(tags.len());
    let mut absent = None;
    for (of, tag) in tags.iter().enumerate() {
        match runtime.logs(tag, query).await {
            Ok(logs) => opened.push(read(of, logs)),
            Err(error @ plimsoll_runtime::Error::Absent { .. }) => absent = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    match absent {
        Some(error) if opened.is_empty() => Err(error.into()),
        _ if query.follow => Ok(select_all(opened).boxed()),
        _ => Ok(merge(opened).map(|(_, line)| line).boxed()),
    }
}

fn read(of: usize, logs: Logs) -> Lines {
    let lines = unfold(logs, move |mut logs| async move {
        let line = logs.next().await?.map(|line| {
            let text = String::from_utf8_lossy(&line.text).into_owned();
            MergedLine { of, at: line.at, from: line.from, text }
        });
        Some((line.map_err(|error| Problem::from(&Error::Runtime(error))), logs))
    });
    lines.boxed()
}

/// All of them by the time they were printed, each with the place it came from. A place that fails ends there, and the
/// others go on.
pub fn merge(places: Vec<Lines>) -> BoxStream<'static, (usize, Result<MergedLine, Problem>)> {
    let due = (0..places.len()).collect();
    let lines = vec![None; places.len()];
    let merge = Merge { places, heads: BinaryHeap::new(), lines, due };
    unfold(merge, |mut merge| async move { Some((merge.next().await?, merge)) }).boxed()
}

/// The first line of each place, and which of them is first.
struct Merge {
    places: Vec<Lines>,
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    lines: Vec<Option<MergedLine>>,
    /// Places whose next line is not known.
    due: Vec<usize>,
}

impl Merge {
    async fn next(&mut self) -> Option<(usize, Result<MergedLine, Problem>)> {
        while let Some(&place) = self.due.last() {
            let line = self.places[place].next().await;
            self.due.pop();
            match line {
                None => {}
                Some(Err(problem)) => return Some((place, Err(problem))),
                Some(Ok(line)) => {
                    self.heads.push(Reverse((line.at, place)));
                    self.lines[place] = Some(line);
                }
            }
        }
        let Reverse((_, place)) = self.heads.pop()?;
        self.due.push(place);
        Some((place, Ok(self.lines[place].take()?)))
    }
}

/// A line with whose it is.
pub type Told = (Tag, MergedLine);

/// Hands lines on in the order they were printed, as far as they come within a moment of each other. Returns once
/// nobody sends, or nobody reads.
pub async fn in_order(mut from: mpsc::Receiver<Told>, to: mpsc::Sender<Told>) {
    let mut waiting = Waiting::default();
    loop {
        let due = waiting.due();
        let next = tokio::select! {
            told = from.recv() => told,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                for told in waiting.take(Instant::now()) {
                    if to.send(told).await.is_err() {
                        return;
                    }
                }
                continue;
            }
        };
        let is_over = next.is_none();
        let ready = match next {
            Some(told) => waiting.put(told, Instant::now()),
            None => waiting.rest(),
        };
        for told in ready {
            if to.send(told).await.is_err() {
                return;
            }
        }
        if is_over {
            return;
        }
    }
}

/// Lines that wait for older ones.
#[derive(Debug, Default)]
struct Waiting {
    /// By time, then in the order they came.
    lines: BinaryHeap<Reverse<HeldLine>>,
    /// Until when each waits, in the order they came.
    until: VecDeque<(Instant, Timestamp)>,
    count: u64,
}

#[derive(Debug)]
struct HeldLine {
    key: (Timestamp, u64),
    told: Told,
}

impl PartialEq for HeldLine {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for HeldLine {}

impl PartialOrd for HeldLine {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HeldLine {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Waiting {
    fn due(&self) -> Option<Instant> {
        self.until.front().map(|(until, _)| *until)
    }

    /// Takes a line in; what there is no room for any more comes out.
    fn put(&mut self, told: Told, now: Instant) -> Vec<Told> {
        let at = told.1.at;
        self.count += 1;
        self.lines.push(Reverse(HeldLine { key: (at, self.count), told }));
        self.until.push_back((now + WINDOW, at));
        if self.lines.len() <= MAX_WAITING {
            return Vec::new();
        }
        self.lines.pop().map(|Reverse(held)| held.told).into_iter().collect()
    }

    /// The lines that have waited long enough, and all that are older than one of them.
    fn take(&mut self, now: Instant) -> Vec<Told> {
        let mut last = None;
        while let Some((_, at)) = self.until.pop_front_if(|(until, _)| *until <= now) {
            last = last.max(Some(at));
        }
        let mut ready = Vec::new();
        while let Some(Reverse(held)) = self.lines.peek()
            && Some(held.key.0) <= last
        {
            ready.extend(self.lines.pop().map(|Reverse(held)| held.told));
        }
        ready
    }

    fn rest(&mut self) -> Vec<Told> {
        std::iter::from_fn(|| self.lines.pop()).map(|Reverse(held)| held.told).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use plimsoll_model::testkit::replica_id;
    use plimsoll_model::{CellId, Generation};

    use super::*;

    fn line(at: u64, text: &str) -> MergedLine {
        MergedLine { of: 0, at: Timestamp(at), from: Output::Stdout, text: text.to_owned() }
    }

    fn told(at: u64, text: &str) -> Told {
        let cell_id = CellId::new("test").unwrap();
        let replica = replica_id("shop/web/1");
        (Tag { cell_id, replica, generation: Generation(1) }, line(at, text))
    }

    fn texts(told: Vec<Told>) -> Vec<String> {
        told.into_iter().map(|(_, line)| line.text).collect()
    }

    #[tokio::test]
    async fn lines_of_several_places_are_one_story_and_a_place_that_fails_ends_alone() {
        let place = |lines: Vec<Result<MergedLine, Problem>>| stream::iter(lines).boxed();
        let failed = Problem::new(view::ProblemCode::NodeUnreachable, "it is gone");
        let places = vec![
            place(vec![Ok(line(1, "a")), Ok(line(4, "d"))]),
            place(vec![Ok(line(2, "b")), Err(failed)]),
            place(vec![Ok(line(3, "c")), Ok(line(3, "c2"))]),
        ];
        let merged: Vec<String> = merge(places)
            .map(|(place, line)| match line {
                Ok(line) => line.text,
                Err(problem) => format!("{place}: {}", problem.code),
            })
            .collect()
            .await;
        assert_eq!(merged, ["a", "b", "1: node_unreachable", "c", "c2", "d"]);
    }

    #[test]
    fn a_line_waits_for_older_ones_but_not_for_long() {
        let (mut waiting, begun) = (Waiting::default(), Instant::now());
        let later = |ms| begun + Duration::from_millis(ms);
        waiting.put(told(20, "second"), later(0));
        waiting.put(told(10, "first"), later(50));
        waiting.put(told(30, "third"), later(60));
        assert_eq!(waiting.due(), Some(later(100)));
        assert_eq!(texts(waiting.take(later(100))), ["first", "second"], "the third may wait");
        waiting.put(told(5, "too late"), later(110));
        assert_eq!(texts(waiting.take(later(160))), ["too late", "third"]);
        assert_eq!(texts(waiting.take(later(500))), [""; 0]);
    }

    #[test]
    fn more_lines_than_may_wait_push_out_the_oldest() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        for at in 0..MAX_WAITING as u64 {
            assert!(waiting.put(told(at, "kept"), now).is_empty());
        }
        let pushed = waiting.put(told(7_000, "new"), now);
        assert_eq!(pushed[0].1.at, Timestamp(0));
        assert_eq!(texts(waiting.rest()).last().unwrap(), "new");
    }
}
