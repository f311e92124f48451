//! Questions and answers as they travel (RFC 1035). Only what a resolver of service names needs is read here; what is
//! anything else is passed on to others as it came.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: usize = 63;

const ADDRESS: u16 = 1;
const INTERNET: u16 = 1;

/// The place of the question's name, right after the header, for answers that mean the same one.
const SAME_NAME: [u8; 2] = 0xc00c_u16.to_be_bytes();

/// How long an answer may be kept, in seconds. Addresses of services stay, but services come and go.
const KEPT: u32 = 30;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// In lower case, without the last point.
    pub(crate) name: String,
    /// Whether it is for an address that we could give.
    pub(crate) is_for_address: bool,
    /// Where it ends in the message.
    end: usize,
}

/// What is answered without asking others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Address(Ipv4Addr),
    /// There is such a name, and nothing of the kind that was asked for.
    Nothing,
    /// Ask somebody else.
    Refused,
    Failed,
}

impl Answer {
    fn code(self) -> u8 {
        match self {
            Self::Address(_) | Self::Nothing => 0,
            Self::Failed => 2,
            Self::Refused => 5,
        }
    }
}

/// The question of a message; none if it is no plain question.
pub(crate) fn question(message: &[u8]) -> Option<Question> {
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
    let is_for_address = kind == ADDRESS && class == INTERNET;
    Some(Question { name, is_for_address, end: at + 4 })
}

/// The name that begins there, and where it ends. A question has no name before it that it could point to.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        let label = message.get(at..at + length)?;
        if length > LONGEST_LABEL || name.len() + length >= LONGEST_NAME || !label.is_ascii() {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
        at += length;
    }
}

/// The answer to a message with this question.
pub(crate) fn answer(message: &[u8], question: &Question, answer: Answer) -> Vec<u8> {
    /// It is an answer, we know it for certain, and would ask others.
    const ANSWERS: u8 = 0b1000_0100;
    const WOULD_ASK: u8 = 0b1000_0000;
    let wants_others_asked = message[2] & 1;
    let count = u8::from(matches!(answer, Answer::Address(_)));
    let mut text = Vec::with_capacity(question.end + 16);
    text.extend_from_slice(&message[..2]);
    text.extend([ANSWERS | wants_others_asked, WOULD_ASK | answer.code()]);
    text.extend([0, 1, 0, count, 0, 0, 0, 0]);
    text.extend_from_slice(&message[HEADER..question.end]);
    if let Answer::Address(address) = answer {
        text.extend(SAME_NAME);
        text.extend(ADDRESS.to_be_bytes());
        text.extend(INTERNET.to_be_bytes());
        text.extend(KEPT.to_be_bytes());
        text.extend([0, 4]);
        text.extend(address.octets());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question as a common resolver sends it.
    fn asked(name: &str, kind: u16) -> Vec<u8> {
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
        let question = question(&asked("DB.Shop", 1)).unwrap();
        assert_eq!((question.name.as_str(), question.is_for_address), ("db.shop", true));
        let question = super::question(&asked("db", 28)).unwrap();
        assert!(!question.is_for_address);
    }

    #[test]
    fn what_is_no_plain_question_is_left_to_others() {
        let whole = asked("db", 1);
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
        assert_eq!(question(&asked(&["a"; 200].join("."), 1)), None, "far too long");
    }

    #[test]
    fn an_answer_repeats_the_question_and_gives_the_address() {
        let (message, given) = (asked("db", 1), Ipv4Addr::new(10, 208, 1, 4));
        let question = question(&message).unwrap();
        let text = answer(&message, &question, Answer::Address(given));
        assert_eq!(text[..4], [0xab, 0xcd, 0x85, 0x80]);
        assert_eq!(text[4..12], [0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(text[12..20], message[12..]);
        assert_eq!(text[20..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 10, 208, 1, 4]);
    }

    #[test]
    fn an_answer_without_an_address_has_its_code() {
        let message = asked("db", 28);
        let question = question(&message).unwrap();
        for (given, code) in [(Answer::Nothing, 0), (Answer::Failed, 2), (Answer::Refused, 5)] {
            let text = answer(&message, &question, given);
            assert_eq!((text[3] & 15, text[7], text.len()), (code, 0, message.len()));
        }
    }
}
