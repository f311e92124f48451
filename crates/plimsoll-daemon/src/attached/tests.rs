use plimsoll_model::testkit::replica_id;
use plimsoll_model::{CellId, ContainerSpec, Generation};
use plimsoll_runtime::{FakeRuntime, StartRequest};
use tokio::io::DuplexStream;

use super::*;

/// The other end of a stream in which a command runs on a fake runtime, which prints what it is sent.
struct Person {
    stream: DuplexStream,
    buffer: FrameBuffer,
}

impl Person {
    async fn with(start: Option<ExecStart>) -> Self {
        let cell_id = CellId::new("test").unwrap();
        let tag = Tag {
            cell_id: cell_id.clone(),
            replica: replica_id("shop/web/1"),
            generation: Generation(1),
        };
        let runtime = FakeRuntime::new(cell_id);
        let spec = Arc::new(ContainerSpec::default());
        runtime.start(&StartRequest::new(tag.clone(), spec)).await.unwrap();
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        tokio::spawn(serve(Arc::new(runtime), tag, theirs));
        let mut person = Self { stream: ours, buffer: FrameBuffer::default() };
        if let Some(start) = start {
            person.send(&ExecInput::Start(start)).await;
        }
        person
    }

    async fn send(&mut self, input: &ExecInput) {
        self.stream.write_all(&input.encode()).await.unwrap();
    }

    async fn next(&mut self) -> Option<ExecEvent> {
        let mut piece = [0; 100];
        loop {
            if let Some(event) = self.buffer.next_frame().unwrap() {
                return Some(event);
            }
            match self.stream.read(&mut piece).await.unwrap() {
                0 => return None,
                read => self.buffer.push(&piece[..read]),
            }
        }
    }
}

fn start(terminal: Option<TerminalSize>) -> ExecStart {
    let command = vec!["cat".to_owned()];
    ExecStart { command, timeout_seconds: None, has_input: true, terminal }
}

#[tokio::test]
async fn what_is_sent_in_comes_out_and_then_the_status() {
    let mut person = Person::with(Some(start(None))).await;
    person.send(&ExecInput::Bytes(b"one".to_vec())).await;
    assert_eq!(person.next().await, Some(ExecEvent::Stdout(b"one".to_vec())));
    person.send(&ExecInput::Bytes(b"two".to_vec())).await;
    person.send(&ExecInput::End).await;
    assert_eq!(person.next().await, Some(ExecEvent::Stdout(b"two".to_vec())));
    assert_eq!(person.next().await, Some(ExecEvent::Ended { status: Some(0) }));
    assert_eq!(person.next().await, None, "nothing comes after its end");
}

#[tokio::test]
async fn a_terminal_has_its_size_and_a_signal_reaches_the_command() {
    let size = |rows, columns| TerminalSize { rows, columns };
    let mut person = Person::with(Some(start(Some(size(24, 80))))).await;
    assert_eq!(person.next().await, Some(ExecEvent::Stdout(b"24x80\n".to_vec())));
    person.send(&ExecInput::Resize(size(50, 132))).await;
    assert_eq!(person.next().await, Some(ExecEvent::Stderr(b"50x132\n".to_vec())));
    person.send(&ExecInput::Signal(ExecSignal::Interrupt)).await;
    assert_eq!(person.next().await, Some(ExecEvent::Ended { status: Some(130) }));
}

#[tokio::test]
async fn a_stream_that_begins_with_something_else_is_told_so() {
    let nothing = ExecStart { command: Vec::new(), ..start(None) };
    for (case, first) in
        [("it does not begin", ExecInput::End), ("it runs nothing", ExecInput::Start(nothing))]
    {
        let mut person = Person::with(None).await;
        person.send(&first).await;
        assert!(matches!(person.next().await, Some(ExecEvent::Failed(_))), "{case}");
        assert_eq!(person.next().await, None, "{case}");
    }
}
