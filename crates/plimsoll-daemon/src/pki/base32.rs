//! Bytes as text that a person can read out and type: Crockford's base 32 in lower case. What looks alike is read
//! alike, and a check at the end tells a slip of the hand from a token that nobody knows.

use sha2::{Digest, Sha256};

/// No `i`, `l`, `o` or `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// One slip in sixteen million goes unnoticed, and then is an unknown token.
pub(super) const CHECK: usize = 3;

/// Five bytes are eight characters, so whole groups leave no bits over and a text has one meaning.
const GROUP: usize = 5;
const GROUP_CHARS: usize = 8;

/// Why a text holds no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Garbled {
    Length { found: usize },
    Character { found: char, at: usize },
    Check,
}

pub(super) const fn chars_of(bytes: usize) -> usize {
    (bytes + CHECK) / GROUP * GROUP_CHARS
}

/// The bytes and their check. Their number is such that both fill whole groups.
pub(super) fn encode(domain: &str, bytes: &[u8]) -> String {
    let mut all = bytes.to_vec();
    all.extend_from_slice(&check(domain, bytes));
    debug_assert_eq!(all.len() % GROUP, 0);
    let mut text = String::with_capacity(chars_of(bytes.len()));
    for group in all.chunks(GROUP) {
        let word = group.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        for at in (0..GROUP_CHARS).rev() {
            let digit = usize::try_from(word >> (5 * at) & 31).expect("five bits");
            text.push(char::from(ALPHABET[digit]));
        }
    }
    text
}

pub(super) fn decode<const N: usize>(domain: &str, text: &str) -> Result<[u8; N], Garbled> {
    let found = text.chars().count();
    let mut digits = Vec::with_capacity(chars_of(N));
    // A wrong character is looked for first: it explains more than the wrong length it often comes with.
    for (at, found) in text.chars().enumerate() {
        digits.push(digit(found).ok_or(Garbled::Character { found, at })?);
    }
    if found != chars_of(N) {
        return Err(Garbled::Length { found });
    }
    let mut all = Vec::with_capacity(N + CHECK);
    for group in digits.chunks(GROUP_CHARS) {
        let word = group.iter().fold(0_u64, |word, digit| word << 5 | u64::from(*digit));
        all.extend_from_slice(&word.to_be_bytes()[8 - GROUP..]);
    }
    let (bytes, given) = all.split_at(N);
    if given != check(domain, bytes) {
        return Err(Garbled::Check);
    }
    Ok(bytes.try_into().expect("it was split there"))
}

fn digit(found: char) -> Option<u8> {
    let found = match found.to_ascii_lowercase() {
        'o' => '0',
        'i' | 'l' => '1',
        other => other,
    };
    let at = ALPHABET.iter().position(|known| char::from(*known) == found)?;
    u8::try_from(at).ok()
}

fn check(domain: &str, bytes: &[u8]) -> [u8; CHECK] {
    let digest = Sha256::new().chain_update(domain).chain_update([0]).chain_update(bytes);
    let digest = digest.finalize();
    [digest[0], digest[1], digest[2]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_also_in_capitals_and_with_letters_for_digits() {
        let bytes: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7 % 256).unwrap());
        let text = encode("test", &bytes);
        assert_eq!(text.len(), chars_of(32));
        assert_eq!(decode::<32>("test", &text), Ok(bytes));
        assert_eq!(decode::<32>("test", &text.to_uppercase()), Ok(bytes));
        assert_eq!(decode::<32>("test", &text.replace('0', "O").replace('1', "l")), Ok(bytes));
        assert_eq!(decode::<32>("other", &text), Err(Garbled::Check));
    }

    #[test]
    fn any_single_wrong_character_and_any_swapped_pair_is_noticed() {
        let text = encode("test", &[0x5a; 32]);
        for at in 0..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'7' { b'8' } else { b'7' };
            let wrong = String::from_utf8(wrong).unwrap();
            assert_eq!(decode::<32>("test", &wrong), Err(Garbled::Check), "{at}");
            let mut swapped = text.clone().into_bytes();
            swapped.swap(at, (at + 1) % text.len());
            let swapped = String::from_utf8(swapped).unwrap();
            assert!(swapped == text || decode::<32>("test", &swapped) == Err(Garbled::Check));
        }
    }
}
