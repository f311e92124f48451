//! Names and quantities as they are written, checked by the model's own types.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use plimsoll_model::ids::InvalidId;
use plimsoll_model::{MilliCpus, Millis, Pressure, ServiceKey};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// `shop/web`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceRef(pub(crate) ServiceKey);

impl<'de> Deserialize<'de> for ServiceRef {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        text.parse().map(Self).map_err(|error| {
            let message = match error {
                InvalidId::Name(error) => error.to_string(),
                _ => format!("{text:?} does not name a service; write deployment/service"),
            };
            serde::de::Error::custom(message)
        })
    }
}

/// A quantity read from its text as written, so that `0.10` is exact.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parsed<T>(pub(crate) T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A share such as `0.85`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share(pub(crate) Pressure);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let wrong = || {
            let message = format!("{text:?} is not a share; write 0.85 for 85 % of the node");
            serde::de::Error::custom(message)
        };
        // A decimal of thousandths is what cpus are too.
        let MilliCpus(thousandths) = text.parse().map_err(|_| wrong())?;
        let millionths = u32::try_from(thousandths.saturating_mul(1_000)).map_err(|_| wrong())?;
        // A node can be over its line, but `85` was meant as a percentage.
        if millionths > 4 * Pressure::FULL.millionths() {
            return Err(wrong());
        }
        Ok(Self(Pressure::from_millionths(millionths)))
    }
}

/// `2s..15s`, from least to most; `5s` is both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span(pub(crate) Millis, pub(crate) Millis);

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let wrong = |_| format!("{text:?} is not a span of time; write 2s..15s");
        let (least, most) = (least.parse().map_err(wrong)?, most.parse().map_err(wrong)?);
        if least > most {
            return Err(format!("{text:?} begins above its end; write {most}..{least}"));
        }
        Ok(Self(least, most))
    }
}

/// A mapping in the order of the file. Its keys may know their places, which no map could sort by.
#[derive(Debug)]
pub(crate) struct Pairs<K, V>(pub(crate) Vec<(K, V)>);

impl<K, V> Default for Pairs<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Pairs<K, V> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Each<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Each<K, V> {
            type Value = Pairs<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        source.deserialize_map(Each(PhantomData))
    }
}
