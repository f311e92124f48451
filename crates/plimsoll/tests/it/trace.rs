//! `plimsoll sim trace`: measured days through the rebalancer. The days here are made up.

use std::fmt::Write as _;
use std::io::Write as _;

use expect_test::expect;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::run::directory;

/// Six hours of seventy machines on four nodes, of which the first sixth swells in turn.
fn day(seed: u32) -> String {
    let mut text = String::new();
    for machine in 0..70_u32 {
        let _ = write!(text, "vm{machine:03}");
        for sample in 0..72_u32 {
            let noise = (machine * 37 + sample * 11 + seed * 5) % 9;
            let swells = machine % 6 == 0 && (machine..machine + 30).contains(&sample);
            let _ = write!(text, ",{}", 2 + noise + if swells { 70 } else { 0 });
        }
        text.push('\n');
    }
    text
}

fn jobs() -> String {
    let mut text = String::new();
    for (day, job) in (1..=2).flat_map(|day| (0..40_u32).map(move |job| (day, job))) {
        for (word, step) in [("cpu", 7), ("mem", 5)] {
            let _ = write!(text, "vm_{job}_{day},{word}");
            for sample in 0..36_u32 {
                let swells = job % 4 == 0 && sample > 6 + job / 4;
                let percent = 5 + (job * step) % 23 + if swells { 40 } else { 0 };
                let _ = write!(text, ",{percent}.{:02}", (job + sample) % 100);
            }
            text.push('\n');
        }
    }
    text
}

