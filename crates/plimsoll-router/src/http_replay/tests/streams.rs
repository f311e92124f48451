//! Byte streams of many kinds, in pieces, between answers of many kinds and losses at any time.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::harness::Step;

/// What happens on a connection; with each step whether it is relayed before the next.
pub(super) fn script() -> impl Strategy<Value = Vec<(Step, bool)>> {
    let stream = stream().prop_flat_map(pieces);
    let answers = vec(answer().prop_flat_map(pieces), 1..4);
    let choices = vec((0..20_u8, 1..3_000_u64, prop::bool::weighted(0.8)), 1..20);
    (stream, any::<bool>(), answers, choices).prop_map(|(stream, is_first, answers, choices)| {
        let (mut stream, mut answers) = (stream.into_iter(), answers.into_iter().flatten());
        let mut steps = Vec::new();
        if is_first {
            steps.extend(stream.by_ref().map(|piece| (Step::Client(piece), true)));
        }
        for (choice, number, is_settled) in choices {
            let step = match choice {
                0..6 => stream.next().map(Step::Client),
                6..12 => answers.next().map(Step::Answer),
                12 => Some(Step::End),
                13 | 14 => Some(Step::Reset),
                15 | 16 => Some(Step::Wait(number * 4)),
                17 => Some(Step::ClientTakes(usize::try_from(number).expect("it is small") / 40)),
                18 => Some(Step::ClientTakes(usize::MAX)),
                _ if number < 1_000 => Some(Step::ClientResets),
                _ => Some(Step::ClientEnds),
            };
            steps.extend(step.map(|step| (step, is_settled)));
        }
        // All of it is sent in the end, and lost.
        steps.extend(stream.map(|piece| (Step::Client(piece), true)));
        steps.push((Step::Reset, true));
        steps
    })
}

/// The bytes, cut anywhere.
fn pieces(bytes: Vec<u8>) -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(any::<Index>(), 0..4).prop_map(move |cuts| {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut rest, mut from, mut pieces) = (bytes.as_slice(), 0, Vec::new());
        for cut in cuts {
            let (piece, after) = rest.split_at(cut - from);
            pieces.push(piece.to_vec());
            (rest, from) = (after, cut);
        }
        pieces.push(rest.to_vec());
        pieces.retain(|piece| !piece.is_empty());
        pieces
    })
}

fn text(parts: &[&str]) -> Vec<u8> {
    parts.concat().into_bytes()
}

/// One safe request.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let field = ("[A-Za-z-]{1,12}", "[ -~\t]{0,20}")
        .prop_map(|(name, value)| format!("{name}:{value}\r\n"));
    let fields = vec(field, 0..5).prop_map(|fields| fields.concat());
    let method = select(vec!["GET", "HEAD", "OPTIONS"]);
    (method, "/[a-z?=%&]{0,10}", select(vec!["1.0", "1.1"]), fields).prop_map(
        |(method, target, version, fields)| {
            text(&[method, " ", &target, " HTTP/", version, "\r\n", &fields, "\r\n"])
        },
    )
}

/// What a client may send, whole.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => request(),
        6 => (request(), vec(edit(), 1..5)).prop_map(|(bytes, edits)| edited(bytes, &edits)),
        2 => vec(any::<u8>(), 0..200),
        2 => (request(), request()).prop_map(|(one, other)| [one, other].concat()),
        2 => (request(), vec(any::<u8>(), 1..9)).prop_map(|(one, other)| [one, other].concat()),
        4 => (request(), framing(), any::<Option<[u8; 4]>>()).prop_map(|(request, field, body)| {
            [with_field(&request, field), body.map_or_else(Vec::new, Vec::from)].concat()
        }),
        2 => other_method(),
        2 => newlines(),
        1 => request().prop_map(|request| [b"\r\n", request.as_slice()].concat()),
        1 => long(),
        2 => select(openings()).prop_map(<[u8]>::to_vec),
    ]
}

/// Fields that make a request more than its head, or that a lenient reader may take for such a field.
fn framing() -> impl Strategy<Value = &'static str> {
    select(vec![
        "Content-Length: 4",
        "content-length: 0",
        "Content-Length: 4\r\nContent-Length: 5",
        "CONTENT-LENGTH: 4, 4",
        "Content-Length: many",
        "Content-Length : 4",
        "Content-Length:",
        " Content-Length: 4",
        "X: a\r\n Content-Length: 4",
        "X: a\nContent-Length: 4",
        "Transfer-Encoding: chunked",
        "transfer-encoding: identity",
        "Transfer-Encoding\t: chunked",
        "Upgrade: websocket\r\nConnection: upgrade",
        "Expect: 100-continue",
        "X: \0",
        "X",
        ": a",
    ])
}

