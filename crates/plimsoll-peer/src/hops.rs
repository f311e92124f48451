//! Headers that must not travel on: those about one connection, and ours from whoever is not of the cell.
//!
//! `Connection` names headers that end with the connection. Whoever sends it could so take away what the next node goes by,
//! so it can never name a header of ours or the token.

use hyper::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// What every header of ours begins with. Names are in lower case once they are read.
const OURS: &str = "plimsoll-";

/// About one connection, whether or not `Connection` says so.
const HOPS: [HeaderName; 9] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Whether nodes say things to each other with it: who asks, what they may, who leads.
pub fn is_ours(name: &HeaderName) -> bool {
    name.as_str().starts_with(OURS)
}

/// The first header named by `Connection` that must not be: one of ours, or the token.
pub fn misnamed(headers: &HeaderMap) -> Option<HeaderName> {
    named(headers).find(is_kept)
}

/// Takes out all that is about one connection, and what `Connection` names besides the token and ours.
pub fn strip_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = named(headers).filter(|name| !is_kept(name)).collect();
    for name in named.iter().chain(&HOPS) {
        headers.remove(name);
    }
}

/// Takes out every header of ours.
pub fn strip_ours(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// For what goes to another node: that has a host of its own.
pub(super) fn strip_for_forwarding(headers: &mut HeaderMap) {
    strip_hops(headers);
    headers.remove(HOST);
}

fn is_kept(name: &HeaderName) -> bool {
    *name == AUTHORIZATION || is_ours(name)
}

fn named(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let values = headers.get_all(CONNECTION).iter();
    // Byte by byte: a value that is not text may name something all the same.
    let words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.filter_map(|word| HeaderName::from_bytes(word.trim_ascii()).ok())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    /// A name as somebody might send it, in any case: ours, the token, about the connection, or anything.
    fn names() -> impl Strategy<Value = String> {
        let known = prop::sample::select(vec![
            "plimsoll-identity",
            "plimsoll-role",
            "plimsoll-leader-at",
            "plimsoll-",
            "authorization",
            "connection",
            "keep-alive",
            "te",
            "upgrade",
            "transfer-encoding",
            "proxy-authorization",
            "accept",
            "x-plimsoll-role",
        ]);
        let name = prop_oneof![known.prop_map(str::to_owned), "[a-z][a-z-]{0,12}"];
        (name, any::<u64>()).prop_map(|(name, upper)| {
            let letters = name.chars().enumerate();
            let letter = |(at, letter): (usize, char)| match upper >> (at % 64) & 1 {
                1 => letter.to_ascii_uppercase(),
                _ => letter,
            };
            letters.map(letter).collect()
        })
    }

    /// Headers with duplicates, and lists in `Connection` with blanks and empty parts.
    fn headers() -> impl Strategy<Value = HeaderMap> {
        let list = prop::collection::vec((names(), "[ \t]{0,2}"), 0..4);
        let list = list.prop_map(|words| {
            let words = words.into_iter().map(|(word, blank)| format!("{blank}{word}{blank}"));
            ("connection".to_owned(), words.collect::<Vec<_>>().join(","))
        });
        let plain = (names(), "[a-z, ]{0,8}");
        prop::collection::vec(prop_oneof![list, plain], 0..12).prop_map(|all| {
            let mut headers = HeaderMap::new();
            for (name, value) in all {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                headers.append(name, HeaderValue::from_str(&value).unwrap());
            }
            headers
        })
    }

    proptest! {
        #[test]
        fn nothing_of_ours_and_nothing_about_the_connection_is_left(sent in headers()) {
            let mut left = sent.clone();
            strip_hops(&mut left);
            let tokens = |headers: &HeaderMap| headers.get_all(AUTHORIZATION).iter().count();
            prop_assert_eq!(tokens(&left), tokens(&sent), "no header takes the token away");
            let ours = |headers: &HeaderMap| headers.iter().filter(|(name, _)| is_ours(name)).count();
            prop_assert_eq!(ours(&left), ours(&sent), "nor what a server says");
            strip_ours(&mut left);
            prop_assert!(left.keys().all(|name| !is_ours(name)), "{:?}", left);
            prop_assert!(HOPS.iter().all(|hop| !left.contains_key(hop)), "{:?}", left);
            for name in named(&sent).filter(|name| !is_kept(name)) {
                prop_assert!(!left.contains_key(&name), "{} of {:?}", name, sent);
            }
            prop_assert_eq!(misnamed(&sent).is_some(), named(&sent).any(|name| is_kept(&name)));
            let again = { let mut again = left.clone(); strip_hops(&mut again); strip_ours(&mut again); again };
            prop_assert_eq!(again, left);
        }
    }

    #[test]
    fn what_must_stay_cannot_be_named() {
        for (value, found) in [
            ("close", None),
            ("keep-alive, x-trace", None),
            ("Authorization", Some("authorization")),
            ("close , PLIMSOLL-role", Some("plimsoll-role")),
            (",,\tplimsoll-identity\t,", Some("plimsoll-identity")),
        ] {
            let headers = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static(value))]);
            let named = misnamed(&headers);
            assert_eq!(named.as_ref().map(HeaderName::as_str), found, "{value:?}");
        }
    }
}
