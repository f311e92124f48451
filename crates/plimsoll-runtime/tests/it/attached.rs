//! Commands with somebody at the other end, the same on every runtime: input, a terminal, signals, and leaving.

use std::time::{Duration, Instant};

use plimsoll_model::ContainerSpec;
use plimsoll_runtime::{
    AttachInput, AttachRequest, AttachSignal, AttachStreams, ExecOutcome, ExecRequest, Output,
    Runtime, Tag, WindowSize,
};
use tokio::sync::mpsc;

use crate::docker::harness::{TestCell, idle};
use crate::harness::{Host, sh};

/// Far longer than anything here takes; only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_mins(1);

fn request(command: &[&str]) -> AttachRequest {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    AttachRequest { command, timeout: None, has_input: true, terminal: None }
}

fn shell(line: &str) -> AttachRequest {
    request(&["/bin/sh", "-c", line])
}

/// A command under way, and this end of it.
struct Session<'a> {
    input: Option<mpsc::Sender<AttachInput>>,
    output: mpsc::Receiver<(Output, Vec<u8>)>,
    ended: std::pin::Pin<Box<dyn Future<Output = ExecOutcome> + 'a>>,
    printed: String,
}

impl<'a> Session<'a> {
    fn begin(runtime: &'a dyn Runtime, tag: &'a Tag, request: &'a AttachRequest) -> Self {
        let (sender, input) = mpsc::channel(4);
        let (output, told) = mpsc::channel(4);
        let ended = async move {
            runtime.attach(tag, request, AttachStreams { input, output }).await.expect("it runs")
        };
        let ended = Box::pin(ended);
        Self { input: Some(sender), output: told, ended, printed: String::new() }
    }

    async fn send(&mut self, input: AttachInput) {
        let sender = self.input.clone().expect("it is open");
        tokio::select! {
            sent = sender.send(input) => sent.expect("it takes it"),
            outcome = &mut self.ended => panic!("it ended: {outcome:?}, {}", self.printed),
        }
    }

    /// Reads until this was printed.
    async fn until(&mut self, text: &str) {
        let begin = Instant::now();
        while !self.printed.contains(text) {
            tokio::select! {
                Some((_, bytes)) = self.output.recv() => {
                    self.printed.push_str(&String::from_utf8_lossy(&bytes));
                }
                outcome = &mut self.ended => panic!("it ended: {outcome:?}, {}", self.printed),
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
            assert!(begin.elapsed() < PATIENCE, "{text:?} is not in {:?}", self.printed);
        }
    }

    /// Its outcome, and what it printed until then.
    async fn end(mut self) -> (ExecOutcome, String) {
        let reading = async {
            while let Some((_, bytes)) = self.output.recv().await {
                self.printed.push_str(&String::from_utf8_lossy(&bytes));
            }
        };
        let both = async { tokio::join!(&mut self.ended, reading) };
        let (outcome, ()) = tokio::time::timeout(PATIENCE, both).await.expect("it ends");
        (outcome, self.printed)
    }
}

/// Ten million bytes, none like the next.
fn large() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..1_250_000).flat_map(|_| next()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    std::fs::write(file.path(), bytes).expect("it is written");
    let sum = std::process::Command::new("sha256sum").arg(file.path()).output().expect("it runs");
    String::from_utf8_lossy(&sum.stdout).split_whitespace().next().expect("a sum").to_owned()
}

async fn a_large_input_arrives_whole(runtime: &dyn Runtime, tag: &Tag) {
    let (bytes, request) = (large(), request(&["sha256sum"]));
    let mut session = Session::begin(runtime, tag, &request);
    for piece in bytes.chunks(30_000) {
        session.send(AttachInput::Bytes(piece.to_vec())).await;
    }
    session.send(AttachInput::End).await;
    let (outcome, printed) = session.end().await;
    assert_eq!(outcome, ExecOutcome::Done { status: 0 });
    assert_eq!(printed.split_whitespace().next(), Some(sha256(&bytes).as_str()));
}

async fn a_large_output_comes_whole_however_slowly_it_is_read(runtime: &dyn Runtime, tag: &Tag) {
    let request = shell(
        "i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567890123456789012345678; i=$((i+1)); done; echo oops >&2; exit 3",
    );
    let mut session = Session::begin(runtime, tag, &request);
    session.until("0123").await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let (outcome, printed) = session.end().await;
    assert_eq!(outcome, ExecOutcome::Done { status: 3 });
    assert_eq!(printed.len(), 4_000 * 50 + "oops\n".len(), "nothing is cut");
}