/// The request with one more line, behind its first.
fn with_field(request: &[u8], field: &str) -> Vec<u8> {
    let first = request.windows(2).position(|two| two == b"\r\n").expect("it has lines") + 2;
    [&request[..first], field.as_bytes(), b"\r\n", &request[first..]].concat()
}

fn other_method() -> impl Strategy<Value = Vec<u8>> {
    let method =
        select(vec!["POST", "PUT", "DELETE", "PATCH", "CONNECT", "TRACE", "get", "GETS", "PRI"]);
    (method, request()).prop_map(|(method, request)| {
        let rest = request.iter().position(|byte| *byte == b' ').expect("it has words");
        [method.as_bytes(), &request[rest..]].concat()
    })
}

/// A request with other ends of lines: all of them, or one.
fn newlines() -> impl Strategy<Value = Vec<u8>> {
    let end = select(vec!["\n", "\r", "\n\r", "\r\r\n", "\r\n\n"]);
    (request(), end, any::<Option<Index>>()).prop_map(|(request, end, only)| {
        let lines = String::from_utf8(request).expect("it is ASCII");
        let mut lines: Vec<&str> = lines.split("\r\n").collect();
        // Nothing follows the last end.
        lines.pop();
        let only = only.map(|only| only.index(lines.len()));
        let ends = (0..lines.len())
            .map(|at| if only.is_none_or(|only| only == at) { end } else { "\r\n" });
        let lines = lines.iter().zip(ends).flat_map(|(line, end)| [*line, end]);
        lines.collect::<String>().into_bytes()
    })
}

/// Requests about as long as is replayed, and with about as many fields.
fn long() -> impl Strategy<Value = Vec<u8>> {
    let head = "GET / HTTP/1.1\r\n";
    prop_oneof![
        (8_150..8_220_usize).prop_map(move |length| text(&[
            head,
            "A:",
            &"x".repeat(length - 22),
            "\r\n\r\n"
        ])),
        (60..70_usize).prop_map(move |count| text(&[head, &"A: b\r\n".repeat(count), "\r\n"])),
        Just(vec![b'A'; 100_000]),
        Just(text(&["GET /", &"a".repeat(100_000)])),
    ]
}

/// How clients of other protocols begin.
fn openings() -> Vec<&'static [u8]> {
    vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\nGET / HTTP/1.1\r\n\r\n",
        b"EHLO mail.example\r\n",
        b"GET key\r\n\r\n",
        b"get key\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET /\r\n\r\n",
        b"HEAD\r\n\r\n",
        b"OPTIONS rtsp://camera/ RTSP/1.0\r\nCSeq: 1\r\n\r\n",
    ]
}

#[derive(Debug, Clone)]
enum Edit {
    Insert(Index, u8),
    Delete(Index),
    Flip(Index, u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    let byte = prop_oneof![any::<u8>(), select(b"\r\n\0 :\t/".to_vec())];
    prop_oneof![
        (any::<Index>(), byte).prop_map(|(at, byte)| Edit::Insert(at, byte)),
        any::<Index>().prop_map(Edit::Delete),
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, 1 << bit)),
    ]
}

fn edited(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        let length = bytes.len();
        match edit {
            Edit::Insert(at, byte) => bytes.insert(at.index(length + 1), *byte),
            Edit::Delete(at) => drop(bytes.remove(at.index(length))),
            Edit::Flip(at, bits) => bytes[at.index(length)] ^= bits,
        }
    }
    bytes
}

/// What an upstream may answer.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0..40_usize, 16_300..16_400_usize];
    let (status, sent) = (
        select(vec!["200 OK", "404 Not Found", "304 Not Modified", "204 x", "100 Continue"]),
        0..50_usize,
    );
    prop_oneof![
        4 => (status, length, sent).prop_map(|(status, length, sent)| {
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            let sent = if length > 100 { length - 25 + sent } else { sent };
            text(&[&head, &"b".repeat(sent)])
        }),
        1 => select(vec![
            "HTTP/1.0 200 OK\r\n\r\nall of it",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nok",
            "+PONG\r\n",
            "HTTP",
            "HTTP/2",
        ]).prop_map(|answer| answer.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..100),
        1 => Just(text(&["HTTP/1.1 200 OK\r\nA: ", &"x".repeat(20_000)])),
    ]
}
