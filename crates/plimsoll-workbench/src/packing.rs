//! How well `binpack` packs: requests in the format of the samples of Microsoft's Azure Trace for Packing 2020 that belong to
//! `CoSpot` (`SoCC` 2022), a file each, replayed alone and with a plan of `optimize` every hour.

use std::path::Path;

use plimsoll_model::{Millis, Resources};
use plimsoll_sim::packing::{self, PackingRequest, PackingResult, PackingTrace, size};
use serde::Serialize;

use crate::trace::read::{TraceFile, TraceLine, files_ending};
use crate::trace::{TraceError, TraceFormat};

/// What a machine has, in the units of the samples: a hundredth of a core, and their own unit of memory.
const CORES: u32 = 9_600;
const MEMORY: u32 = 2_250;

/// Parts of a unit that sizes are counted in.
const PARTS: u32 = 1_000;

/// How long the samples are.
const LENGTH: Millis = Millis::minutes(14 * 24 * 60);

const DAY_MS: f64 = 86_400_000.0;

/// One sample, alone and with moves.
#[derive(Debug, Clone, Serialize)]
pub struct PackingRow {
    pub sample: String,
    pub requests: usize,
    pub hourly_moves: usize,
    pub moves: u64,
    pub peak: u64,
    pub peak_bound: u64,
    /// Machines in use and machines needed, on average.
    pub mean: f64,
    pub mean_bound: f64,
    /// One in shares of the other.
    pub ratio: f64,
}

#[derive(Debug, Serialize)]
pub struct PackingFacts {
    pub rows: Vec<PackingRow>,
}

/// The samples of a directory, by name.
pub fn samples(directory: &Path) -> Result<Vec<PackingTrace>, TraceError> {
    let files = files_ending(directory, ".csv")?;
    let samples: Result<Vec<PackingTrace>, TraceError> = files.iter().map(sample).collect();
    let samples = samples?;
    if samples.is_empty() {
        let (path, format) = (directory.to_owned(), TraceFormat::Azure);
        return Err(TraceError::Empty { path, format });
    }
    Ok(samples)
}

fn sample(file: &TraceFile) -> Result<PackingTrace, TraceError> {
    let lines = file.lines()?;
    let mut requests = Vec::with_capacity(lines.len());
    for line in lines.iter().skip(1) {
        requests.push(request(line)?);
    }
    requests.sort_by(|(one, first), (other, second)| {
        one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)).then(first.end.cmp(&second.end))
    });
    Ok(PackingTrace {
        name: file.name.clone(),
        capacity: machine(),
        length: LENGTH,
        requests: requests.into_iter().map(|(_, request)| request).collect(),
    })
}

fn machine() -> Resources {
    size((CORES * PARTS).into(), (MEMORY * PARTS).into())
}

/// With what it is sorted by: when it was asked for, and its number.
fn request(line: &TraceLine<'_>) -> Result<((f64, u64), PackingRequest), TraceError> {
    let fields: Vec<&str> = line.text.split(',').map(str::trim).collect();
    let [id, _, cores, memory, _, begin, end] = fields[..] else {
        return Err(line.wrong(&format!("{} fields, of 7", fields.len())));
    };
    let number = |field: &str| {
        let number: f64 = field.parse().ok()?;
        (!number.is_nan()).then_some(number)
    };
    let wrong = |field: &str| line.wrong(&format!("{field:?} is not a number"));
    let amount = |field: &str, most: u32| -> Result<u64, TraceError> {
        let fits = |amount: &f64| (0.0..=f64::from(most)).contains(amount);
        let amount = number(field)
            .filter(fits)
            .ok_or_else(|| line.wrong(&format!("{field:?} is not an amount that a machine has")))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounded above"
        )]
        let parts = (amount * f64::from(PARTS)).ceil() as u64;
        Ok(parts)
    };
    let id: u64 = id.parse().map_err(|_| wrong(id))?;
    let (begin, end) =
        (number(begin).ok_or_else(|| wrong(begin))?, number(end).ok_or_else(|| wrong(end))?);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let at = |days: f64| Millis((days.max(0.0) * DAY_MS) as u64);
    let request = PackingRequest {
        begin: at(begin),
        end: end.is_finite().then(|| at(end)),
        size: size(amount(cores, CORES)?, amount(memory, MEMORY)?),
    };
    Ok(((begin, id), request))
}

impl PackingRow {
    pub fn replay(sample: &PackingTrace, hourly_moves: usize, at: &mut dyn FnMut(Millis)) -> Self {
        let packed = packing::replay(sample, hourly_moves, at);
        let PackingResult { peak, peak_bound, in_use, bound, moves } = packed;
        let length = u128::from(sample.length.0.max(1));
        #[expect(clippy::cast_precision_loss, reason = "one place of it is shown")]
        let mean = |sum: u128| (sum * 1_000 / length) as f64 / 1_000.0;
        #[expect(clippy::cast_precision_loss, reason = "four places")]
        let ratio = packed.ratio() as f64 / 10_000.0;
        Self {
            sample: sample.name.clone(),
            requests: sample.requests.len(),
            hourly_moves,
            moves,
            peak,
            peak_bound,
            mean: mean(in_use),
            mean_bound: mean(bound),
            ratio,
        }
    }
}

impl PackingFacts {
    pub const HEADS: [&str; 9] = [
        "sample",
        "requests",
        "moves an hour",
        "moves",
        "peak",
        "bound",
        "mean in use",
        "mean bound",
        "ratio",
    ];

    pub fn rows(&self) -> impl Iterator<Item = [String; 9]> {
        self.rows.iter().map(|row| {
            [
                row.sample.clone(),
                row.requests.to_string(),
                row.hourly_moves.to_string(),
                row.moves.to_string(),
                row.peak.to_string(),
                row.peak_bound.to_string(),
                format!("{:.1}", row.mean),
                format!("{:.1}", row.mean_bound),
                format!("{:.4}", row.ratio),
            ]
        })
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let heads = Self::HEADS.map(str::to_owned);
        let mut text = line(&heads) + &line(&heads.each_ref().map(|_| "---".to_owned()));
        self.rows().for_each(|row| text.push_str(&line(&row)));
        text
    }
}
