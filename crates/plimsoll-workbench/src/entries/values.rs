//! Names and quantities as they are written, checked by the model's own types.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use plimsoll_model::ids::InvalidId;
use plimsoll_model::spec::{HostPort, Protocol};
use plimsoll_model::{Millis, Pressure, ServiceKey};
use serde::de::value::MapAccessDeserializer;
use serde::de::{IntoDeserializer, MapAccess, Visitor};
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
        let millionths = parts(&text, 6).and_then(|it| u32::try_from(it).ok()).ok_or_else(wrong)?;
        // A node can be over its line, but `85` was meant as a percentage.
        if millionths > 4 * Pressure::FULL.millionths() {
            return Err(wrong());
        }
        Ok(Self(Pressure::from_millionths(millionths)))
    }
}

/// A share that was worked out, with so many places and of any size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkedOut<const PLACES: u32>(pub(crate) u64);

impl<const PLACES: u32> FromStr for WorkedOut<PLACES> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a share of a node; write 0.85");
        parts(text, PLACES).map(Self).ok_or_else(wrong)
    }
}

/// A point in time on the clock of the case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockTime(pub(crate) Millis);

/// `10000000` is milliseconds, `30s` a length of time since the clock began.
impl FromStr for ClockTime {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("{text:?} is not a time; write milliseconds on any clock, or 30s");
        let number = text.parse().map(Millis);
        number.or_else(|_| text.parse()).map(Self).map_err(wrong)
    }
}

/// `80`, or `53/udp`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortText(pub(crate) HostPort);

impl FromStr for PortText {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a port; write 80, or 53/udp");
        let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            _ => return Err(wrong()),
        };
        let number = number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
        Ok(Self(HostPort { number, protocol }))
    }
}

/// A decimal in units of its last place of so many, rounded up beyond it. Also `1e-6`, as programs print what is small.
fn parts(text: &str, places: u32) -> Option<u64> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: u128 = digits.parse().ok()?;
    let fraction = i64::try_from(fraction.len()).ok()?;
    let shift = i64::from(places) + exponent.parse::<i32>().map(i64::from).ok()? - fraction;
    // Beyond any number that has a meaning here, all that is left is one unit, or none.
    let scale = 10_u128.checked_pow(u32::try_from(shift.unsigned_abs()).ok()?);
    let parts = match (shift >= 0, scale) {
        (true, scale) => digits.checked_mul(scale?)?,
        (false, Some(scale)) => digits.div_ceil(scale),
        (false, None) => u128::from(digits > 0),
    };
    u64::try_from(parts).ok()
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

/// A name alone, or a mapping that says more.
#[derive(Debug)]
pub(crate) enum NameOr<N, M> {
    Name(N),
    More(M),
}

impl<'de, N: Deserialize<'de>, M: Deserialize<'de>> Deserialize<'de> for NameOr<N, M> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Either<N, M>(PhantomData<(N, M)>);

        impl<'de, N: Deserialize<'de>, M: Deserialize<'de>> Visitor<'de> for Either<N, M> {
            type Value = NameOr<N, M>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or a mapping")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                N::deserialize(text.into_deserializer()).map(NameOr::Name)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                M::deserialize(MapAccessDeserializer::new(map)).map(NameOr::More)
            }
        }

        source.deserialize_any(Either(PhantomData))
    }
}

/// `30s` ahead, or `-30s` behind, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offset(pub(crate) i64);

impl FromStr for Offset {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an offset; write 30s, or -30s");
        let (sign, span) = text.strip_prefix('-').map_or((1, text), |span| (-1, span));
        let span: Millis = span.parse().map_err(|_| wrong())?;
        i64::try_from(span.0).map(|span| Self(sign * span)).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_exact_to_its_places_and_rounded_up_beyond() {
        for (text, places, expected) in [
            ("0.85", 6, Some(850_000)),
            ("1", 6, Some(1_000_000)),
            ("4.0", 6, Some(4_000_000)),
            (".5", 3, Some(500)),
            ("0.912345678901", 12, Some(912_345_678_901)),
            ("0.0000001", 6, Some(1)),
            ("1e-6", 6, Some(1)),
            ("2.5E-3", 6, Some(2_500)),
            ("3e-12", 12, Some(3)),
            ("1e-99", 6, Some(1)),
            ("0e-99", 6, Some(0)),
            ("1e2", 0, Some(100)),
            ("", 6, None),
            (".", 6, None),
            ("-1", 6, None),
            ("1e", 6, None),
            ("1e99", 6, None),
            ("half", 6, None),
        ] {
            assert_eq!(parts(text, places), expected, "{text}");
        }
    }

    #[test]
    fn a_time_is_milliseconds_or_a_length_since_the_clock_began() {
        let read = |text: &str| text.parse::<ClockTime>().ok().map(|time| time.0.0);
        for (text, expected) in
            [("0", Some(0)), ("10000000", Some(10_000_000)), ("1m30s", Some(90_000)), ("x", None)]
        {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_port_is_of_tcp_unless_it_says_otherwise() {
        let read = |text: &str| text.parse::<PortText>().ok().map(|port| port.0.to_string());
        for (text, expected) in [
            ("80", Some("80/tcp")),
            ("53/udp", Some("53/udp")),
            ("0", None),
            ("70000", None),
            ("80/http", None),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text}");
        }
    }
}
