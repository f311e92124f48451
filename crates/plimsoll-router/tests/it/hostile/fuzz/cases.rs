//! Broken requests: some that are whole, and what chance makes of them.

use plimsoll_fuzz::Dice;

/// Requests of many kinds. What must not be found by an upstream is in their bodies and fields.
const CORPUS: [&str; 23] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /x?y=/../z HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://a/b HTTP/1.1\r\nHost: c\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 41\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\nX: yyy\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 4\r\n\r\n21\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=\"\r\n\"\r\nabc\r\n0\r\nTrailer: x\r\nContent-Length: 9\r\n\r\n",
    "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
    "PUT /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: host, content-length, close\r\nContent-Length: 0\r\n\r\n",
    "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.9.9.9\r\nForwarded: for=10.9.9.9\r\nX_Forwarded_For: 10.9.9.9\r\n\r\n",
    "GET /a/%2e%2e/b HTTP/1.1\r\nHost: a\r\nX: y\r\n folded\r\n\r\nGET //c HTTP/1.1\r\nHost: a\r\n\r\n",
    "PROXY TCP4 10.0.0.9 10.0.0.1 4444 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "PROXY UNKNOWN\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    "\r\n\r\n\0\r\nQUIT\n!\u{11}\0\u{c}\n\0\0\t\n\0\0\u{1}\u{11}\\\0PGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0\0\0\u{6}\u{1}\u{5}\0\0\0\u{1}\u{1}\u{1}a",
];

/// What is put in anywhere.
const WORDS: [&str; 30] = [
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "0\r\n\r\n",
    "\r\n\r\n",
    "\u{b}",
    "\u{7f}",
    "\u{ff}",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: +5\r\n",
    "content-length:-1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding:\u{b}chunked\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Host: b\r\n",
    "Connection: transfer-encoding\r\n",
    "%2e%2e/",
    "//",
    "ffffffffffffffff\r\n",
    "HTTP/1.1",
    "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    " HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// A sequence of cases that a seed determines.
pub(super) struct Cases(Dice);

impl Cases {
    pub(super) fn new(seed: u64) -> Self {
        Self(Dice::new(seed))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn sample(&mut self) -> Vec<u8> {
        let at = self.below(CORPUS.len());
        // Letters beyond ASCII stand for bytes.
        CORPUS[at].chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect()
    }

    /// One case, in the pieces that it is sent in.
    pub(super) fn next_pieces(&mut self) -> Vec<Vec<u8>> {
        let mut bytes = self.sample();
        if self.below(4) == 0 {
            bytes.extend(self.sample());
        }
        for _ in 0..self.below(4) {
            self.mutate(&mut bytes);
        }
        let mut pieces = Vec::new();
        for _ in 0..self.below(3) {
            let rest = bytes.split_off(self.below(bytes.len() + 1));
            pieces.push(std::mem::replace(&mut bytes, rest));
        }
        pieces.push(bytes);
        pieces
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let (from, to) = (self.below(bytes.len() + 1), self.below(bytes.len() + 1));
        let (from, to) = (from.min(to), from.max(to));
        match self.below(8) {
            0 if from < bytes.len() => bytes[from] ^= 1 << self.below(8),
            1 if from < bytes.len() => bytes[from] = u8::try_from(self.below(256)).unwrap(),
            2 => drop(bytes.drain(from..to.min(from + 16))),
            3 => {
                let again = bytes[from..to].to_vec();
                bytes.splice(to..to, again);
            }
            4 => {
                let other = self.sample();
                let at = self.below(other.len());
                bytes.splice(from..to, other[at..].iter().copied());
            }
            5 => {
                let many = [0, 9, 100, 70_000][self.below(4)];
                bytes.splice(from..from, std::iter::repeat_n(b'x', many));
            }
            _ => {
                let word = WORDS[self.below(WORDS.len())];
                let word: Vec<u8> =
                    word.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect();
                bytes.splice(from..from, word);
            }
        }
    }
}
