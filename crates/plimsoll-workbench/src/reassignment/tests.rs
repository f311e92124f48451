//! A small instance whose cost is worked out by hand, and what is wrong with broken ones.

use std::fs;
use std::path::Path;
use std::time::Duration;

use plimsoll_optimize::{Cost, referee};

use super::{Instance, SearchTerms, improve, instances};

/// Two resources, the second transient; three machines in two neighborhoods and three locations; service 0 in at least
/// two locations, service 1 where service 0 is; three processes; one balance.
const MODEL: &str = "\
2
0 10
1 5
3
0 0  20 20  10 15  0 1 2
0 1  20 20  10 15  1 0 2
1 2  30 30  25 25  2 2 0
2
2 0
0 1 0
3
0  8 4  3
0  6 5  2
1  7 9  4
1
0 1 2
4
1 10 100
";

const ASSIGNMENT: &str = "0 1 0\n";

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn written() -> Instance {
    let table = "instance,machines,s41_300s\nsmall,3,500\n";
    let files = [
        ("model_small.txt", MODEL),
        ("assignment_small.txt", ASSIGNMENT),
        ("reference.csv", table),
    ];
    instances(directory(&files).path(), &[]).unwrap().pop().unwrap()
}

#[test]
fn the_cost_of_a_written_instance_is_the_one_worked_out_by_hand() {
    let Instance { problem, winner, .. } = written();
    assert_eq!(winner, Some(500));
    // Machine 0 uses 15 and 13, machine 1 uses 6 and 5, machine 2 nothing. Above safety: 5 of the first resource on
    // machine 0, at 10 each. Free are (5, 7), (14, 15) and (30, 30): twice the first less the second is 3, 13 and 30,
    // 46 at 4 each.
    let before = Cost { load: 50, balance: 184, ..Cost::default() };
    assert_eq!(referee::cost(&problem, &[0, 1, 0]), before);
    assert_eq!(before.total(), 234);
    // Process 1 of service 0 goes to machine 2, and process 2 of service 1 to machine 1. Machine 0 uses (8, 4), machine 1
    // (7, 9), machine 2 (6, 5): nothing above safety. Free are (12, 16), (13, 11), (24, 25): 8, 15 and 23, 46 at 4 each.
    // Processes cost 2 + 4, each service has one moved, so 10; machine 1 to 2 costs 2 and machine 0 to 1 costs 1, at 100.
    let after =
        Cost { load: 0, balance: 184, process_move: 6, service_move: 10, machine_move: 300 };
    assert_eq!(referee::cost(&problem, &[0, 2, 1]), after);
    assert_eq!(after.total(), 500);
}

#[test]
fn hard_rules_are_the_challenges() {
    let Instance { problem, .. } = written();
    let broken = |layout: &[usize]| {
        let all = referee::violations(&problem, layout);
        all.iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    assert_eq!(broken(&[0, 1, 0]), Vec::<String>::new());
    assert_eq!(
        broken(&[1, 1, 1]),
        [
            // 8 + 6 + 7 of 20; of the transient one 18 on machine 1, and 13 still on machine 0.
            "machine 1 has 21 of resource 0 in use, of 20",
            "machine 1 has two processes of service 0",
            "service 0 is in 1 locations, of at least 2",
        ]
    );
    assert_eq!(broken(&[0, 1, 2]), ["service 1 is in neighborhood 1 without service 0"]);
}

#[test]
fn a_search_is_told_in_one_line_with_what_it_cost_on_the_way() {
    let instance = written();
    let mut now = Duration::ZERO;
    let mut clock = || {
        now += Duration::from_millis(500);
        now
    };
    let terms = SearchTerms { time: Duration::from_secs(10), moved_percent: Some(50), seed: 1 };
    let row = improve(&instance, terms, &mut clock);
    assert_eq!((row.start, row.winner, row.violations), (234, Some(500), 0));
    // Half of three is one. Swapping what machines hold changes little, and every move costs a hundred.
    assert!(row.moved <= 1 && row.cost <= 234, "{row:?}");
    assert!(row.after_1s.is_some_and(|cost| cost >= row.cost), "{row:?}");
    assert!(row.after_5s.is_some_and(|cost| cost >= row.cost), "{row:?}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let said = |files: &[(&str, &str)], only: &[String]| {
        let directory = directory(files);
        let error = instances(directory.path(), only).unwrap_err();
        let shown = directory.path().display().to_string();
        error.to_string().replace(&shown, "DIR")
    };
    let model = ("model_x.txt", MODEL);
    let cut = &MODEL[..20];
    for (files, only, expected) in [
        (vec![], vec![], "DIR holds no instance"),
        (vec![model], vec![], "DIR has no assignment_x.txt beside its model"),
        (vec![model], vec!["y".to_owned()], "DIR has no instance y"),
        (
            vec![("model_x.txt", cut), ("assignment_x.txt", "0")],
            vec![],
            "DIR/model_x.txt: it ends after 9 numbers",
        ),
        (
            vec![model, ("assignment_x.txt", "0 1 two")],
            vec![],
            "DIR/assignment_x.txt: number 3: \"two\" is no integer",
        ),
        (
            vec![model, ("assignment_x.txt", "0 1 0 0")],
            vec![],
            "DIR/assignment_x.txt: it goes on after 3 numbers",
        ),
        (
            vec![model, ("assignment_x.txt", "0 1 3")],
            vec![],
            "instance x: process 2 names machine 3, and there are 3",
        ),
        (
            vec![model, ("assignment_x.txt", "0 1 2")],
            vec![],
            "instance x breaks a rule before anything moves: service 1 is in neighborhood 1 \
             without service 0",
        ),
    ] {
        assert_eq!(said(&files, &only), expected);
    }
    assert!(instances(Path::new("nowhere-at-all"), &[]).is_err());
}
