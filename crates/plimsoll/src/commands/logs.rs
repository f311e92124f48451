//! `plimsoll logs`: what replicas print.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anstream::AutoStream;
use owo_colors::{AnsiColors, OwoColorize};
use plimsoll_api::client::{Client, LogsOf};
use plimsoll_api::view::{LogLine, LogPiece, LogQuery, MissingLogs, Status, Time};
use plimsoll_model::Timestamp;
use tokio::time::sleep;

use crate::age::{Since, since};
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, note, print_each, written};
use crate::subject::{self, Subject};
use crate::terminal::Target;
use crate::wait::now;

/// How long to wait before a daemon that went away under way is looked for again.
const RETRY: Duration = Duration::from_secs(1);

/// Told apart by these, in the order replicas come; red is for trouble.
const COLOURS: [AnsiColors; 6] = [
    AnsiColors::Cyan,
    AnsiColors::Yellow,
    AnsiColors::Green,
    AnsiColors::Magenta,
    AnsiColors::Blue,
    AnsiColors::BrightCyan,
];

const EXAMPLES: &str = "\
Examples:
  plimsoll logs shop                       all replicas of a deployment
  plimsoll logs shop/web -f                one service's, and what comes
  plimsoll logs shop-web-2 --tail 100      the last 100 lines of one
  plimsoll logs shop --since 10m -t        of the last ten minutes, with their times

What a service writes to stderr comes on stderr. A node that cannot be asked is named there, and the lines of the
others are shown.";

/// Show the logs of replicas.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A deployment (shop), a service (shop/web) or a replica (shop-web-2)
    #[arg(value_name = "DEPLOYMENT|SERVICE|REPLICA")]
    subject: String,
    /// Follow the logs
    #[arg(short, long)]
    follow: bool,
    /// Only lines of the last 10m, or since 2026-11-16T00:30:00Z
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Since>,
    /// Number of lines to show from the end, per replica
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<u32>,
    /// Show timestamps
    #[arg(short, long)]
    timestamps: bool,
    /// Output format; json and yaml print one document per line
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.host.client()?;
    live::block_on(async {
        let status = client.status().await?;
        let (of, service) = whose(&status, &args.subject)?;
        let replicas = subject::find(&status, &args.subject)?.replicas();
        let mut prefixes = Prefixes::of(replicas.iter().map(|replica| replica.id.as_str()));
        prefixes.is_single = matches!(of, LogsOf::Replica(_));
        let query = LogQuery {
            follow: args.follow,
            since: args.since.map(|since| since.from(now())),
            tail: args.tail,
            service,
        };
        copy(&client, &of, query, args, &mut prefixes).await
    })
}

fn whose(status: &Status, text: &str) -> Result<(LogsOf, Option<String>), CliError> {
    Ok(match subject::find(status, text)? {
        Subject::Deployment(deployment) => (LogsOf::Deployment(deployment.name.clone()), None),
        Subject::Service(deployment, service) => {
            (LogsOf::Deployment(deployment.name.clone()), Some(service.name.clone()))
        }
        Subject::Replica(_, _, replica) => (LogsOf::Replica(replica.id.clone()), None),
    })
}

