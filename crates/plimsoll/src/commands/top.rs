//! `plimsoll top`: the cell in a terminal, as it changes. What is shown and what keys do is settled in [`state`] and drawn by
//! [`draw`]; here is the terminal, and [`feed`] asks the daemon.

use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::commands::status::EndSignals;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::terminal::Target;
use crate::wait::now;

mod bar;
mod cells;
mod draw;
mod feed;
mod list;
mod state;

use feed::Report;
use state::{Next, Question, TopState};

/// Ages are shown to the second.
const TICK: Duration = Duration::from_secs(1);

/// How much may wait to be shown: a log that says more at once is read as fast as it is drawn.
const QUEUE: usize = 256;

/// How many keys may wait; somebody who leans on one does not scroll on for long after letting go.
const KEYS: usize = 16;

const EXAMPLES: &str = "\
Examples:
  plimsoll top                       nodes with their load line, moves and the latest events; ? shows all keys
  plimsoll --context prod top        the cell of a context

What it shows is also in `plimsoll status -w`, `plimsoll audit -f`, `plimsoll logs -f` and `plimsoll explain`, without a screen.";

/// Watch nodes, replicas, moves and events full-screen.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    if !Target::Stdout.is_drawable() {
        return Err(CliError::refused("`plimsoll top` needs a terminal to draw on").hint(
            "`plimsoll status` prints the same once, and `plimsoll status -w` as it changes",
        ));
    }
    let client = args.host.client()?;
    live::block_on(async {
        // Whoever is not there is better known while there is a prompt to say it at.
        let seen = feed::look(&client).await?;
        let (sender, mut reports) = mpsc::channel(QUEUE);
        let watching =
            Task(tokio::spawn(feed::watch(client.clone(), seen.clone(), sender.clone())));
        let mut signals = EndSignals::listen()?;
        let mut screen = Screen::open()?;
        let mut keys = keys();
        let mut state = TopState::new(seen, Target::Stdout.has_colour());
        let mut asking: Option<(Question, Task)> = None;
        loop {
            screen.draw(&mut state)?;
            tokio::select! {
                Some(report) = reports.recv() => {
                    take(&mut state, report)?;
                    // All that has come by now is drawn at once.
                    for _ in 0..QUEUE {
                        let Ok(report) = reports.try_recv() else { break };
                        take(&mut state, report)?;
                    }
                }
                pressed = keys.recv() => match pressed {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        if state.press(key) == Next::Quit {
                            break;
                        }
                    }
                    // Drawn again at its new size.
                    Some(_) => {}
                    None => break,
                },
                () = sleep(TICK) => {}
                _ = signals.interrupt.recv() => break,
                _ = signals.terminate.recv() => break,
            }
            if state.question() != asking.as_ref().map(|(question, _)| question) {
                asking = state.question().cloned().map(|question| {
                    let (asked, client, sender) =
                        (question.clone(), client.clone(), sender.clone());
                    (question, Task(tokio::spawn(feed::answer(client, asked, sender))))
                });
            }
        }
        drop((watching, asking));
        Ok(())
    })
}

/// What is refused now will be refused again: a token that was revoked, say.
fn take(state: &mut TopState, report: Report) -> Result<(), CliError> {
    match report {
        Report::Seen(seen) => state.see(*seen),
        Report::Lost(why) => state.lose(why),
        Report::Refused(error) => return Err(error),
        Report::Lines(question, lines) => state.answer(&question, lines),
        Report::Answered(question) => state.answered(&question),
    }
    Ok(())
}

/// Work that ends with whoever wanted it.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The terminal as a page to draw on; whatever happens, it is given back as it was.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, CliError> {
        // A panic gives it back too, before it says what it was.
        let opened = ratatui::try_init();
        opened.map(Self).map_err(|error| {
            let _ = ratatui::try_restore();
            CliError::failed(format!("cannot use the terminal: {error}"))
        })
    }

    fn draw(&mut self, state: &mut TopState) -> Result<(), CliError> {
        let drawn = self.0.draw(|frame| state.draw(frame, now()));
        drawn.map(drop).map_err(|error| CliError::failed(format!("cannot draw: {error}")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Whoever took the terminal away has nothing to be given back.
        let _ = ratatui::try_restore();
    }
}

/// Keys and changes of size, until the terminal is gone. A thread, because a read of a terminal cannot be called off; it ends
/// with the process.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, pressed) = mpsc::channel(KEYS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    pressed
}

#[cfg(test)]
mod tests;
