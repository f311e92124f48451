//! Whatever a client sends and however its upstreams fail: bytes are relayed at once, and only one whole safe request is ever
//! sent twice. Both are checked against a second reading of RFC 9112, by splitting lines.

use proptest::prelude::*;

use harness::{Connection, Step, UPSTREAMS, run};
use streams::script;

mod harness;
mod oracle;
mod streams;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HALF: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn after(steps: &[Step]) -> Connection {
    let steps: Vec<(Step, bool)> = steps.iter().map(|step| (step.clone(), true)).collect();
    run(&steps)
}

fn client(bytes: &[u8]) -> Step {
    Step::Client(bytes.to_vec())
}

fn answer(bytes: &[u8]) -> Step {
    Step::Answer(bytes.to_vec())
}

#[test]
fn a_lost_request_goes_to_another_upstream_and_that_ones_answer_to_the_client() {
    for loss in [Step::End, Step::Reset] {
        let steps = [client(&GET[..7]), client(&GET[7..]), answer(HALF), loss, answer(WHOLE)];
        let connection = after(&steps);
        assert_eq!(connection.sent(), [GET, GET], "{steps:?}");
        assert_eq!(connection.given(), WHOLE, "{steps:?}");
    }
}

#[test]
fn a_part_of_an_answer_is_held_for_four_seconds_from_its_first_byte() {
    for (case, steps, given) in [
        ("a little less", vec![answer(HALF), Step::Wait(3_999)], &b""[..]),
        ("four seconds", vec![answer(HALF), Step::Wait(4_000)], HALF),
        (
            "a drip",
            vec![answer(&HALF[..9]), Step::Wait(3_600), answer(&HALF[9..]), Step::Wait(400)],
            HALF,
        ),
    ] {
        assert_eq!(after(&[vec![client(GET)], steps].concat()).given(), given, "{case}");
    }
    let cut = after(&[client(GET), answer(HALF), Step::Wait(4_000), Step::Reset]);
    assert_eq!(cut.sent(), [GET], "an answer that has begun is not begun again");
}

#[test]
fn without_another_upstream_the_client_gets_what_the_last_one_said() {
    for (loss, is_regular) in [(Step::End, true), (Step::Reset, false)] {
        let mut steps = vec![client(GET)];
        for _ in 0..UPSTREAMS {
            steps.extend([answer(HALF), loss.clone()]);
        }
        let connection = after(&steps);
        assert_eq!((connection.given(), connection.ended()), (HALF.to_vec(), Some(is_regular)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_but_one_whole_safe_request_is_held_back_or_sent_twice(steps in script()) {
        run(&steps);
    }
}
