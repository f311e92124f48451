//! Whatever the bytes, `load` answers: no panic, and an error if there is no deployment.

use std::fs;

use plimsoll_compose::load_env;
use proptest::prelude::*;

use crate::case::file;
use crate::fixtures;

fn fixture_texts() -> Vec<Vec<u8>> {
    let paths = fixtures::all().into_iter().flat_map(|(_, paths)| paths);
    paths.map(|path| fs::read(path).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_answered(text in "(\\PC|[\n\t:{}\\[\\]'\"$&*!|>#-]){0,200}") {
        if let Err(errors) = file(&text).try_load() {
            prop_assert!(!errors.list.is_empty());
            prop_assert!(!errors.render(true).is_empty());
        }
        let _ = load_env(Some((".env", text.as_bytes())), []);
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
