//! Breaks inputs: a few changes each, from single bits to whole passages that are repeated, moved, or come from another input.

use std::ops::Range;

use crate::dice::Dice;

/// No input gets longer than this: what is longer is refused by its length, and reading it takes the time of many.
pub(crate) const LONGEST: usize = 128 << 10;

/// A passage is repeated so often at most: nesting and lists that grow out of hand.
const REPEATS: usize = 600;

/// Changes to one input.
const CHANGES: usize = 6;

/// Numbers at which arithmetic breaks, as they are written.
const NUMBERS: [&[u8]; 10] = [
    b"0",
    b"-1",
    b"255",
    b"65536",
    b"2147483648",
    b"4294967296",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1e999",
    b"0x7fffffff",
];

/// The same as they stand in binary inputs.
const BINARY: [u64; 7] = [0, 1, 0x7f, 0x7fff_ffff, 0xffff_ffff, u64::MAX - 1, u64::MAX];

/// Makes broken inputs of a corpus.
#[derive(Debug)]
pub struct Mutator<'a> {
    dice: Dice,
    corpus: &'a [Vec<u8>],
    words: &'a [&'static [u8]],
}

impl<'a> Mutator<'a> {
    pub fn new(seed: u64, corpus: &'a [Vec<u8>], words: &'a [&'static [u8]]) -> Self {
        Self { dice: Dice::new(seed), corpus, words }
    }

    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.dice.pick(self.corpus).cloned().unwrap_or_default();
        for _ in 0..=self.dice.below(CHANGES) {
            self.change(&mut input);
            input.truncate(LONGEST);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let dice = &mut self.dice;
        let at = dice.below(input.len() + 1);
        match dice.below(12) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
            1 => {
                let new = dice.byte();
                if let Some(byte) = input.get_mut(at) {
                    *byte = new;
                }
            }
            2 => drop(input.drain(passage(dice, input.len()))),
            3 => input.truncate(at),
            4 => {
                let noise: Vec<u8> = (0..dice.below(16)).map(|_| dice.byte()).collect();
                input.splice(at..at, noise);
            }
            5 | 6 => {
                if let Some(word) = dice.pick(self.words) {
                    input.splice(at..at, word.iter().copied());
                }
            }
            7 => {
                let moved = input[passage(dice, input.len())].to_vec();
                input.splice(at..at, moved);
            }
            8 => {
                let repeated = input[passage(dice, input.len())].repeat(dice.below(REPEATS));
                input.splice(at..at, repeated.into_iter().take(LONGEST));
            }
            9 => {
                let other = dice.pick(self.corpus).map_or(&[][..], Vec::as_slice);
                let taken = other[passage(dice, other.len())].to_vec();
                input.splice(passage(dice, input.len()), taken);
            }
            10 => {
                let number = dice.pick(&NUMBERS).copied().unwrap_or_default();
                input.splice(digits(input, at), number.iter().copied());
            }
            _ => {
                let number = dice.pick(&BINARY).copied().unwrap_or_default();
                let width = *dice.pick(&[1, 2, 4, 8]).unwrap_or(&1);
                let bytes = if dice.coin() { number.to_le_bytes() } else { number.to_be_bytes() };
                for (byte, new) in input.iter_mut().skip(at).zip(bytes.into_iter().take(width)) {
                    *byte = new;
                }
            }
        }
    }
}

/// A part of so many bytes, mostly a short one.
fn passage(dice: &mut Dice, length: usize) -> Range<usize> {
    let from = dice.below(length + 1);
    let most = if dice.coin() { 24 } else { length - from };
    from..from + dice.below((length - from).min(most) + 1)
}

/// The number that stands at or after this place; where there is none, the place itself.
fn digits(input: &[u8], at: usize) -> Range<usize> {
    let Some(first) = input[at..].iter().position(u8::is_ascii_digit) else { return at..at };
    let from = at + first;
    let length = input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    from..from + length
}
