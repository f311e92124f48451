use plimsoll_model::{Bytes, Timestamp};
use plimsoll_runtime::process::LogBounds;
use plimsoll_runtime::{LogQuery, Output, Runtime};

use crate::harness::{Host, sh, tag};

#[tokio::test]
async fn both_outputs_are_kept_with_their_times() {
    let host = Host::new().await;
    let tag = host.run("echo out; sleep 0.05; echo err >&2; sleep 0.05; printf unended").await;
    host.exit(&tag).await;
    let mut logs = host.runtime.logs(&tag, LogQuery::default()).await.unwrap();
    let mut found = Vec::new();
    while let Some(line) = logs.next().await {
        found.push(line.unwrap());
    }
    let texts: Vec<_> = found.iter().map(|line| (line.from, line.text.as_slice())).collect();
    let expected: [(Output, &[u8]); 3] =
        [(Output::Stdout, b"out"), (Output::Stderr, b"err"), (Output::Stdout, b"unended")];
    assert_eq!(texts, expected);
    assert!(found.is_sorted_by_key(|line| line.at) && found[0].at > Timestamp(1_700_000_000_000));

    let tail = LogQuery { tail: Some(1), ..LogQuery::default() };
    assert_eq!(host.lines(&tag, tail).await, ["unended"]);
    let since = LogQuery { since: Some(found[1].at), ..LogQuery::default() };
    assert_eq!(host.lines(&tag, since).await, ["err", "unended"]);
    let none = LogQuery { tail: Some(0), ..LogQuery::default() };
    assert_eq!(host.lines(&tag, none).await, [""; 0]);
}

#[tokio::test]
async fn a_burst_is_kept_within_its_bound() {
    let bounds = LogBounds { file_bytes: Bytes(1 << 20), files: 2 };
    let host = Host::with(|settings| settings.log = bounds).await;
    let script = "head -c 10485760 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo the end";
    let tag = host.run(script).await;
    host.exit(&tag).await;
    let size: u64 = std::fs::read_dir(host.file(1, "log"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= (2 << 20) + (64 << 10), "{size} bytes");
    let found = host.lines(&tag, LogQuery::default()).await;
    assert_eq!(found.last().unwrap(), "the end");
    assert!(found.len() > 8_000, "{} lines", found.len());
}

#[tokio::test]
async fn a_line_that_never_ends_is_cut() {
    let host = Host::new().await;
    let tag = host.run("head -c 40000 /dev/zero | tr '\\0' 'x'").await;
    host.exit(&tag).await;
    let lengths: Vec<usize> =
        host.lines(&tag, LogQuery::default()).await.iter().map(String::len).collect();
    assert_eq!(lengths, [16_384, 16_384, 7_232]);
}

#[tokio::test]
async fn a_follower_hears_on_until_the_service_ends() {
    let host = Host::new().await;
    let tag = host.run("for i in 1 2 3; do echo $i; sleep 0.05; done").await;
    let follow = LogQuery { follow: true, ..LogQuery::default() };
    assert_eq!(host.lines(&tag, follow).await, ["1", "2", "3"]);
}

#[tokio::test]
async fn logs_outlive_a_restart_of_the_same_generation() {
    let host = Host::new().await;
    for word in ["one", "two"] {
        let tag = host.start(1, sh(&format!("echo {word}"))).await;
        host.exit(&tag).await;
    }
    assert_eq!(host.printed(&tag(1)).await, ["one", "two"]);
    let error = host.runtime.logs(&tag(2), LogQuery::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot read the logs of shop-web-1 g2: not found on this node");
}
