//! Histories made by hand, good ones and bad ones of every kind.

use std::time::Duration;

use super::{Anomaly, History, Log, Moment, Read, Write, WriteOutcome};

fn at(second: u64) -> Moment {
    Duration::from_secs(second)
}

/// Reads aloud: `story().write("a", 0, 1, 1)` is a write of `a` from second 0 to 1, acknowledged as revision 1.
#[derive(Default)]
struct Story {
    history: History,
    log: Log,
}

fn story(log: &[&str]) -> Story {
    let revisions = (1..).zip(log).map(|(revision, value)| (revision, (*value).to_owned()));
    let log = [("x".to_owned(), revisions.collect())].into();
    Story { history: History::default(), log }
}

impl Story {
    fn done(mut self, value: &str, invoked: u64, outcome: WriteOutcome) -> Self {
        let (register, value, invoked) = ("x".to_owned(), value.to_owned(), at(invoked));
        self.history.writes.push(Write { register, value, invoked, outcome });
        self
    }

    fn write(self, value: &str, from: u64, to: u64, revision: u64) -> Self {
        let outcome = WriteOutcome::Acknowledged { at: at(to), revision, index: 10 * revision };
        self.done(value, from, outcome)
    }

    fn unknown(self, value: &str, from: u64) -> Self {
        self.done(value, from, WriteOutcome::Unknown)
    }

    fn refused(self, value: &str, from: u64) -> Self {
        self.done(value, from, WriteOutcome::Refused)
    }

    fn read(mut self, from: u64, to: u64, seen: Option<(u64, &str)>) -> Self {
        let seen = seen.map(|(revision, value)| (revision, value.to_owned()));
        let (register, invoked, answered) = ("x".to_owned(), at(from), at(to));
        self.history.reads.push(Read { register, invoked, answered, seen });
        self
    }

