//! How much a replica uses as time goes by: one quantity, a wave, or a trace.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use plimsoll_model::state::MAX_REQUEST;
use plimsoll_model::{Bytes, MilliCpus, Millis};
use plimsoll_sim::usage::Shape;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use crate::entries::values::Parsed;
use crate::mistake::Mistake;

/// A trace of more values is a recording to be thinned out first.
const MAX_VALUES: usize = 100_000;

/// Processor time or memory, written as people do and counted in its smallest unit.
pub(super) trait Quantity: FromStr<Err: fmt::Display> + fmt::Display {
    /// No replica uses more than one may ask for.
    const MOST: Self;
    /// What stands behind the number.
    const UNIT: &'static str;
    fn amount(&self) -> u64;
}

impl Quantity for MilliCpus {
    const MOST: Self = MAX_REQUEST.cpu;
    const UNIT: &'static str = " cpus";
    fn amount(&self) -> u64 {
        self.0
    }
}

impl Quantity for Bytes {
    const MOST: Self = MAX_REQUEST.memory;
    const UNIT: &'static str = "";
    fn amount(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
pub(super) enum ShapeEntry<T> {
    Constant(T),
    Changing(ChangingEntry<T>),
}

/// A wave has the first three, a trace the last two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "T: FromStr<Err: fmt::Display>")]
pub(super) struct ChangingEntry<T> {
    low: Option<Parsed<T>>,
    high: Option<Parsed<T>>,
    period: Option<Parsed<Millis>>,
    step: Option<Parsed<Millis>>,
    values: Option<Vec<Parsed<T>>>,
}

impl<'de, T: Quantity> Deserialize<'de> for ShapeEntry<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Quantity> Visitor<'de> for Either<T> {
            type Value = ShapeEntry<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity, {low, high, period} or {step, values}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(ShapeEntry::Constant).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                // The shortest decimal that reads back as this number: what was written.
                self.visit_str(&number.to_string())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let entry = ChangingEntry::deserialize(MapAccessDeserializer::new(map));
                entry.map(ShapeEntry::Changing)
            }
        }

        source.deserialize_any(Either(PhantomData))
    }
}

/// What the entry stands for.
pub(super) fn shape<T: Quantity>(entry: &Spanned<ShapeEntry<T>>) -> Result<Shape, Mistake> {
    let shape = read(entry)?;
    let most = match &shape {
        Shape::Constant(value) => *value,
        Shape::Wave { high, .. } => *high,
        Shape::Trace { values, .. } => values.iter().copied().max().unwrap_or(0),
    };
    if most > T::MOST.amount() {
        let message = format!("a replica uses at most {}{}", T::MOST, T::UNIT);
        return Err(Mistake::new(entry.referenced, message));
    }
    Ok(shape)
}

fn read<T: Quantity>(entry: &Spanned<ShapeEntry<T>>) -> Result<Shape, Mistake> {
    let wrong = |message: &str| Err(Mistake::new(entry.referenced, message));
    match &entry.value {
        ShapeEntry::Constant(value) => Ok(Shape::Constant(value.amount())),
        ShapeEntry::Changing(changing) => match changing {
            ChangingEntry {
                low: Some(low),
                high: Some(high),
                period: Some(period),
                step: None,
                values: None,
            } => {
                let (low, high, period) = (low.0.amount(), high.0.amount(), period.0);
                if low > high {
                    return wrong("`low` is above `high`");
                }
                if period.0 == 0 {
                    return wrong("`period` must be longer than nothing");
                }
                Ok(Shape::Wave { low, high, period })
            }
            ChangingEntry {
                low: None,
                high: None,
                period: None,
                step: Some(step),
                values: Some(values),
            } => {
                if values.is_empty() || values.len() > MAX_VALUES {
                    let found = values.len();
                    return wrong(&format!("`values` holds {found}, not 1 to {MAX_VALUES}"));
                }
                if step.0.0 == 0 {
                    return wrong("`step` must be longer than nothing");
                }
                let values = values.iter().map(|value| value.0.amount()).collect();
                Ok(Shape::Trace { step: step.0, values })
            }
            _ => Err(Mistake::new(entry.referenced, "this is neither a wave nor a trace")
                .hint("write a quantity, {low, high, period} or {step, values}")),
        },
    }
}
