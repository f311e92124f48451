//! What can go wrong on a host or a wire, drawn by chance; how it begins and how it is made good.

use std::fmt;
use std::time::Duration;

use plimsoll_lab::{LabRng, NAMES};

use crate::harness::Cell;

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The daemon crashes; what it runs does not.
    Crash(usize),
    /// The daemon is stopped as a service manager would.
    Restart(usize),
    /// The whole host loses its power.
    PowerCut(usize),
    /// The daemon stands still.
    Pause(usize),
    CutOff(usize),
    Cut(usize, usize),
    CutOneWay(usize, usize),
    Delay(usize, usize, Duration),
    Lose(usize, usize, u8),
}

impl Fault {
    pub(super) fn draw(chance: &mut LabRng, nodes: usize) -> Self {
        let at = chance.below(nodes);
        let other = (at + 1 + chance.below(nodes - 1)) % nodes;
        match chance.below(9) {
            0 => Self::Crash(at),
            1 => Self::Restart(at),
            2 => Self::PowerCut(at),
            3 => Self::Pause(at),
            4 => Self::CutOff(at),
            5 => Self::Cut(at, other),
            6 => Self::CutOneWay(at, other),
            7 => Self::Delay(at, other, Duration::from_millis(chance.between(20, 400))),
            _ => Self::Lose(at, other, u8::try_from(chance.between(5, 60)).unwrap()),
        }
    }

    pub(super) fn begin(self, cell: &mut Cell) {
        match self {
            Self::Crash(at) => cell.kill(at),
            Self::Restart(at) => cell.stop(at),
            Self::PowerCut(at) => cell.switch_off(at),
            Self::Pause(at) => cell.daemon(at).pause().unwrap(),
            Self::CutOff(at) => cell.lab().isolate(at),
            Self::Cut(a, b) => cell.lab().cut(a, b),
            Self::CutOneWay(from, to) => cell.lab().cut_one_way(from, to),
            Self::Delay(a, b, by) => cell.lab().delay(a, b, by),
            Self::Lose(a, b, percent) => cell.lab().lose(a, b, percent),
        }
    }

    pub(super) fn end(self, cell: &mut Cell) {
        match self {
            Self::Crash(at) | Self::Restart(at) => cell.launch(at, None),
            Self::PowerCut(at) => {
                cell.lab().host(at).switch_on().unwrap();
                cell.launch(at, None);
            }
            Self::Pause(at) => cell.daemon(at).resume().unwrap(),
            Self::CutOff(_)
            | Self::Cut(..)
            | Self::CutOneWay(..)
            | Self::Delay(..)
            | Self::Lose(..) => cell.lab().heal_all(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Crash(at) => write!(f, "{} crashes", NAMES[at]),
            Self::Restart(at) => write!(f, "{} is restarted", NAMES[at]),
            Self::PowerCut(at) => write!(f, "{} loses its power", NAMES[at]),
            Self::Pause(at) => write!(f, "{} stands still", NAMES[at]),
            Self::CutOff(at) => write!(f, "{} is cut off", NAMES[at]),
            Self::Cut(a, b) => write!(f, "{} and {} are cut", NAMES[a], NAMES[b]),
            Self::CutOneWay(from, to) => write!(f, "{} cannot reach {}", NAMES[from], NAMES[to]),
            Self::Delay(a, b, by) => {
                write!(f, "{} and {} are {by:?} apart", NAMES[a], NAMES[b])
            }
            Self::Lose(a, b, percent) => {
                write!(f, "{percent}% between {} and {} is lost", NAMES[a], NAMES[b])
            }
        }
    }
}
