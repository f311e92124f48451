//! Bytes as text that a person can read out and type: Crockford's base 32 in lower case. What looks alike is read
//! alike, and a check at the end tells a slip of the hand from a token that nobody knows.

use std::sync::LazyLock;

use data_encoding::{DecodeKind, Encoding, Specification};
use sha2::{Digest, Sha256};

/// No `i`, `l`, `o` or `u`.
static CROCKFORD: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("0123456789abcdefghjkmnpqrstvwxyz");
    specification.translate.from.push_str("ABCDEFGHJKMNPQRSTVWXYZoOiIlL");
    specification.translate.to.push_str("abcdefghjkmnpqrstvwxyz001111");
    specification.encoding().expect("32 symbols, and each is read in one way")
});

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
    CROCKFORD.encode(&all)
}

/// A text of whole groups, where a last one that was cut is filled up.
pub(super) fn decode_groups(text: &str) -> Result<Vec<u8>, Garbled> {
    let mut groups = text.as_bytes().to_vec();
    groups.resize(text.len().next_multiple_of(GROUP_CHARS), b'0');
    CROCKFORD.decode(&groups).map_err(|error| {
        let found = text.get(error.position..).and_then(|rest| rest.chars().next());
        match found.filter(|_| error.kind == DecodeKind::Symbol) {
            Some(found) => Garbled::Character { found, at: error.position },
            None => Garbled::Length { found: text.chars().count() },
        }
    })
}

pub(super) fn decode<const N: usize>(domain: &str, text: &str) -> Result<[u8; N], Garbled> {
    // A wrong character is looked for first: it explains more than the wrong length it often comes with.
    let all = decode_groups(text)?;
    if text.len() != chars_of(N) {
        return Err(Garbled::Length { found: text.len() });
    }
    let bytes = checked(domain, &all[..N + CHECK])?;
    Ok(bytes.try_into().expect("it has as many"))
}

/// The bytes before their check, if that fits.
pub(super) fn checked<'a>(domain: &str, all: &'a [u8]) -> Result<&'a [u8], Garbled> {
    let at = all.len().saturating_sub(CHECK);
    let (bytes, given) = all.split_at(at);
    if given == check(domain, bytes) { Ok(bytes) } else { Err(Garbled::Check) }
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
    fn a_wrong_character_explains_more_than_a_wrong_length() {
        let text = encode("test", &[0x5a; 32]);
        let character = |found, at| Garbled::Character { found, at };
        for (case, text, expected) in [
            ("one too few", text[1..].to_owned(), Garbled::Length { found: text.len() - 1 }),
            (
                "a whole group more",
                format!("{text}00000000"),
                Garbled::Length { found: text.len() + 8 },
            ),
            ("nothing", String::new(), Garbled::Length { found: 0 }),
            ("a letter that is none", format!("u{}", &text[1..]), character('u', 0)),
            ("beyond ASCII", format!("{}ö{}", &text[..3], &text[4..]), character('ö', 3)),
            ("a blank, and too long", format!("{text} "), character(' ', text.len())),
        ] {
            assert_eq!(decode::<32>("test", &text), Err(expected), "{case}");
        }
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
