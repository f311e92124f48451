//! What a replica uses as time goes by: a function of time, or a recorded trace. Integers throughout, so that every
//! machine computes the same day.

use plimsoll_model::Millis;

/// What one replica of a service uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// In thousandths of a core.
    pub cpu: Shape,
    /// In bytes.
    pub memory: Shape,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    Constant(u64),
    /// From low to high and back once a period, smoothly.
    Wave {
        low: u64,
        high: u64,
        period: Millis,
    },
    /// One value a step, over and over.
    Trace {
        step: Millis,
        values: Vec<u64>,
    },
}

impl Usage {
    /// Whether it does not change between these times.
    pub(crate) fn is_steady(&self, from: Millis, to: Millis) -> bool {
        self.cpu.is_steady(from, to) && self.memory.is_steady(from, to)
    }
}

impl Shape {
    fn is_steady(&self, from: Millis, to: Millis) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::Wave { low, high, .. } => low == high,
            Self::Trace { step, .. } => {
                let step = step.0.max(1);
                let mut values = (from.0 / step..=to.0 / step).map(|n| self.at(Millis(n * step)));
                let first = values.next();
                values.all(|value| Some(value) == first)
            }
        }
    }

    pub fn at(&self, time: Millis) -> u64 {
        match self {
            Self::Constant(value) => *value,
            Self::Wave { low, high, period } => {
                let period = u128::from(period.0.max(2));
                let half = period / 2;
                let phase = u128::from(time.0) % period;
                let rise = if phase < half { phase } else { period - phase };
                // 3x² - 2x³ of the way up: a slope that starts and ends gently, without a sine.
                let x = (rise * 1_000 / half).min(1_000);
                let eased = (3_000 * x * x - 2 * x * x * x) / 1_000_000;
                let span = u128::from(high.saturating_sub(*low));
                low + u64::try_from(span * eased / 1_000).unwrap_or(0)
            }
            Self::Trace { step, values } => {
                if values.is_empty() {
                    return 0;
                }
                let at = time.0 / step.0.max(1) % values.len() as u64;
                values[usize::try_from(at).unwrap_or(0)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_goes_from_low_to_high_and_back() {
        let wave = Shape::Wave { low: 100, high: 900, period: Millis(1_000) };
        assert_eq!(
            [0, 250, 500, 750, 1_000].map(|t| wave.at(Millis(t))),
            [100, 500, 900, 500, 100]
        );
    }

    #[test]
    fn a_trace_starts_again_when_it_ends() {
        let trace = Shape::Trace { step: Millis(10), values: vec![1, 2, 3] };
        assert_eq!([0, 9, 10, 25, 30].map(|t| trace.at(Millis(t))), [1, 1, 2, 3, 1]);
    }
}