async fn without_input_there_is_none(runtime: &dyn Runtime, tag: &Tag) {
    let request = AttachRequest { has_input: false, ..shell("cat; echo over") };
    let session = Session::begin(runtime, tag, &request);
    assert_eq!(session.end().await, (ExecOutcome::Done { status: 0 }, "over\n".to_owned()));
}

async fn a_terminal_has_a_size_that_follows_and_keys_that_interrupt(
    runtime: &dyn Runtime,
    tag: &Tag,
) {
    let terminal = Some(WindowSize { rows: 31, columns: 77 });
    // Older engines give a terminal its size only once the command runs; until then stty complains of it.
    let line = "until [ \"$(stty size)\" = '31 77' ]; do sleep 0.1; done; stty size; trap 'stty size; echo resized' WINCH; \
                trap 'echo stopped; exit 9' INT; echo ready; while :; do sleep 0.1; done";
    let request = AttachRequest { terminal, ..shell(line) };
    let mut session = Session::begin(runtime, tag, &request);
    session.until("ready").await;
    assert!(session.printed.contains("31 77"), "{}", session.printed);
    session.send(AttachInput::Resize(WindowSize { rows: 40, columns: 132 })).await;
    session.until("resized").await;
    assert!(session.printed.contains("40 132"), "{}", session.printed);
    session.send(AttachInput::Bytes(vec![3])).await;
    let (outcome, printed) = session.end().await;
    assert_eq!(outcome, ExecOutcome::Done { status: 9 }, "{printed}");
    assert!(printed.contains("stopped"), "{printed}");
}

async fn a_signal_reaches_the_command(runtime: &dyn Runtime, tag: &Tag) {
    let line = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let request = shell(line);
    let mut session = Session::begin(runtime, tag, &request);
    session.until("ready").await;
    session.send(AttachInput::Signal(AttachSignal::Terminate)).await;
    let (outcome, printed) = session.end().await;
    assert_eq!(outcome, ExecOutcome::Done { status: 7 }, "{printed}");
}

async fn who_leaves_takes_the_command_along(runtime: &dyn Runtime, tag: &Tag) {
    // No other test has this one's number.
    let seconds = 100_000 + std::process::id();
    let request = shell(&format!("echo ready; exec sleep {seconds}"));
    let mut session = Session::begin(runtime, tag, &request);
    session.until("ready").await;
    session.input = None;
    let (outcome, _) = session.end().await;
    assert_eq!(outcome, ExecOutcome::Done { status: 137 });
    let begin = Instant::now();
    loop {
        // The brackets keep whoever looks from being found.
        let (first, rest) = (&seconds.to_string()[..1], &seconds.to_string()[1..]);
        let look = format!(
            "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep [{first}]{rest} '"
        );
        let look = ExecRequest::shell(&look);
        let left = runtime.exec(tag, &look).await.expect("it runs");
        if String::from_utf8_lossy(&left.stdout).trim() == "0" {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "it still runs");
    }
}

async fn what_cannot_be_run_says_so(runtime: &dyn Runtime, tag: &Tag) {
    let request = request(&["/no/such/program"]);
    let (outcome, printed) = Session::begin(runtime, tag, &request).end().await;
    let ExecOutcome::Done { status } = outcome else { panic!("{outcome:?}") };
    assert!(matches!(status, 126 | 127) && !printed.is_empty(), "{status}: {printed}");
    let timeout = Some(Duration::from_millis(300));
    let request = AttachRequest { timeout, ..shell("sleep 614") };
    assert_eq!(Session::begin(runtime, tag, &request).end().await.0, ExecOutcome::TimedOut);
}

/// Each on a process and on a container.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_processes {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                let host = Host::new().await;
                let tag = host.start(1, sleeper()).await;
                super::$name(&host.runtime, &tag).await;
            })*
        }

        mod on_containers {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                let Some(cell) = TestCell::new() else { return };
                let tag = cell.start(1, idle()).await;
                super::$name(&cell.runtime, &tag).await;
            })*
        }
    };
}

fn sleeper() -> ContainerSpec {
    sh("exec sleep 600")
}

on_both!(
    a_large_input_arrives_whole,
    a_large_output_comes_whole_however_slowly_it_is_read,
    without_input_there_is_none,
    a_terminal_has_a_size_that_follows_and_keys_that_interrupt,
    a_signal_reaches_the_command,
    who_leaves_takes_the_command_along,
    what_cannot_be_run_says_so,
);
