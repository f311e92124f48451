//! The pages on security name the test that shows each defence: every one of them is in the tree, under that name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::run::root;

/// Pages whose tables end with a column of tests.
const PAGES: [&str; 2] = ["docs/security.md", "docs/reference/defences.md"];

/// What a name that is cut ends with.
const CUT: char = '…';

/// A test by its crate and its path in it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    package: String,
    path: Vec<String>,
}

/// Every test of the workspace, as its sources have it.
fn tests() -> BTreeSet<Test> {
    let mut all = BTreeSet::new();
    for package in fs::read_dir(root().join("crates")).unwrap().flatten() {
        let name = package.file_name().into_string().unwrap();
        for dir in ["src", "tests"] {
            walk(&package.path().join(dir), &name, &[], &mut all);
        }
    }
    all
}

fn walk(dir: &Path, package: &str, above: &[String], all: &mut BTreeSet<Test>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        let is_root = matches!(module, "lib" | "main" | "mod" | "it" | "bin");
        let own = if is_root { None } else { Some(module.to_owned()) };
        let here: Vec<String> = above.iter().cloned().chain(own).collect();
        if path.is_dir() {
            walk(&path, package, &here, all);
        } else if path.extension().is_some_and(|it| it == "rs") {
            read(&fs::read_to_string(&path).unwrap(), package, &here, all);
        }
    }
}

/// Tests follow their attribute, those of an inner module are in it.
fn read(text: &str, package: &str, module: &[String], all: &mut BTreeSet<Test>) {
    let (mut inner, mut is_test) = (None, false);
    for line in text.lines() {
        let bare = line.trim_start();
        if let Some(rest) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            inner = Some(rest.to_owned());
        } else if line == "}" {
            inner = None;
        }
        if bare.starts_with("#[test]") || bare.starts_with("#[tokio::test") {
            is_test = true;
        }
        let Some((_, rest)) = bare.split_once("fn ").filter(|_| is_test) else { continue };
        let name = rest.split(['(', '<']).next().unwrap_or_default().to_owned();
        let path = module.iter().cloned().chain(inner.clone()).chain([name]).collect();
        all.insert(Test { package: package.to_owned(), path });
        is_test = false;
    }
}

/// Whether a name on a page is this test's, or that of a module it is in: whole from some module on, but for a cut end.
fn names(written: &str, test: &Test) -> bool {
    let (written, is_cut) = match written.strip_suffix(CUT) {
        Some(begun) => (begun, true),
        None => (written, false),
    };
    let parts: Vec<&str> = written.split("::").collect();
    test.path.windows(parts.len()).any(|window| {
        let (last, before) = parts.split_last().expect("a split has a part");
        let (own, above) = window.split_last().expect("as long as the parts");
        above.iter().eq(before.iter()) && if is_cut { own.starts_with(last) } else { own == last }
    })
}

/// The tests that a cell of a table names: what stands in backquotes, with the crate that is named after them, if one is.
fn named(cell: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for piece in cell.split(';') {
        let packages = piece.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        let packages: Vec<String> = packages
            .filter(|word| word.starts_with("plimsoll-") && *word != "plimsoll-fuzz")
            .map(str::to_owned)
            .collect();
        for name in piece.split('`').skip(1).step_by(2) {
            if packages.is_empty() {
                found.push((name.to_owned(), None));
            }
            found.extend(packages.iter().map(|package| (name.to_owned(), Some(package.clone()))));
        }
    }
    found
}

/// The rows of the tables whose last column is of tests: what each begins with, and its tests.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut is_in = false;
    for line in page.lines() {
        let row = line.strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        let Some(row) = row else {
            is_in = false;
            continue;
        };
        let last = row.rsplit('|').next().unwrap_or_default().trim();
        if last.starts_with("test") {
            is_in = true;
        } else if is_in && !last.starts_with("---") {
            found.push((row.split('|').next().unwrap_or_default().trim(), last));
        }
    }
    found
}

#[test]
fn every_test_that_a_page_on_security_names_is_in_the_tree() {
    let tests = tests();
    assert!(tests.len() > 1_000, "{} were found", tests.len());
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let rows = rows(&text);
        assert!(rows.len() > 20, "{page} has {} rows", rows.len());
        for (row, cell) in rows {
            let named = named(cell);
            assert!(!named.is_empty(), "{page}: no test shows it: {row}");
            for (name, package) in named {
                let is_there = tests.iter().any(|test| {
                    package.as_ref().is_none_or(|it| *it == test.package) && names(&name, test)
                });
                assert!(is_there, "{page}: there is no test {name} {package:?}, for: {row}");
            }
        }
    }
}

#[test]
fn a_name_on_a_page_is_a_tests_or_its_modules() {
    let path = ["hostile", "api", "a_write_is_audited"].map(str::to_owned).into();
    let test = Test { package: "plimsoll".to_owned(), path };
    for (written, is_it) in [
        ("hostile::api::a_write_is_audited", true),
        ("api::a_write_is_…", true),
        ("a_write_…", true),
        ("hostile::api", true),
        ("hostile", true),
        ("host", false),
        ("a_write_is", false),
        ("hostile::a_write_is_audited", false),
        ("api::a_read_…", false),
        ("hostile::api::a_write_is_audited::more", false),
    ] {
        assert_eq!(names(written, &test), is_it, "{written}");
    }
    assert_eq!(
        named("`a::b`, `c` (plimsoll-peer); `d`"),
        [("a::b", Some("plimsoll-peer")), ("c", Some("plimsoll-peer")), ("d", None)]
            .map(|(name, package)| (name.to_owned(), package.map(str::to_owned)))
    );
}