/// Copies lines until there are no more. Whoever follows is taken along over a restart of the daemon.
async fn copy(
    client: &Client,
    of: &LogsOf,
    mut query: LogQuery,
    args: &Args,
    prefixes: &mut Prefixes,
) -> Result<(), CliError> {
    let (mut is_lost, mut is_whole) = (false, true);
    loop {
        let mut lines = match client.logs(of, &query).await {
            Ok(lines) => lines,
            Err(_) if is_lost => {
                sleep(RETRY).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        is_lost = false;
        while let Some(line) = lines.next().await {
            match line {
                Ok(LogPiece::Missing(missing)) => {
                    is_whole = false;
                    note(&told(&missing));
                }
                Ok(LogPiece::Line(line)) => {
                    query.since = Some(Time(Timestamp(line.at.0.0 + 1)));
                    query.tail = None;
                    print(args, prefixes, &line)?;
                }
                Err(error) if args.follow && error.code().is_none() => {
                    note(&format!("{error}; looking for it again"));
                    is_lost = true;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !is_lost {
            let partial = "some lines are not shown: not every node could be asked";
            return if is_whole { Ok(()) } else { Err(CliError::failed(partial)) };
        }
        sleep(RETRY).await;
    }
}

pub(super) fn told(missing: &MissingLogs) -> String {
    let MissingLogs { node, replicas, why } = missing;
    format!("{why}; what {} printed on {node} is not shown", replicas.join(", "))
}

fn print(args: &Args, prefixes: &mut Prefixes, line: &LogLine) -> Result<(), CliError> {
    if args.output != Format::Table {
        return print_each(args.output, line);
    }
    let is_error = line.from == "stderr";
    let target = if is_error { Target::Stderr } else { Target::Stdout };
    let text = prefixes.text(line, args.timestamps, target.has_colour());
    // As it was printed: what a service writes is its own affair, also when it colours it.
    written(if is_error {
        std::io::stderr().lock().write_all(text.as_bytes())
    } else {
        let mut out = AutoStream::always(std::io::stdout().lock());
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    })
}

/// What stands before a line: whose it is, where there are several.
#[derive(Debug)]
struct Prefixes {
    width: usize,
    colours: BTreeMap<String, AnsiColors>,
    is_single: bool,
}

impl Prefixes {
    fn of<'a>(replicas: impl Iterator<Item = &'a str>) -> Self {
        let mut prefixes = Self { width: 0, colours: BTreeMap::new(), is_single: false };
        for replica in replicas {
            prefixes.learn(replica);
        }
        prefixes
    }

    /// Replicas that come later are as good as those there were.
    fn learn(&mut self, replica: &str) -> AnsiColors {
        self.width = self.width.max(replica.chars().count());
        let next = COLOURS[self.colours.len() % COLOURS.len()];
        *self.colours.entry(replica.to_owned()).or_insert(next)
    }

    fn text(&mut self, line: &LogLine, has_time: bool, has_colour: bool) -> String {
        let mut text = String::new();
        if !self.is_single {
            let colour = self.learn(&line.replica);
            let prefix = format!("{:width$}  | ", line.replica, width = self.width);
            text = if has_colour { prefix.color(colour).to_string() } else { prefix };
        }
        if has_time {
            text.extend([&line.at.to_string(), " "]);
        }
        text + &line.text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::NOW;

    fn line(replica: &str, text: &str) -> LogLine {
        let (replica, text) = (replica.to_owned(), text.to_owned());
        LogLine { replica, at: Time(NOW), from: "stdout".into(), text }
    }

    #[test]
    fn lines_of_several_replicas_say_whose_they_are() {
        let mut prefixes = Prefixes::of(["shop-web-1", "shop-worker-1"].into_iter());
        let mut text = |it: &LogLine| prefixes.text(it, false, false);
        assert_eq!(text(&line("shop-web-1", "GET /")), "shop-web-1     | GET /\n");
        assert_eq!(text(&line("shop-worker-1", "\x1b[1mdone")), "shop-worker-1  | \x1b[1mdone\n");
        assert_eq!(text(&line("shop-web-12", "new")), "shop-web-12    | new\n");
    }

    #[test]
    fn a_node_that_is_not_heard_is_named_with_what_it_has() {
        let missing = MissingLogs {
            node: "cedar".into(),
            replicas: vec!["shop-web-1".into(), "shop-web-4".into()],
            why: "cedar cannot be reached: cannot connect to cedar at 10.0.0.3:7117".into(),
        };
        assert_eq!(
            told(&missing),
            "cedar cannot be reached: cannot connect to cedar at 10.0.0.3:7117; what shop-web-1, shop-web-4 printed \
             on cedar is not shown"
        );
    }

    #[test]
    fn each_replica_keeps_its_colour() {
        let mut prefixes = Prefixes::of(["a", "b"].into_iter());
        let mut text = |it: &LogLine| prefixes.text(it, false, true);
        let (first, other) = (text(&line("a", "x")), text(&line("b", "x")));
        assert_eq!(first, "\x1b[36ma  | \x1b[39mx\n");
        assert_ne!(first.replace('a', "b"), other);
        assert_eq!(text(&line("a", "x")), first);
    }

    #[test]
    fn a_single_replica_needs_no_prefix() {
        let mut prefixes = Prefixes::of(["a"].into_iter());
        prefixes.is_single = true;
        assert_eq!(prefixes.text(&line("a", "x"), true, true), format!("{} x\n", Time(NOW)));
    }
}
