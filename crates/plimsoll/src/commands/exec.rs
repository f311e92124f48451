//! `plimsoll exec`: runs a command beside a replica, and ends as it does.

use std::io::{IsTerminal, Read, Write};

use plimsoll_api::client::{ExecSender, ExecSession};
use plimsoll_api::exec_stream::{ExecEvent, ExecInput, ExecSignal, ExecStart, PIECE};
use plimsoll_api::view::{Replica, Status};
use plimsoll_model::Millis;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::age::length;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::written;
use crate::replica_line::ReplicaLine;
use crate::subject;

mod terminal;

use terminal::RawTerminal;

const EXAMPLES: &str = "\
Examples:
  plimsoll exec shop-web-2 -- cat /etc/hostname
  plimsoll exec shop/web -- env                       in the first of its replicas that runs
  plimsoll exec -it shop-db-1 -- psql shop            at a terminal
  plimsoll exec -i shop-db-1 -- psql shop < dump.sql  with input
  plimsoll exec shop-db-1 --timeout 5m -- pg_dump shop > dump.sql

The exit code is that of the command. Without -i it finds its input empty. Signals are passed on to it.";

/// Pieces of input that were read and wait to be sent.
const AHEAD: usize = 2;

/// Run a command in a replica.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A replica (shop-web-2), or a service (shop/web)
    #[arg(value_name = "REPLICA|SERVICE")]
    subject: String,
    /// Pass standard input on to the command
    #[arg(short, long)]
    interactive: bool,
    /// Run the command on a terminal, of the size of this one
    #[arg(short, long)]
    tty: bool,
    /// Time limit, such as 90s or 10m
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    timeout: Option<Millis>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    check_input(args)?;
    let client = args.host.client()?;
    let status = live::block_on(async {
        let status = client.status().await?;
        let replica = running(&status, &args.subject)?;
        let start = ExecStart {
            command: args.command.clone(),
            timeout_seconds: args.timeout.map(|length| length.0.div_ceil(1_000)),
            has_input: args.interactive,
            terminal: args.tty.then(terminal::size),
        };
        let session = client.attach(&replica.id, &start).await?;
        // From here on keys go to the command. The terminal is as it was however this ends.
        let _raw = (args.tty && args.interactive).then(RawTerminal::begin).transpose()?;
        follow(args, session).await
    })?;
    match status {
        Some(0) => Ok(()),
        Some(code) => Err(CliError::passed_on(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
        None => Err(CliError::failed("it took too long and was killed")
            .hint("give it longer with `--timeout`")),
    }
}

/// Refuses what would be dropped: input that nobody passes on, and a terminal where there is none.
fn check_input(args: &Args) -> Result<(), CliError> {
    let input = std::io::stdin();
    if args.tty && args.interactive && !input.is_terminal() {
        let refused = CliError::refused("the input is not a terminal, and `-t` needs one");
        return Err(refused.hint("leave out `-t` to pass the input on as it is"));
    }
    if !args.interactive && terminal::has_input(&input) {
        let refused =
            CliError::refused("there is input, and without `-i` the command would not get it");
        return Err(refused.hint("add `-i`, or give it none with `< /dev/null`"));
    }
    Ok(())
}

/// Passes everything on until the command ends; its status.
async fn follow(args: &Args, mut session: ExecSession) -> Result<Option<i32>, CliError> {
    let (input, signals) = (session.input(), session.input());
    let (has_input, has_terminal) = (args.interactive, args.tty);
    tokio::select! {
        ended = print(&mut session) => ended,
        never = async {
            tokio::join!(read(input, has_input), pass_signals(signals, has_terminal)).0
        } => never,
    }
}

async fn print(session: &mut ExecSession) -> Result<Option<i32>, CliError> {
    while let Some(event) = session.next().await? {
        match event {
            // As it was printed: it may be anything.
            ExecEvent::Stdout(bytes) => {
                let mut out = std::io::stdout().lock();
                written(out.write_all(&bytes).and_then(|()| out.flush()))?;
            }
            ExecEvent::Stderr(bytes) => written(std::io::stderr().lock().write_all(&bytes))?,
            ExecEvent::Ended { status } => return Ok(status),
            ExecEvent::Failed(problem) => {
                return Err(plimsoll_api::client::Error::Problem(*problem).into());
            }
        }
    }
    let lost = CliError::failed("the connection ended before the command did");
    Err(lost.hint("whether it is done is not known: look before you run it again"))
}

/// Sends what is read, as it comes. Never ends by itself: the command does.
async fn read(to: ExecSender, has_input: bool) -> Result<Option<i32>, CliError> {
    let (sender, mut pieces) = mpsc::channel(AHEAD);
    if has_input {
        // A thread of its own, which ends with the process: a read cannot be called off, and nobody waits for it.
        std::thread::spawn(move || {
            let mut input = std::io::stdin().lock();
            let mut piece = vec![0; PIECE];
            loop {
                let read = input.read(&mut piece).map(|read| piece[..read].to_vec());
                let is_last = read.as_ref().map_or(true, Vec::is_empty);
                if sender.blocking_send(read).is_err() || is_last {
                    return;
                }
            }
        });
    }
    while let Some(read) = pieces.recv().await {
        let bytes =
            read.map_err(|error| CliError::failed(format!("cannot read the input: {error}")))?;
        let next = if bytes.is_empty() { ExecInput::End } else { ExecInput::Bytes(bytes) };
        if !to.send(&next).await {
            break;
        }
    }
    std::future::pending().await
}

/// Signals go to the command, which may take them as it likes.
async fn pass_signals(to: ExecSender, has_terminal: bool) {
    let listen = |kind| signal(kind).ok();
    let mut resized = listen(SignalKind::window_change()).filter(|_| has_terminal);
    let mut all = [
        (ExecSignal::Interrupt, listen(SignalKind::interrupt())),
        (ExecSignal::Terminate, listen(SignalKind::terminate())),
        (ExecSignal::Hangup, listen(SignalKind::hangup())),
        (ExecSignal::Quit, listen(SignalKind::quit())),
        (ExecSignal::User1, listen(SignalKind::user_defined1())),
        (ExecSignal::User2, listen(SignalKind::user_defined2())),
    ];
    loop {
        let next = std::future::poll_fn(|cx| {
            if resized.as_mut().is_some_and(|it| it.poll_recv(cx).is_ready()) {
                return std::task::Poll::Ready(ExecInput::Resize(terminal::size()));
            }
            let mut caught = all.iter_mut().filter_map(|(signal, listener)| {
                listener.as_mut()?.poll_recv(cx).is_ready().then_some(*signal)
            });
            match caught.next() {
                Some(signal) => std::task::Poll::Ready(ExecInput::Signal(signal)),
                None => std::task::Poll::Pending,
            }
        });
        let next = next.await;
        if !to.send(&next).await {
            return std::future::pending().await;
        }
    }
}

/// The replica meant; of several, the first that runs.
fn running<'s>(status: &'s Status, text: &str) -> Result<&'s Replica, CliError> {
    let subject = subject::find(status, text)?;
    let is_running = |replica: &&&Replica| ReplicaLine::of(replica).state == "running";
    let replicas = subject.replicas();
    // One that was named is asked however it is: it may have been running a moment ago.
    let found = replicas.iter().find(is_running).or(match replicas.as_slice() {
        [one] => Some(one),
        _ => None,
    });
    found.copied().ok_or_else(|| {
        let name = subject.name();
        CliError::refused(format!("no replica of {name} runs"))
            .hint(format!("`plimsoll status {}` says why", subject.deployment().name))
    })
}
