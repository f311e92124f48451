//! The one string that an operator is given: where the cell is found, by what its authority is known, and the secret. Who
//! pastes it needs nothing else, and a part of it is told from one that was mistyped.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::authority::Fingerprint;
use super::base32::{self, CHECK, Garbled};
use super::token::{OPERATOR_BYTES, OperatorToken};

const PREFIX: &str = "pll_";

/// The one form there is.
const VERSION: u8 = 1;

/// Where the payload begins: behind the version and the length of the payload.
const HEADER: usize = 3;

/// As many authorities as a cell has while it replaces one, and then some.
const MAX_FINGERPRINTS: usize = 4;

/// The most addresses that a string names: each takes forty characters of it, and one that answers is enough.
pub const MAX_ADDRESSES: usize = 5;

const FINGERPRINT: usize = 32;

/// Whole groups of base 32 are of so many bytes.
const GROUP: usize = 5;

/// Why a text is not a login. It never repeats the text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidLogin {
    #[error("there is no login string")]
    Empty,
    #[error(
        "this is not a login string: those begin with {PREFIX}, as `plimsoll token create` prints them"
    )]
    Prefix,
    #[error(
        "the login string is cut off: it has {found} characters and should have {expected}; copy all of it"
    )]
    Cut { found: usize, expected: usize },
    #[error(
        "the login string has {found} characters and should have {expected}: something was pasted twice or behind it"
    )]
    Long { found: usize, expected: usize },
    #[error("the login string is cut off: it has {found} characters; copy all of it")]
    Short { found: usize },
    #[error("the login string has {found:?} as its character {at}, which none has")]
    Character { found: char, at: usize },
    #[error("the login string is mistyped: its check does not fit")]
    Mistyped,
    #[error(
        "the login string is of another version of plimsoll; upgrade this one, or make another with it"
    )]
    Version,
}

/// What the string holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub token: OperatorToken,
    /// Of the authorities that the cell's nodes may have their certificates from.
    pub fingerprints: Vec<Fingerprint>,
    /// Where the API of some nodes listens, `host:port`; none where no node's does.
    pub addresses: Vec<String>,
}

impl Login {
    /// Of these, as many as there is room for.
    pub fn new(
        token: OperatorToken,
        fingerprints: impl IntoIterator<Item = Fingerprint>,
        addresses: impl IntoIterator<Item = String>,
    ) -> Self {
        let fits = |address: &String| !address.is_empty() && u8::try_from(address.len()).is_ok();
        Self {
            token,
            fingerprints: fingerprints.into_iter().take(MAX_FINGERPRINTS).collect(),
            addresses: addresses.into_iter().filter(fits).take(MAX_ADDRESSES).collect(),
        }
    }

    /// Whether a text means to be one.
    pub fn is_meant(text: &str) -> bool {
        text.trim().get(..PREFIX.len()).is_some_and(|it| it.eq_ignore_ascii_case(PREFIX))
    }

    fn payload(&self) -> Vec<u8> {
        let count = |len: usize| u8::try_from(len).expect("there are few");
        let mut bytes = self.token.as_bytes().to_vec();
        bytes.push(count(self.fingerprints.len()));
        self.fingerprints.iter().for_each(|print| bytes.extend(print.as_bytes()));
        bytes.push(count(self.addresses.len()));
        for address in &self.addresses {
            bytes.push(count(address.len()));
            bytes.extend(address.as_bytes());
        }
        bytes
    }

    fn read(payload: &[u8]) -> Option<Self> {
        let mut rest = payload;
        let token = OperatorToken::from_bytes(*rest.split_off(..OPERATOR_BYTES)?.first_chunk()?);
        let mut fingerprints = Vec::new();
        for _ in 0..*rest.split_off_first()? {
            let print = rest.split_off(..FINGERPRINT)?.first_chunk()?;
            fingerprints.push(Fingerprint::from_bytes(*print));
        }
        let mut addresses = Vec::new();
        for _ in 0..*rest.split_off_first()? {
            let len = usize::from(*rest.split_off_first()?);
            let address = std::str::from_utf8(rest.split_off(..len)?).ok()?;
            addresses.push(address.to_owned());
        }
        Some(Self { token, fingerprints, addresses })
    }
}

/// The whole string: whoever prints it means to.
impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.payload();
        let len = u16::try_from(payload.len()).expect("it has a few hundred bytes");
        let mut bytes = vec![VERSION];
        bytes.extend(len.to_be_bytes());
        bytes.extend(payload);
        bytes.resize(whole(bytes.len()) - CHECK, 0);
        write!(f, "{PREFIX}{}", base32::encode(PREFIX, &bytes))
    }
}

