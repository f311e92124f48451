//! `plimsoll status`: what is where and how, once or as it changes.

use std::time::Duration;

use plimsoll_api::client::Client;
use plimsoll_api::view::{Service, Status, Time};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use crate::consistency::ConsistencyArgs;
use crate::error::CliError;
use crate::live::{self, HostArgs, News};
use crate::output::{Format, data, note, print, print_each, stream};
use crate::screen::FullScreen;
use crate::terminal::{Keys, Target};
use crate::wait::now;

pub(crate) mod page;
mod story;

use page::Fold;

/// Ages are shown to the second.
const TICK: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  plimsoll status                     the cell and everything in it
  plimsoll status shop                one deployment
  plimsoll status --label team=web    only services with this label
  plimsoll status shop -w             as it changes, until q or Ctrl-C
  plimsoll status -o json             for a program; with -w one document for each change";

/// Show deployments, replicas and problems.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this deployment
    deployment: Option<String>,
    /// Only services with this label, of the service or of its containers; repeatable
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    /// Watch for changes
    #[arg(short, long)]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    reading: ConsistencyArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.reading.of(args.host.client()?);
    live::block_on(async {
        let only = Selection { deployment: args.deployment.as_deref(), labels: &args.label };
        let mut status = live::status(&client, only.deployment).await?;
        only.narrow(&mut status);
        if !args.watch {
            let width = Target::Stdout.size().map(|(width, _)| width);
            return print(args.output, &status, |it| page::text(it, now(), width, Fold::Nothing));
        }
        if args.output != Format::Table {
            return documents(&client, only, status, args.output).await;
        }
        if Target::Stdout.is_drawable() {
            return redraw(&client, only, status).await;
        }
        data(&page::text(&status, now(), None, Fold::Nothing))?;
        changes(&client, only, status).await
    })
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
struct Selection<'a> {
    deployment: Option<&'a str>,
    /// `KEY` or `KEY=VALUE`, all of them.
    labels: &'a [String],
}

impl Selection<'_> {
    fn narrow(self, status: &mut Status) {
        let is_named = |name: &str| self.deployment.is_none_or(|only| only == name);
        status.deployments.retain(|deployment| is_named(&deployment.name));
        if self.labels.is_empty() {
            return;
        }
        for deployment in &mut status.deployments {
            deployment
                .services
                .retain(|service| self.labels.iter().all(|it| has_label(service, it)));
        }
        status.deployments.retain(|deployment| !deployment.services.is_empty());
    }
}

fn has_label(service: &Service, label: &str) -> bool {
    match label.split_once('=') {
        Some((key, value)) => service.labels.get(key).is_some_and(|it| it == value),
        None => service.labels.contains_key(label),
    }
}

/// The status again, or none while the daemon does not answer. A deployment that is deleted meanwhile is an empty page.
async fn again(client: &Client, only: Selection<'_>) -> Result<Status, CliError> {
    let mut status = client.status().await?;
    only.narrow(&mut status);
    Ok(status)
}

/// One page, drawn again where it changed.
async fn redraw(client: &Client, only: Selection<'_>, mut status: Status) -> Result<(), CliError> {
    let mut news = News::after(client, &status);
    let mut keys = Keys::listen();
    let mut signals = EndSignals::listen()?;
    let mut page = FullScreen::default();
    let mut lost: Option<String> = None;
    Target::Stdout.write(&FullScreen::open());
    loop {
        let (width, height) = Target::Stdout.size().unwrap_or((80, 24));
        // The last line says how to leave, or what is wrong.
        let mut lines = page::lines(&status, now(), width, height.saturating_sub(1));
        lines.resize(height.saturating_sub(1).max(lines.len()), String::new());
        lines.push(page::footer(lost.as_deref()));
        Target::Stdout.write(&page.draw(Target::Stdout.lines(lines)));
        tokio::select! {
            () = news.wait() => match again(client, only).await {
                Ok(fresh) => (status, lost) = (fresh, None),
                Err(trouble) if trouble.is_refusal() => {
                    Target::Stdout.write(&FullScreen::close());
                    return Err(trouble);
                }
                Err(trouble) => lost = Some(trouble.first_line()),
            },
            () = sleep(TICK) => {}
            key = keys.next() => if matches!(key, b'q' | b'Q' | 0x1b | 0x04) { break },
            _ = signals.interrupt.recv() => break,
            _ = signals.terminate.recv() => break,
            _ = signals.resize.recv() => Target::Stdout.write(&page.forget()),
        }
    }
    Target::Stdout.write(&FullScreen::close());
    drop(keys);
    // What was seen last stays readable.
    let width = Target::Stdout.size().map(|(width, _)| width);
    data(&page::text(&status, now(), width, Fold::Nothing))
}

/// A line for each change, for whoever is no terminal.
async fn changes(client: &Client, only: Selection<'_>, mut status: Status) -> Result<(), CliError> {
    let mut news = News::after(client, &status);
    let mut is_lost = false;
    loop {
        news.wait().await;
        match again(client, only).await {
            Ok(fresh) => {
                for line in story::changes(&status, &fresh) {
                    stream(&format!("{}  {line}\n", Time(now())))?;
                }
                (status, is_lost) = (fresh, false);
            }
            Err(trouble) if trouble.is_refusal() => return Err(trouble),
            Err(trouble) => {
                if !is_lost {
                    note(&format!("{}; retrying", trouble.first_line()));
                }
                is_lost = true;
            }
        }
    }
}

/// A document for each change, for a program.
async fn documents(
    client: &Client,
    only: Selection<'_>,
    mut status: Status,
    format: Format,
) -> Result<(), CliError> {
    let mut news = News::after(client, &status);
    print_each(format, &status)?;
    loop {
        news.wait().await;
        match again(client, only).await {
            Ok(fresh) if fresh.deployments != status.deployments => {
                print_each(format, &fresh)?;
                status = fresh;
            }
            Err(trouble) if trouble.is_refusal() => return Err(trouble),
            Ok(_) | Err(_) => {}
        }
    }
}

pub(super) struct EndSignals {
    pub(super) interrupt: Signal,
    pub(super) terminate: Signal,
    resize: Signal,
}

impl EndSignals {
    pub(super) fn listen() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| CliError::failed(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            resize: listen(SignalKind::window_change())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, With};

    #[test]
    fn services_are_found_by_their_labels() {
        let shop = sample::deployment("shop").service("web", 1).service("db", 1);
        let mut whole = sample::status(vec![shop, sample::deployment("other")]);
        let name = "web".to_owned();
        whole.deployments[0].services[0].labels.insert("team".to_owned(), "web".to_owned());
        for (labels, is_found) in [
            (&["team"][..], true),
            (&["team=web"], true),
            (&["team=db"], false),
            (&["team", "tier"], false),
        ] {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            let mut status = whole.clone();
            Selection { deployment: None, labels: &labels }.narrow(&mut status);
            let services = status.deployments.iter().flat_map(|it| &it.services);
            let names: Vec<&str> = services.map(|it| it.name.as_str()).collect();
            assert_eq!(
                names,
                if is_found { vec![name.as_str()] } else { Vec::new() },
                "{labels:?}"
            );
        }
    }
}
