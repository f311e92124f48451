//! Thirty-two bytes as people and JSON see them: hexadecimal digits. Other formats have them as they are.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What does not print in full.
pub(crate) const SHORT: usize = 12;

pub(crate) struct Hex<'b>(pub(crate) &'b [u8; 32]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

pub(crate) fn parse(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

pub(crate) fn serialize<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.collect_str(&Hex(bytes))
    } else {
        bytes.serialize(serializer)
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<[u8; 32], D::Error> {
    if !source.is_human_readable() {
        return <[u8; 32]>::deserialize(source);
    }
    let text = String::deserialize(source)?;
    parse(&text).ok_or_else(|| serde::de::Error::custom("a hash is 64 hexadecimal digits"))
}