/// How many bytes there are with the check, in whole groups.
fn whole(bytes: usize) -> usize {
    (bytes + CHECK).next_multiple_of(GROUP)
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("fingerprints", &self.fingerprints)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl FromStr for Login {
    type Err = InvalidLogin;
    fn from_str(text: &str) -> Result<Self, InvalidLogin> {
        // A terminal may have broken the line where it was copied.
        let text: String = text.split_whitespace().collect();
        if text.is_empty() {
            return Err(InvalidLogin::Empty);
        }
        if !Self::is_meant(&text) {
            return Err(InvalidLogin::Prefix);
        }
        let encoded = &text[PREFIX.len()..];
        let all = base32::decode_groups(encoded).map_err(|garbled| match garbled {
            Garbled::Character { found, at } => {
                InvalidLogin::Character { found, at: PREFIX.len() + at + 1 }
            }
            Garbled::Length { .. } | Garbled::Check => InvalidLogin::Mistyped,
        })?;
        let found = text.len();
        let [version, high, low, ..] = all[..] else { return Err(InvalidLogin::Short { found }) };
        // Filled up with what was not there, the beginning would be read as something else.
        if encoded.len() < base32::chars_of(GROUP - CHECK) {
            return Err(InvalidLogin::Short { found });
        }
        if version != VERSION {
            return Err(InvalidLogin::Version);
        }
        let len = usize::from(u16::from_be_bytes([high, low]));
        let expected = PREFIX.len() + base32::chars_of(whole(HEADER + len) - CHECK);
        match found.cmp(&expected) {
            std::cmp::Ordering::Less => return Err(InvalidLogin::Cut { found, expected }),
            std::cmp::Ordering::Greater => return Err(InvalidLogin::Long { found, expected }),
            std::cmp::Ordering::Equal => {}
        }
        let bytes = base32::checked(PREFIX, &all).map_err(|_| InvalidLogin::Mistyped)?;
        let payload = bytes.get(HEADER..HEADER + len).ok_or(InvalidLogin::Mistyped)?;
        Self::read(payload).ok_or(InvalidLogin::Mistyped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(addresses: &[&str]) -> Login {
        let prints = [Fingerprint::of(b"blue"), Fingerprint::of(b"next")];
        let addresses = addresses.iter().map(|&address| address.to_owned());
        Login::new(OperatorToken::new().unwrap(), prints, addresses)
    }

    #[test]
    fn a_login_holds_the_secret_the_authorities_and_the_addresses() {
        for addresses in [&[][..], &["10.0.0.1:7654"], &["ash:7654", "[fd00::2]:7654", "a:1"]] {
            let login = login(addresses);
            let text = login.to_string();
            assert_eq!(text.parse(), Ok(login.clone()), "{text}");
            assert_eq!(text.to_uppercase().parse(), Ok(login.clone()));
            let broken = format!("  {}\n  {}\n", &text[..40], &text[40..]);
            assert_eq!(broken.parse(), Ok(login.clone()), "as a terminal breaks it");
            assert!(!format!("{login:?}").contains(&text[12..30]));
        }
        let many: Vec<String> = (0..9).map(|nth| format!("10.0.0.{nth}:7654")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(login(&many).addresses.len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_part_of_a_login_is_told_from_a_mistyped_one_and_neither_is_repeated() {
        let text = login(&["10.0.0.1:7654"]).to_string();
        for len in 4..text.len() {
            let error = text[..len].parse::<Login>().unwrap_err();
            assert!(error.to_string().contains("cut off"), "{len}: {error}");
            assert!(len < 20 || !error.to_string().contains(&text[8..20]));
        }
        for at in 4..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'7' { b'8' } else { b'7' };
            let wrong = String::from_utf8(wrong).unwrap();
            assert!(wrong.parse::<Login>().is_err(), "{at}");
        }
        let last = if text.ends_with('7') { '8' } else { '7' };
        let wrong = format!("{}{last}", &text[..text.len() - 1]);
        assert_eq!(wrong.parse::<Login>(), Err(InvalidLogin::Mistyped));
        for (wrong, error) in [
            ("", InvalidLogin::Empty),
            ("plo_abc", InvalidLogin::Prefix),
            ("hunter2", InvalidLogin::Prefix),
        ] {
            assert_eq!(wrong.parse::<Login>(), Err(error));
        }
        let doubled = format!("{text}{text}");
        let error = doubled.parse::<Login>().unwrap_err();
        assert!(matches!(
            error,
            InvalidLogin::Character { found: '_', .. } | InvalidLogin::Long { .. }
        ));
    }
}
