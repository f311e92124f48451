//! `plimsoll sim run --report`: one page, whole by itself.

use std::fs;

use expect_test::expect;

use crate::run::{Directory, directory, root};

/// The page of a scenario, and the directory it is in.
fn page(name: &str, scenario: &str) -> String {
    let here = directory(name, [("scenario.yaml", scenario)]);
    let ran = here.run("sim run scenario.yaml --report out.html");
    assert_eq!(ran.stderr(), "the report is in out.html\n");
    assert_eq!(ran.code(), 0, "{}", ran.text());
    here.read("out.html")
}

fn scenario(name: &str) -> String {
    fs::read_to_string(root().join("scenarios").join(name)).unwrap()
}

/// Every element that is opened is closed, in order.
pub(crate) fn check_nesting(page: &str) {
    const EMPTY: [&str; 2] = ["meta", "!doctype"];
    let mut open: Vec<&str> = Vec::new();
    let style = page.find("</style>").unwrap();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("every tag ends");
        let tag = &rest[start + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') && !EMPTY.contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
        if name == "style" && rest.len() > page.len() - style {
            rest = &page[style..];
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn the_page_has_the_plots_the_numbers_and_the_story() {
    let page = page("report_drain", &scenario("drain.yaml"));
    check_nesting(&page);
    assert_eq!(page.matches("<svg ").count(), 4);
    for title in ["Pressure", "Replicas", "Missing", "Moves"] {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    for text in [
        "<title>a drain · plimsoll sim</title>",
        "<code>plimsoll sim run scenario.yaml --seed 1</code>",
        "Every promise was kept.",
        "<th>moves</th><td>6 started, 6 finished, 0 undone</td>",
        "<li><time>20m 00s</time> ash is drained</li>",
        "<td>20m 00s</td><td>ash is draining</td>",
        "<i class=\"line3\"></i>dogwood</span>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    // The axis of time speaks of minutes and hours.
    let labels: Vec<&str> = page
        .split("</text>")
        .filter_map(|part| part.rsplit_once(">\n")?.1.lines().next())
        .collect();
    expect!["0.00 | 0.25 | 0.50 | 0.75 | 0 | 10m | 20m | 30m | 40m | 50m | 1h | 1h 10m | 1h 20m | 1h 30m | 1h 40m | 1h 50m | 2h | 1 | 3 | 0 | 5 | 10 | 15"].assert_eq(&labels[..23].join(" | "));
}

#[test]
fn the_page_fetches_nothing_and_reads_in_the_dark() {
    let page = page("report_alone", &scenario("drain.yaml"));
    let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "url(", "@import", "<script", "<link", "<img", "src="] {
        assert!(!without_namespace.contains(outside), "{outside}");
    }
    assert!(page.contains("prefers-color-scheme: dark"));
    // The style sheet finds the lines of the plots by their colours.
    for colour in ["fill=\"#444B55\"", "stroke=\"#E3E6EA\"", "stroke=\"#8A939F\""] {
        assert!(page.split("</style>").nth(1).unwrap().contains(colour), "{colour} is drawn");
        assert!(page.split("</style>").next().unwrap().contains(colour), "{colour} is styled");
    }
}

#[test]
fn many_nodes_are_shown_by_how_they_are_spread() {
    let page = page("report_day", &scenario("a-day.yaml"));
    check_nesting(&page);
    for text in ["least to most", "median", "nine of ten nodes are below", ", the hottest"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains("<polygon "), "the band");
    assert!(page.contains("the first 500 of "), "the story is bounded");
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let wild = "name: \"</title><script>alert(1)</script> & more\"\nlength: 1m\n\
                nodes: [{name: ash, cpus: 1, memory: 1gb}]\n";
    let page = page("report_wild", wild);
    check_nesting(&page);
    assert!(!page.contains("<script"));
    assert!(
        page.contains("<h1>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; more</h1>")
    );
}

#[test]
fn a_broken_promise_is_on_the_page_too() {
    let slow = "length: 15m\nnodes: [{name: ash, cpus: 1, memory: 1gb}]\n\
                deployments: [{name: shop, services: {web: {}}}]\ntakes: {pull: 20m}\n";
    let here = directory("report_slow", [("slow.yaml", slow)]);
    assert_eq!(here.run("sim run slow.yaml --report out.html").code(), 2);
    let page = here.read("out.html");
    check_nesting(&page);
    assert!(page.contains("Broken after 15m 00s: settled: shop-web-1 does not run on ash"));
}

fn refusal(here: &Directory, file: &str) -> String {
    here.run(&format!("sim run scenario.yaml --report {file}")).text()
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_the_run() {
    let here = directory("report_place", [("scenario.yaml", "no scenario"), ("there/x", "")]);
    expect![[r#"
        exit 1
        --- stderr
        error: there is no directory nowhere for the report
        hint: make it first, or name another
    "#]]
    .assert_eq(&refusal(&here, "nowhere/out.html"));
    expect![[r#"
        exit 1
        --- stderr
        error: there is a directory
        hint: name a file in it: there/report.html
    "#]]
    .assert_eq(&refusal(&here, "there"));
}
