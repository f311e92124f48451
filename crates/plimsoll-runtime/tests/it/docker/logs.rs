use plimsoll_model::{ContainerSpec, Timestamp};
use plimsoll_runtime::{LogQuery, Output, Runtime};

use super::harness::{TestCell, sh};

#[tokio::test]
async fn both_outputs_are_kept_with_their_times() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.run("echo out; sleep 0.1; echo err >&2; sleep 0.1; printf 'un ended'").await;
    cell.exit(&tag).await;
    let mut logs = cell.runtime.logs(&tag, LogQuery::default()).await.unwrap();
    let mut found = Vec::new();
    while let Some(line) = logs.next().await {
        found.push(line.unwrap());
    }
    let texts: Vec<_> = found.iter().map(|line| (line.from, line.text.as_slice())).collect();
    let expected: [(Output, &[u8]); 3] =
        [(Output::Stdout, b"out"), (Output::Stderr, b"err"), (Output::Stdout, b"un ended")];
    assert_eq!(texts, expected);
    assert!(found.is_sorted_by_key(|line| line.at) && found[0].at > Timestamp(1_700_000_000_000));

    let tail = LogQuery { tail: Some(1), ..LogQuery::default() };
    assert_eq!(cell.lines(&tag, tail).await, ["un ended"]);
    let since = LogQuery { since: Some(found[1].at), ..LogQuery::default() };
    assert_eq!(cell.lines(&tag, since).await, ["err", "un ended"]);
    let both = LogQuery { since: Some(found[1].at), tail: Some(3), follow: false };
    assert_eq!(cell.lines(&tag, both).await, ["err", "un ended"]);
    let none = LogQuery { tail: Some(0), ..LogQuery::default() };
    assert_eq!(cell.lines(&tag, none).await, [""; 0]);
    let error = cell.runtime.logs(&cell.tag(2), LogQuery::default()).await.unwrap_err();
    let expected =
        format!("cannot read the logs of {}-web-1 g2: not found on this node", cell.name);
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_follower_hears_on_until_the_container_ends() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.run("for i in 1 2 3; do echo $i; sleep 0.1; done").await;
    let follow = LogQuery { follow: true, ..LogQuery::default() };
    assert_eq!(cell.lines(&tag, follow).await, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_terminal_prints_lines_as_well() {
    let Some(cell) = TestCell::new() else { return };
    let script = "test -t 1 && echo terminal; echo second >&2; printf third";
    let spec = ContainerSpec { tty: Some(true), ..sh(script) };
    assert_eq!(cell.output(spec).await, ["terminal", "second", "third"]);
}

#[tokio::test]
async fn a_line_that_never_ends_is_cut() {
    let Some(cell) = TestCell::new() else { return };
    let found = cell.output(sh("head -c 40000 /dev/zero | tr '\\0' 'x'")).await;
    assert!(found.iter().all(|line| line.bytes().all(|byte| byte == b'x')));
    assert_eq!(found.iter().map(String::len).sum::<usize>(), 40_000);
}
