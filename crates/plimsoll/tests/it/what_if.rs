//! `plimsoll what-if` on a described cell: what it prints, what it refuses, and its page. What it says of running cells is tested
//! with the API, and whether it is true in the simulator.

use serde_json::Value;

use crate::report::check_nesting;
use crate::run::{directory, plimsoll, root};

const CASE: &str = "--input examples/settled.yaml";

#[test]
fn what_cannot_be_is_refused_with_the_next_step() {
    for (question, said, hint) in [
        ("drain n33", "there is no node n33", "did you mean n3"),
        ("lose n1,zzzzz", "there is no node zzzzz", "a node is one of n1, n2, n3"),
        ("scale wbe=20", "there is no service wbe", "did you mean web"),
        ("scale web=many", "write the service and how many", "--help"),
        ("scale", "SERVICE=N", "--help"),
        ("add 0 --cpus 8 --memory 32g", "0 nodes cannot be added", "from 1 to"),
        ("add 2 --cpus 8", "--memory", "--help"),
        ("add 2 --cpus 8 --memory lots", "lots", "--help"),
        ("add 2 --cpus 0 --memory 32g", "a node has cpus and memory", "--cpus 8 --memory 32g"),
        ("drain n1 --html nowhere/report.html", "there is no directory nowhere", "make it first"),
        ("apply -f nothing.yaml", "nothing.yaml", ""),
        ("nonsense", "nonsense", "--help"),
    ] {
        let ran = plimsoll(&format!("what-if {question} {CASE}"));
        assert_eq!((ran.code(), ran.stdout()), (1, String::new()), "{question}");
        let text = ran.stderr();
        assert!(text.contains(said) && text.contains(hint), "{question}: {text}");
    }
}

#[test]
fn a_forecast_has_the_same_facts_as_json() {
    let ran = plimsoll(&format!("what-if drain n4 {CASE} -o json"));
    assert_eq!(ran.code(), 0, "{}", ran.text());
    let facts: Value = serde_json::from_str(&ran.stdout()).unwrap();
    assert_eq!(facts["what_if"], "drain n4");
    assert_eq!(facts["is_whole"], true);
    assert_eq!(facts["moved"].as_array().unwrap().len(), 2);
    assert_eq!(facts["unplaced"].as_array().unwrap().len(), 0);
    let nodes = facts["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4);
    assert_eq!(nodes[3]["change"], "drained");
    assert_eq!(nodes[3]["before"]["reserved"]["cpu"], 375_000);
    assert_eq!(nodes[3]["after"]["replicas"], 0);
    let again = plimsoll(&format!("what-if drain n4 {CASE} -o json"));
    assert_eq!(ran.stdout(), again.stdout(), "equal questions, equal answers");
    let yaml = plimsoll(&format!("what-if drain n4 {CASE} -o yaml"));
    assert!(yaml.stdout().contains("what_if: drain n4"), "{}", yaml.stdout());
}

#[test]
fn a_file_is_applied_only_in_the_mind() {
    let file = "name: shop\nservices:\n  web: {image: web, deploy: {replicas: 2}}\n";
    let here = directory("what_if_apply", [("new.yaml", file)]);
    let case = root().join("examples/settled.yaml");
    let ran = here.run(&format!("what-if apply -f new.yaml --input {}", case.display()));
    assert_eq!(ran.code(), 0, "{}", ran.text());
    for line in ["RETIRED", "shop-db-1", "shop-api-4", "MOVED"] {
        assert!(ran.stdout().contains(line), "{line}: {}", ran.stdout());
    }
}

#[test]
fn the_page_shows_every_node_beside_the_line_and_fetches_nothing() {
    let here = directory("what_if_html", []);
    let case = root().join("examples/settled.yaml");
    let ran = here.run(&format!("what-if scale web=40 --html out.html --input {}", case.display()));
    assert_eq!((ran.code(), ran.stderr().as_str()), (0, "the report is in out.html\n"));
    let page = here.read("out.html");
    check_nesting(&page);
    assert_eq!(page.matches("<svg ").count(), 2, "reserved and pressure");
    for text in [
        "<title>what if: scale web=40 · plimsoll</title>",
        "default-src 'none'",
        "would find no place.</p>",
        "class=\"load-line\"",
        ">n3</text>",
        "no_eligible_node",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for elsewhere in ["http:", "https:", "src=", "url(", "@import", "<script"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
}

/// Names are what people chose: they are text in the page, whatever they look like.
#[test]
fn a_case_from_stdin_is_asked_as_well() {
    let case = std::fs::read_to_string(root().join("examples/settled.yaml")).unwrap();
    let piped = crate::run::plimsoll_reading("what-if lose n2 --input -", &case);
    let read = plimsoll(&format!("what-if lose n2 {CASE}"));
    assert_eq!(piped.text(), read.text());
    assert_eq!(read.code(), 0);
}
