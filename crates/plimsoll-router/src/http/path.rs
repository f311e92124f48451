//! Paths as they are matched: one spelling for each, so that the router and a service cannot differ about what is asked for.
//!
//! Letters, digits and `-._~` that were percent-encoded are decoded, which changes nothing (RFC 3986, 6.2.2.2), and slashes in
//! a row become one. Everything else that is encoded stays so, a slash above all. A percent sign that encodes nothing is
//! encoded itself: with what comes after it is decoded, it would begin to (`%%32e`). Dot segments are not resolved but refused:
//! clients resolve them before they ask, and services differ about which of their spellings counts.

use std::borrow::Cow;

/// The path has dot segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DotSegments;

/// The path in the spelling that routes are matched against. Most are in it already.
pub(super) fn resolved(path: &str) -> Result<Cow<'_, str>, DotSegments> {
    let is_resolved = !path.contains('%') && !path.contains("//");
    let path = if is_resolved { Cow::Borrowed(path) } else { Cow::Owned(respelt(path)) };
    if has_dot_segments(path.as_bytes()) { Err(DotSegments) } else { Ok(path) }
}

fn respelt(path: &str) -> String {
    let mut spelt = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let decoded = unreserved(rest.as_bytes());
        if let Some(letter) = decoded {
            spelt.push(letter);
            rest = &rest[3..];
            continue;
        }
        if first == '%' && !is_encoded(rest.as_bytes()) {
            spelt.push_str("%25");
        } else if !(first == '/' && spelt.ends_with('/')) {
            spelt.push(first);
        }
        rest = &rest[first.len_utf8()..];
    }
    spelt
}

/// Whether something is encoded at the beginning.
fn is_encoded(text: &[u8]) -> bool {
    matches!(text, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// The character that is encoded at the beginning, if it need not be.
fn unreserved(text: &[u8]) -> Option<char> {
    let &[b'%', high, low, ..] = text else { return None };
    let (high, low) = (char::from(high).to_digit(16)?, char::from(low).to_digit(16)?);
    let letter = char::from_u32(high * 16 + low)?;
    (letter.is_ascii_alphanumeric() || "-._~".contains(letter)).then_some(letter)
}

/// Whether a segment is `.` or `..`, also where a service would find that only after it has decoded a slash, taken a backslash
/// for one, or cut off parameters.
fn has_dot_segments(path: &[u8]) -> bool {
    // How many dots the segment has so far, while it has nothing else.
    let mut dots = Some(0);
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let is_separator = match first {
            b'/' | b'\\' => true,
            b'%' => after.get(..2).is_some_and(|hex| {
                hex.eq_ignore_ascii_case(b"2f") || hex.eq_ignore_ascii_case(b"5c")
            }),
            _ => false,
        };
        if (is_separator || *first == b';') && matches!(dots, Some(1 | 2)) {
            return true;
        }
        if is_separator {
            rest = if *first == b'%' { &after[2..] } else { after };
            dots = Some(0);
        } else {
            dots = dots.filter(|_| *first == b'.').map(|count: usize| count + 1);
        }
    }
    matches!(dots, Some(1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_in_its_spelling_is_not_copied() {
        for path in ["/", "/a/b.c/..d", "/.well-known/x", "*", ""] {
            assert!(matches!(resolved(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
        }
    }

    #[test]
    fn a_resolved_path_stays_as_it_is() {
        for path in
            ["//a%2Fb///c", "/%61%zz%2", "/%E2%82%AC", "/%2525", "/a;b=%2F", "/%%36a", "/%%%3261"]
        {
            let once = resolved(path).unwrap().into_owned();
            assert_eq!(resolved(&once).unwrap(), once, "{path}");
        }
    }

    #[test]
    fn what_is_decoded_does_not_begin_to_encode_something_else() {
        assert_eq!(resolved("/%%32e%%32e/secret").unwrap(), "/%252e%252e/secret");
        assert_eq!(resolved("/%2%65%2e").unwrap(), "/%252e.");
    }
}
