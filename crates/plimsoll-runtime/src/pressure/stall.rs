//! Pressure stall information: how long work waited for want of something. Kernels may lack it.

use std::path::Path;

use plimsoll_model::Pressure;
use serde::{Deserialize, Serialize};

use super::files::text;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stalls {
    pub cpu: Option<Stall>,
    pub memory: Option<Stall>,
    pub io: Option<Stall>,
}

/// The share of time in which some of the work waited, over three windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stall {
    pub seconds_10: Pressure,
    pub seconds_60: Pressure,
    pub seconds_300: Pressure,
    pub total_micros: u64,
}

impl Stalls {
    pub fn read(root: &Path) -> Self {
        let stall = |name: &str| Stall::parse(&text(&root.join("proc/pressure").join(name))?);
        Self { cpu: stall("cpu"), memory: stall("memory"), io: stall("io") }
    }
}

impl Stall {
    /// Reads `some avg10=1.45 avg60=2.65 avg300=9.16 total=378690336`.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
        let mut stall = Self::default();
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=')?;
            match key {
                "avg10" => stall.seconds_10 = percent(value)?,
                "avg60" => stall.seconds_60 = percent(value)?,
                "avg300" => stall.seconds_300 = percent(value)?,
                "total" => stall.total_micros = value.parse().ok()?,
                _ => {}
            }
        }
        Some(stall)
    }
}

/// `1.45` percent, to the millionth: the kernel prints two places, and neither is lost.
fn percent(text: &str) -> Option<Pressure> {
    let (whole, part) = text.split_once('.')?;
    if part.len() != 2 {
        return None;
    }
    let hundredths = whole.parse::<u32>().ok()? * 100 + part.parse::<u32>().ok()?;
    Some(Pressure::from_millionths(hundredths * 100))
}
