//! `plimsoll audit`: what happened, when, and who stood behind it.

use plimsoll_daemon::view::{AuditEvent, AuditQuery};

use crate::age::{Since, since};
use crate::glance::plain;
use crate::live::{self, Host};
use crate::output::{Format, note, print, print_each, stream};
use crate::settle::now;
use crate::table::Table;
use crate::trouble::Trouble;

const EXAMPLES: &str = "\
Examples:
  plimsoll audit                                      the latest events, oldest first
  plimsoll audit -f                                   and what happens
  plimsoll audit --since 1h --type move_started,retired
  plimsoll audit --limit 5000 -o json";

/// Show what happened, and who stood behind it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// Only events of the last 10m, or since 2026-11-16T00:30:00Z
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Since>,
    /// Only these kinds, with commas between them
    #[arg(long = "type", value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Only the last so many
    #[arg(long, value_name = "EVENTS", default_value_t = 100)]
    limit: u32,
    /// How to print them; with -f, json and yaml print one document for each
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: Host,
}

pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let client = args.host.client()?;
    let query = AuditQuery {
        since: args.since.map(|since| since.from(now())),
        kinds: Some(args.kinds.join(",")).filter(|kinds| !kinds.is_empty()),
        limit: Some(args.limit),
        follow: args.follow,
    };
    live::block_on(async {
        if !args.follow {
            let events = client.audit(&query).await?;
            if events.is_empty() {
                note("nothing like that has happened, or it is too long ago");
            }
            return print(args.output, &events, |events| text(events));
        }
        let mut events = client.follow_audit(&query).await?;
        while let Some(event) = events.next().await {
            let event = event?;
            match args.output {
                Format::Table => stream(&line(&event))?,
                Format::Json | Format::Yaml => print_each(args.output, &event)?,
            }
        }
        Ok(())
    })
}

fn text(events: &[AuditEvent]) -> String {
    let mut table = Table::new(["TIME", "KIND", "BY", "EVENT"]);
    for event in events {
        let text = plain(&event.text);
        table.row([event.at.to_string(), event.what.clone(), by(event), text]);
    }
    table.render()
}

/// Columns as wide as the words there are, because what is to come is not known.
fn line(event: &AuditEvent) -> String {
    let (at, what, by) = (event.at, &event.what, by(event));
    format!("{at}  {what:17}  {by:16}  {}\n", plain(&event.text))
}

fn by(event: &AuditEvent) -> String {
    if event.by.is_empty() || event.by == event.writer {
        event.writer.clone()
    } else {
        format!("{} {}", event.writer, event.by)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::sample::ago;

    #[test]
    fn every_event_has_its_time_and_who_did_it() {
        let event = |seq, what: &str, writer: &str, by: &str, text: &str| AuditEvent {
            seq,
            at: ago(100 - seq),
            writer: writer.into(),
            by: by.into(),
            what: what.into(),
            text: text.into(),
            relief: None,
        };
        let events = [
            event(1, "deployed", "api", "ada", "shop revision 3 applied"),
            event(2, "placed", "scheduler", "", "shop-web-1 placed on ash"),
        ];
        let table = text(&events);
        expect![[r#"
            TIME                      KIND      BY         EVENT
            2027-01-15T07:58:21.000Z  deployed  api ada    shop revision 3 applied
            2027-01-15T07:58:22.000Z  placed    scheduler  shop-web-1 placed on ash
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&table).to_string());
        expect![[r#"
            2027-01-15T07:58:21.000Z  deployed           api ada           shop revision 3 applied
            2027-01-15T07:58:22.000Z  placed             scheduler         shop-web-1 placed on ash
        "#]]
        .assert_eq(&(line(&events[0]) + &line(&events[1])));
    }
}
