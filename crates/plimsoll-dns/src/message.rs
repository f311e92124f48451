//! DNS messages on the wire (RFC 1035). Only what a resolver of service names needs is parsed; all else is forwarded to
//! other name servers unchanged.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: usize = 63;

const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;

/// A pointer to the question's name, which follows the header.
const NAME_POINTER: [u8; 2] = 0xc00c_u16.to_be_bytes();

/// How long an answer may be cached, in seconds. Virtual IPs stay the same, but services come and go.
const TTL: u32 = 30;

/// The question of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DnsQuestion {
    /// In lower case, without the trailing dot.
    pub(crate) name: String,
    /// Whether it asks for an IPv4 address.
    pub(crate) is_for_address: bool,
    /// The offset of its end in the message.
    end: usize,
}

/// An answer of our own, without another name server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DnsAnswer {
    Address(Ipv4Addr),
    /// The name exists and has no record of this type.
    NoRecord,
    /// The client should ask another name server.
    Refused,
    Failed,
}

impl DnsAnswer {
    fn code(self) -> u8 {
        match self {
            Self::Address(_) | Self::NoRecord => 0,
            Self::Failed => 2,
            Self::Refused => 5,
        }
    }
}

/// The question of a message; none if it is not a standard query with one question.
pub(crate) fn question(message: &[u8]) -> Option<DnsQuestion> {
    let header = message.get(..HEADER)?;
    let is_query = header[2] & 0b1111_1000 == 0;
    let count = u16::from_be_bytes([header[4], header[5]]);
    if !is_query || count != 1 {
        return None;
    }
    let (name, at) = name(message, HEADER)?;
    let rest = message.get(at..at + 4)?;
    let kind = u16::from_be_bytes([rest[0], rest[1]]);
    let class = u16::from_be_bytes([rest[2], rest[3]]);
    let is_for_address = kind == TYPE_A && class == CLASS_IN;
    Some(DnsQuestion { name, is_for_address, end: at + 4 })
}

/// The name that begins at this offset, and the offset of its end. A compressed name is refused: no name comes before the
/// first question that it could point to.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        let label = message.get(at..at + length)?;
        if !name.is_empty() {
            name.push('.');
        }
        if length > LONGEST_LABEL || name.len() + length >= LONGEST_NAME || !label.is_ascii() {
            return None;
        }
        name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
        at += length;
    }
}

/// The answer to a message with this question.
pub(crate) fn answer(message: &[u8], question: &DnsQuestion, answer: DnsAnswer) -> Vec<u8> {
    /// A response (QR) that is authoritative (AA), from a server that offers recursion (RA).
    const RESPONSE: u8 = 0b1000_0100;
    const RECURSION_AVAILABLE: u8 = 0b1000_0000;
    let recursion_desired = message[2] & 1;
    let count = u8::from(matches!(answer, DnsAnswer::Address(_)));
    let mut text = Vec::with_capacity(question.end + 16);
    text.extend_from_slice(&message[..2]);
    text.extend([RESPONSE | recursion_desired, RECURSION_AVAILABLE | answer.code()]);
    text.extend([0, 1, 0, count, 0, 0, 0, 0]);
    text.extend_from_slice(&message[HEADER..question.end]);
    if let DnsAnswer::Address(address) = answer {
        text.extend(NAME_POINTER);
        text.extend(TYPE_A.to_be_bytes());
        text.extend(CLASS_IN.to_be_bytes());
        text.extend(TTL.to_be_bytes());
        text.extend([0, 4]);
        text.extend(address.octets());
    }
    text
}

#[cfg(test)]
mod tests {
    use plimsoll_fuzz::Fuzz;

    use super::*;

    /// A query as a common stub resolver sends it.
    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut text = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            text.push(u8::try_from(label.len()).unwrap());
            text.extend(label.as_bytes());
        }
        text.push(0);
        text.extend(kind.to_be_bytes());
        text.extend([0, 1]);
        text
    }

    #[test]
    fn a_question_is_read_in_lower_case() {
        let question = question(&query("DB.Shop", 1)).unwrap();
        assert_eq!((question.name.as_str(), question.is_for_address), ("db.shop", true));
        let question = super::question(&query("db", 28)).unwrap();
        assert!(!question.is_for_address);
    }

    #[test]
    fn a_message_that_is_not_a_standard_query_is_forwarded() {
        let whole = query("db", 1);
        for length in 0..whole.len() {
            assert_eq!(question(&whole[..length]), None, "cut to {length}");
        }
        let changed = |at: usize, byte: u8| {
            let mut text = whole.clone();
            text[at] = byte;
            text
        };
        assert_eq!(question(&changed(2, 0x81)), None, "an answer");
        assert_eq!(question(&changed(2, 0x28)), None, "an update");
        assert_eq!(question(&changed(5, 2)), None, "two questions");
        assert_eq!(question(&changed(12, 0xc0)), None, "a pointer");
        assert_eq!(question(&changed(13, 0xff)), None, "no letter");
        assert_eq!(question(&query(&["a"; 200].join("."), 1)), None, "far too long");
    }

    #[test]
    fn no_broken_message_breaks_the_resolver() {
        let fuzz = Fuzz::new("dns").input(query("db", 1)).input(query("www.shop.example", 28));
        fuzz.run(|message| {
            let Some(question) = question(message) else { return };
            assert!(question.name.len() < LONGEST_NAME && question.end <= message.len());
            for given in [DnsAnswer::Address(Ipv4Addr::LOCALHOST), DnsAnswer::Refused] {
                let text = answer(message, &question, given);
                assert_eq!(text[HEADER..question.end], message[HEADER..question.end]);
                assert!(text.len() <= question.end + 16, "no more than one record");
            }
        });
    }

    #[test]
    fn an_answer_repeats_the_question_and_has_the_address() {
        let (message, given) = (query("db", 1), Ipv4Addr::new(10, 208, 1, 4));
        let question = question(&message).unwrap();
        let text = answer(&message, &question, DnsAnswer::Address(given));
        assert_eq!(text[..4], [0xab, 0xcd, 0x85, 0x80]);
        assert_eq!(text[4..12], [0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(text[12..20], message[12..]);
        assert_eq!(text[20..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 10, 208, 1, 4]);
    }

    #[test]
    fn an_answer_without_an_address_has_its_response_code() {
        let message = query("db", 28);
        let question = question(&message).unwrap();
        for (given, code) in
            [(DnsAnswer::NoRecord, 0), (DnsAnswer::Failed, 2), (DnsAnswer::Refused, 5)]
        {
            let text = answer(&message, &question, given);
            assert_eq!((text[3] & 15, text[7], text.len()), (code, 0, message.len()));
        }
    }
}