#[test]
fn a_day_is_a_line_and_all_of_them_are_the_last() {
    let files = [("20260101.csv", day(1)), ("20260102.csv", day(2)), ("notes.csv", "x".to_owned())];
    let here = directory("trace_days", files.each_ref().map(|(name, text)| (*name, text.as_str())));
    let ran = here.run("sim trace planetlab .");
    expect![[r#"
        exit 0
        --- stdout
        DAY       SEED  NODES  TASKS  HOT WITHOUT  MOVES     HOT  SATURATED / UNMET  UNDONE
        20260101     0      4     70      12.19 %      2  6.70 %   0.00 % / 0.000 %       0
        20260102     0      4     70      11.67 %      3  7.01 %   0.00 % / 0.000 %       0
        all          0      8    140      11.93 %      5  6.86 %   0.00 % / 0.000 %       0
    "#]]
    .assert_eq(&ran.text());
    let one = here.run("sim trace planetlab . --day 20260102 --seed 0,7 -o json");
    assert_eq!(one.code(), 0, "{}", one.text());
    assert!(one.stdout().contains("\"seed\": \"0,7\""), "{}", one.text());
}

#[test]
fn packed_days_are_the_same_days() {
    let here = directory("trace_packed", [("plain/20260101.csv", day(1).as_str())]);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(day(1).as_bytes()).unwrap();
    here.write("20260101.csv.gz", &packed.finish().unwrap());
    let (plain, packed) =
        (here.run("sim trace planetlab plain"), here.run("sim trace planetlab ."));
    assert_eq!(plain.code(), 0, "{}", plain.text());
    assert_eq!(plain.stdout(), packed.stdout());
}

#[test]
fn jobs_have_cpu_and_memory() {
    let here = directory("trace_jobs", [("days.csv", jobs().as_str())]);
    let ran = here.run("sim trace google .");
    expect![[r#"
        exit 0
        --- stdout
        DAY    SEED  NODES  TASKS  HOT WITHOUT  MOVES     HOT  SATURATED / UNMET  UNDONE
        day 1     0      4     40       8.54 %      1  0.83 %   0.00 % / 0.000 %       0
        day 2     0      4     40      13.96 %      1  1.11 %   0.00 % / 0.000 %       0
        all       0      8     80      11.25 %      2  0.97 %   0.00 % / 0.000 %       0
    "#]]
    .assert_eq(&ran.text());
}

#[test]
fn the_report_is_a_page_with_two_plots_a_day() {
    let here = directory("trace_report", [("20260101.csv", day(1).as_str())]);
    let ran = here.run("sim trace planetlab . --out report.html");
    assert_eq!(ran.stderr(), "the report is in report.html\n");
    let page = here.read("report.html");
    assert_eq!(page.matches("<svg ").count(), 2);
    for text in
        ["<h2>20260101, seed 0</h2>", "Hot nodes", "nothing moves", "moves begun", "<td>all</td>"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn a_table_goes_between_its_marks() {
    let page =
        "before\n<!-- planetlab seed 0: begin -->\nold\n<!-- planetlab seed 0: end -->\nafter\n";
    let files = [("20260101.csv", day(1)), ("page.md", page.to_owned())];
    let here =
        directory("trace_write", files.each_ref().map(|(name, text)| (*name, text.as_str())));
    let ran = here.run("sim trace planetlab . --write page.md");
    assert_eq!(ran.code(), 0, "{}", ran.text());
    let written = here.read("page.md");
    assert!(
        written.starts_with("before\n<!-- planetlab seed 0: begin -->\n| day | seed |"),
        "{written}"
    );
    assert!(written.contains("| all | 0 |") && !written.contains("old"), "{written}");
    assert!(written.ends_with("<!-- planetlab seed 0: end -->\nafter\n"), "{written}");
    expect![[r#"
        exit 1
        --- stderr
        error: page.md has no place for the table
        hint: add the lines <!-- planetlab seed 1: begin --> and <!-- planetlab seed 1: end -->
    "#]]
    .assert_eq(&here.run("sim trace planetlab . --seed 1 --write page.md").text());
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    let here = directory(
        "trace_wrong",
        [
            ("empty/x.txt", ""),
            ("much/20260101.csv", "a,1,2\nb,3,101\n"),
            ("none/20260101.csv", "a,1\nb\n"),
            ("day/20260101.csv", "a,1,2\n"),
            ("jobs/days.csv", "vm_1_1,disk,1\n"),
        ],
    );
    let mut text = String::new();
    for command in [
        "planetlab nowhere",
        "planetlab empty",
        "planetlab much",
        "planetlab none",
        "planetlab day --day 20260102",
        "google empty",
        "google jobs",
    ] {
        let _ = writeln!(text, "{}", here.run(&format!("sim trace {command}")).text());
    }
    expect![[r#"
        exit 1
        --- stderr
        error: there is no directory nowhere
        hint: name the directory that the traces are in

        exit 1
        --- stderr
        error: empty holds no day of PlanetLab
        hint: a day is a file YYYYMMDD.csv or YYYYMMDD.csv.gz

        exit 1
        --- stderr
        error: much/20260101.csv:2: "101" is not a percentage
        hint: docs/reference/rebalancer.md says what these files hold

        exit 1
        --- stderr
        error: none/20260101.csv:2: 0 samples, of 1 to 10000
        hint: docs/reference/rebalancer.md says what these files hold

        exit 1
        --- stderr
        error: day has no day 20260102
        hint: it has 20260101

        exit 1
        --- stderr
        error: empty holds no jobs of Google's
        hint: a line is vm_<job>_<day>,cpu or mem, and percentages, in a file *.csv or *.csv.gz

        exit 1
        --- stderr
        error: jobs/days.csv:1: "disk" is neither cpu nor mem
        hint: docs/reference/rebalancer.md says what these files hold

    "#]]
    .assert_eq(&text);
}

/// Three machines in two neighborhoods, three processes; the cost to begin with is worked out beside the reader.
const MODEL: &str = "2\n0 10\n1 5\n3\n0 0 20 20 10 15 0 1 2\n0 1 20 20 10 15 1 0 2\n1 2 30 30 25 25 2 2 0\n2\n2 0\n0 1 0\n\
                     3\n0 8 4 3\n0 6 5 2\n1 7 9 4\n1\n0 1 2\n4\n1 10 100\n";

#[test]
fn a_reassignment_is_searched_without_a_limit_and_with_each_that_is_named() {
    let files = [
        ("model_small.txt", MODEL),
        ("assignment_small.txt", "0 1 0\n"),
        ("reference.csv", "instance,machines,s41_300s\nsmall,3,200\n"),
    ];
    let here = directory("trace_roadef", files);
    let ran = here.run("sim trace roadef . --time 50ms --moved 0,50 --layouts . -o json");
    assert_eq!(ran.code(), 0, "{}", ran.text());
    let facts: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    let searches = facts["searches"].as_array().unwrap();
    let limits: Vec<Option<u64>> = searches.iter().map(|it| it["moved_percent"].as_u64()).collect();
    assert_eq!(limits, [None, Some(0), Some(50)]);
    for search in searches {
        assert_eq!((search["start"].as_i64(), search["violations"].as_u64()), (Some(234), Some(0)));
        assert!(search["cost"].as_i64() <= Some(234), "{search}");
    }
    assert_eq!(searches[1]["moved"], 0);
    assert_eq!(here.read("new_small_0.txt"), "0 1 0\n", "nothing may move");
    let table = here.run("sim trace roadef . --time 10ms --moved 50");
    assert!(table.stdout().contains("MAY MOVE"), "{}", table.text());
}

#[test]
fn instances_that_cannot_be_searched_are_refused() {
    let here = directory("trace_roadef_bad", [("model_x.txt", MODEL)]);
    for (args, said) in [
        (".", "has no assignment_x.txt beside its model"),
        (". --instances y", "has no instance y"),
        (". --time 0s", "--time is from 1ms to 24h"),
        (". --seed one", "`one` is no seed here"),
        (". --layouts nowhere", "there is no directory nowhere for the layouts"),
        ("nowhere", "nowhere"),
    ] {
        let ran = here.run(&format!("sim trace roadef {args}"));
        assert_eq!((ran.code(), ran.stdout()), (1, String::new()), "{args}");
        assert!(ran.stderr().contains(said) && ran.stderr().contains("hint:"), "{}", ran.text());
    }
}

#[test]
fn requests_that_come_and_go_are_packed_alone_and_with_a_few_moves() {
    let mut sample = String::from("vmId,tenantId,cores,ram,vmTypeId,starttime,endtime\n");
    for nth in 0..3 {
        let rows = [(2 * nth, "7680.0,10.0,0,-1.0,0.02"), (2 * nth + 1, "1920.0,10.0,1,-1.0,inf")];
        sample.extend(rows.map(|(id, row)| format!("{id},7,{row}\n")));
    }
    let here = directory("trace_azure", [("small.csv", sample.as_str())]);
    let ran = here.run("sim trace azure . -o json");
    assert_eq!(ran.code(), 0, "{}", ran.text());
    let facts: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    let rows = facts["rows"].as_array().unwrap();
    let [alone, moved] = &rows[..] else { panic!("{facts}") };
    for row in rows {
        assert_eq!((row["peak"].as_u64(), row["peak_bound"].as_u64()), (Some(3), Some(3)));
    }
    assert_eq!((alone["moves"].as_u64(), moved["moves"].as_u64()), (Some(0), Some(2)));
    assert_eq!((alone["mean"].as_f64(), alone["hourly_moves"].as_u64()), (Some(3.0), Some(0)));
    assert!(moved["mean"].as_f64() < Some(1.02), "{moved}");
    let table = here.run("sim trace azure . --hourly-moves 1");
    assert!(table.stdout().contains("MOVES AN HOUR"), "{}", table.text());
}

#[test]
fn requests_that_cannot_be_packed_are_refused() {
    let head = "vmId,tenantId,cores,ram,vmTypeId,starttime,endtime\n";
    for (line, said) in [
        ("1,7,100,1,0,0.0", "6 fields, of 7"),
        ("one,7,100,1,0,0.0,1.0", "\"one\" is not a number"),
        ("1,7,9601,1,0,0.0,1.0", "\"9601\" is not an amount that a machine has"),
        ("1,7,100,1,0,soon,1.0", "\"soon\" is not a number"),
    ] {
        let here = directory("trace_azure_bad", [("bad.csv", format!("{head}{line}\n").as_str())]);
        let ran = here.run("sim trace azure .");
        assert_eq!((ran.code(), ran.stdout()), (1, String::new()), "{line}");
        assert!(
            ran.stderr().contains("bad.csv:2") && ran.stderr().contains(said),
            "{}",
            ran.text()
        );
    }
    let empty = directory("trace_azure_empty", []);
    assert!(empty.run("sim trace azure .").stderr().contains("holds no sample of requests"));
}
