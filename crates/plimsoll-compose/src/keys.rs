//! The keys of one mapping, read by name. A key that is absent, or null, reads as nothing.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;
use std::str::FromStr;

use crate::diagnostic::Findings;
use crate::fields::{self, Section};
use crate::read;
use crate::yaml::{Mapping, YamlEntry, YamlNode};

pub(crate) struct KeyReader<'c, 'n> {
    pub(crate) report: &'c mut Findings,
    mapping: &'n Mapping,
}

impl<'c, 'n> KeyReader<'c, 'n> {
    /// Checks the keys against the field table first: nothing is read that was not judged.
    pub(crate) fn checked(
        report: &'c mut Findings,
        section: Section,
        mapping: &'n Mapping,
    ) -> Self {
        fields::check(report, section, mapping);
        Self { report, mapping }
    }

    /// Reads on in a mapping that was checked before.
    pub(crate) fn of(report: &'c mut Findings, mapping: &'n Mapping) -> Self {
        Self { report, mapping }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'n YamlEntry> {
        self.mapping.get(key)
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        read::text(self.report, self.mapping.get(key)?)
    }

    pub(crate) fn boolean(&mut self, key: &str) -> Option<bool> {
        read::boolean(self.report, self.mapping.get(key)?)
    }

    pub(crate) fn integer<T: TryFrom<i64>>(
        &mut self,
        key: &str,
        least: i64,
        most: i64,
    ) -> Option<T> {
        read::integer(self.report, self.mapping.get(key)?, least, most)
    }

    pub(crate) fn parse<T>(&mut self, key: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        read::parse(self.report, self.mapping.get(key)?)
    }

    pub(crate) fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        read::word(self.report, self.mapping.get(key)?, words)
    }

    pub(crate) fn mapping(&mut self, key: &str) -> Option<&'n Mapping> {
        read::mapping(self.report, self.mapping.get(key)?)
    }

    /// A mapping within this one, its keys checked.
    pub(crate) fn section(&mut self, key: &str, section: Section) -> Option<KeyReader<'_, 'n>> {
        let mapping = self.mapping(key)?;
        Some(KeyReader::checked(self.report, section, mapping))
    }

    pub(crate) fn items(&mut self, key: &str) -> &'n [Rc<YamlNode>] {
        self.mapping.get(key).map_or(&[], |entry| read::items(self.report, entry))
    }

    pub(crate) fn texts(&mut self, key: &str) -> Vec<String> {
        let texts = self.mapping.get(key).map(|entry| read::texts(self.report, entry));
        read::plain(texts.unwrap_or_default())
    }

    pub(crate) fn one_or_many(&mut self, key: &str) -> Vec<String> {
        let texts = self.mapping.get(key).map(|entry| read::one_or_many(self.report, entry));
        read::plain(texts.unwrap_or_default())
    }

    /// Pairs in which a name without a value has an empty one.
    pub(crate) fn pairs(&mut self, key: &str) -> BTreeMap<String, String> {
        let pairs = self.mapping.get(key).map(|entry| read::pairs(self.report, entry));
        let pairs = pairs.unwrap_or_default().into_iter();
        pairs.map(|pair| (pair.key, pair.value.unwrap_or_default())).collect()
    }
}