    fn told(&self) -> Vec<String> {
        self.history.check(&self.log).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn is_good(&self) {
        assert_eq!(self.told(), [""; 0]);
    }

    #[track_caller]
    fn is_bad(&self, is_so: impl Fn(&Anomaly) -> bool) {
        let faults = self.history.check(&self.log);
        assert!(!faults.is_empty(), "nothing was found");
        assert!(faults.iter().all(is_so), "{:#?}", self.told());
    }
}

fn is_order(fault: &Anomaly) -> bool {
    matches!(fault, Anomaly::OutOfOrder { .. })
}

#[test]
fn nothing_happened_and_that_is_fine() {
    story(&[]).read(0, 1, None).is_good();
}

#[test]
fn writes_one_after_another_with_reads_between_are_fine() {
    let story = story(&["a", "b"]).read(0, 1, None).write("a", 2, 3, 1).read(4, 5, Some((1, "a")));
    story.write("b", 6, 7, 2).read(8, 9, Some((2, "b"))).is_good();
}

#[test]
fn writes_at_the_same_time_may_come_in_either_order() {
    story(&["a", "b"]).write("b", 0, 5, 2).write("a", 1, 4, 1).is_good();
    story(&["b", "a"]).write("b", 0, 5, 1).write("a", 1, 4, 2).is_good();
}

#[test]
fn a_read_while_a_write_is_under_way_may_see_it_or_not() {
    for seen in [Some((1, "a")), Some((2, "b"))] {
        story(&["a", "b"]).write("a", 0, 1, 1).write("b", 2, 9, 2).read(3, 4, seen).is_good();
    }
}

#[test]
fn what_nobody_knows_may_be_there_or_not_and_come_late() {
    story(&["a"]).write("a", 0, 1, 1).unknown("b", 2).is_good();
    let late = story(&["a", "c", "b"]).write("a", 0, 1, 1).unknown("b", 2).write("c", 7, 8, 2);
    late.read(8, 9, Some((2, "c"))).read(10, 11, Some((3, "b"))).is_good();
}

#[test]
fn an_acknowledged_write_that_is_not_there_is_lost() {
    let story = story(&["a"]).write("a", 0, 1, 1).write("b", 2, 3, 2);
    story.is_bad(|fault| matches!(fault, Anomaly::Lost { write } if write.value == "b"));
}

#[test]
fn an_acknowledged_write_that_another_took_the_place_of_is_lost() {
    let story = story(&["a", "c"]).write("a", 0, 1, 1).write("b", 2, 3, 2).write("c", 4, 5, 2);
    story.is_bad(|fault| matches!(fault, Anomaly::Lost { write } if write.value == "b"));
}

#[test]
fn a_write_done_twice_is_told() {
    let story = story(&["a", "b", "a"]).write("a", 0, 1, 1).write("b", 0, 1, 2);
    let told = story.history.check(&story.log);
    let twice = Anomaly::Twice { value: "a".to_owned(), revisions: (1, 3) };
    assert!(told.contains(&twice), "{told:#?}");
}

#[test]
fn a_refused_write_must_not_be_there() {
    story(&["a"]).write("a", 0, 1, 1).refused("b", 2).is_good();
    let story = story(&["a", "b"]).write("a", 0, 1, 1).refused("b", 2);
    story.is_bad(|fault| matches!(fault, Anomaly::RefusedAndDone { found: 2, .. }));
}

#[test]
fn an_answer_with_a_strangers_revision_is_told() {
    let story = story(&["a", "b"]).write("a", 0, 2, 2).write("b", 1, 3, 2);
    story.is_bad(|fault| matches!(fault, Anomaly::OtherRevision { found: 1, .. }));
}

#[test]
fn a_value_that_nobody_wrote_is_told() {
    let story = story(&["a", "ghost"]).write("a", 0, 1, 1);
    story.is_bad(|fault| matches!(fault, Anomaly::Invented { revision: 2, .. }));
}

#[test]
fn a_missing_revision_is_told() {
    let mut story = story(&["a", "b"]).write("a", 0, 1, 1);
    story.log.get_mut("x").unwrap().remove(&1);
    let told = story.history.check(&story.log);
    assert!(matches!(told[0], Anomaly::Gap { expected: 1, found: 2, .. }), "{told:#?}");
}

#[test]
fn a_write_must_not_come_before_one_that_was_over_when_it_began() {
    story(&["b", "a"]).write("a", 0, 1, 2).write("b", 2, 3, 1).is_bad(is_order);
    story(&["b", "a"]).write("a", 0, 1, 2).unknown("b", 2).is_bad(is_order);
}

#[test]
fn a_read_must_see_what_was_acknowledged_before_it() {
    let stale = story(&["a", "b"]).write("a", 0, 1, 1).write("b", 2, 3, 2);
    stale.read(4, 5, Some((1, "a"))).is_bad(is_order);
    story(&["a"]).write("a", 0, 1, 1).read(2, 3, None).is_bad(is_order);
}

#[test]
fn a_read_must_not_see_what_was_written_after_it() {
    story(&["a"]).read(0, 1, Some((1, "a"))).write("a", 2, 3, 1).is_bad(is_order);
}

#[test]
fn a_read_must_not_see_what_is_not_there_in_the_end() {
    let story = story(&["a"]).write("a", 0, 1, 1).unknown("b", 2).read(3, 4, Some((2, "b")));
    story.is_bad(|fault| matches!(fault, Anomaly::ReadOther { kept: None, .. }));
}

#[test]
fn reads_do_not_go_back() {
    let story = story(&["a", "b"]).write("a", 0, 1, 1).write("b", 2, 9, 2);
    story.read(3, 4, Some((2, "b"))).read(5, 6, Some((1, "a"))).is_bad(is_order);
}

#[test]
fn the_log_of_all_registers_keeps_the_order_too() {
    let mut story = story(&["a"]);
    story.log.insert("y".to_owned(), [(1, "b".to_owned())].into());
    let write = |register: &str, value: &str, second, index| Write {
        register: register.to_owned(),
        value: value.to_owned(),
        invoked: at(second),
        outcome: WriteOutcome::Acknowledged { at: at(second + 1), revision: 1, index },
    };
    story.history.writes = vec![write("x", "a", 0, 7), write("y", "b", 2, 8)];
    story.is_good();
    story.history.writes = vec![write("x", "a", 0, 8), write("y", "b", 2, 7)];
    story.is_bad(is_order);
}

/// The pass is a short cut: any pair of operations says the same.
#[test]
fn the_pass_finds_what_looking_at_every_pair_finds() {
    let mut rng = crate::LabRng::new(5);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..2_000 {
        let mut story = story(&["a", "b", "c"]);
        for (revision, value) in [(1, "a"), (2, "b"), (3, "c")] {
            let from = rng.between(2 * revision, 2 * revision + 4);
            story = story.write(value, from, from + rng.between(0, 4), revision);
        }
        for _ in 0..2 {
            let revision = rng.below(3);
            let from = rng.between(0, 12);
            let seen = (revision as u64 + 1, ["a", "b", "c"][revision]);
            story = story.read(from, from + rng.between(0, 3), Some(seen));
        }
        let is_bad = by_pairs(&story.history);
        assert_eq!(!story.told().is_empty(), is_bad, "{:#?}", story.history);
        if is_bad { bad += 1 } else { good += 1 }
    }
    assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
}

fn by_pairs(history: &History) -> bool {
    let writes = history.writes.iter().map(|write| match write.outcome {
        WriteOutcome::Acknowledged { at, revision, .. } => ((revision, 0), write.invoked, at),
        _ => unreachable!("all are acknowledged"),
    });
    let reads = history.reads.iter().map(|read| {
        let revision = read.seen.as_ref().map_or(0, |(revision, _)| *revision);
        ((revision, 1), read.invoked, read.answered)
    });
    let ops: Vec<_> = writes.chain(reads).collect();
    let wrong =
        |x: &((u64, i32), Moment, Moment), y: &((u64, i32), Moment, Moment)| x.0 < y.0 && y.2 < x.1;
    ops.iter().any(|x| ops.iter().any(|y| wrong(x, y)))
}
