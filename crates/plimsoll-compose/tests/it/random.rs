//! Whatever the bytes, `load` answers: no panic, and an error if there is no deployment.

use std::fs;

use plimsoll_compose::load_env;
use proptest::prelude::*;

use crate::case::file;
use crate::fixtures;

/// A change to a text: at a place, so many bytes give way to others.
#[derive(Debug, Clone)]
struct Edit {
    at: prop::sample::Index,
    removed: usize,
    inserted: String,
}

fn edit() -> impl Strategy<Value = Edit> {
    let words = prop::sample::select(vec![
        "",
        " ",
        "\n",
        "\t",
        ":",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "'",
        "\"",
        "&a ",
        "*a",
        "<<: ",
        "!reset ",
        "!override ",
        "$",
        "${A",
        "${A:-",
        "|",
        ">",
        "#",
        "---\n",
        "null",
        "-1",
        "99999999999999999999",
        "é",
        "\u{0}",
        "\r\n",
        "services:\n",
        "  image: x\n",
        "80-90:80",
        "x-plimsoll: ",
        "global",
    ]);
    (any::<prop::sample::Index>(), 0_usize..12, words).prop_map(|(at, removed, inserted)| Edit {
        at,
        removed,
        inserted: inserted.to_owned(),
    })
}

fn apply(text: &mut Vec<u8>, edit: &Edit) {
    let from = edit.at.index(text.len() + 1);
    let to = (from + edit.removed).min(text.len());
    text.splice(from..to, edit.inserted.bytes());
}

fn fixture_texts() -> Vec<Vec<u8>> {
    let paths = fixtures::all().into_iter().flat_map(|(_, paths)| paths);
    paths.map(|path| fs::read(path).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = file(&bytes).try_load();
        let _ = load_env(Some((".env", &bytes)), []);
    }

    #[test]
    fn arbitrary_text_is_answered(text in "(\\PC|[\n\t:{}\\[\\]'\"$&*!|>#-]){0,200}") {
        if let Err(errors) = file(&text).try_load() {
            prop_assert!(!errors.list.is_empty());
            prop_assert!(!errors.render(true).is_empty());
        }
        let _ = load_env(Some((".env", text.as_bytes())), []);
    }

    #[test]
    fn a_fixture_with_mistakes_in_it_is_answered(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        let texts = fixture_texts();
        let mut text = which.get(&texts).clone();
        for edit in &edits {
            apply(&mut text, edit);
        }
        match file(&text).try_load() {
            Ok(loaded) => prop_assert!(!loaded.deployment.services.is_empty()),
            Err(errors) => prop_assert!(!errors.to_string().is_empty()),
        }
    }

    #[test]
    fn two_fixtures_laid_over_each_other_are_answered(
        base in any::<prop::sample::Index>(),
        over in any::<prop::sample::Index>(),
    ) {
        let texts = fixture_texts();
        let over = String::from_utf8(over.get(&texts).clone()).unwrap();
        let _ = file(base.get(&texts)).over(&over).try_load();
    }
}
