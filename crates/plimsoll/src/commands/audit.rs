//! `plimsoll audit`: what happened, when, and who stood behind it.

use plimsoll_api::view::{AuditEvent, AuditQuery};
use plimsoll_model::audit::MAX_AUDIT;

use crate::age::{Since, since};
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, note, print, print_each, stream};
use crate::replica_line::plain;
use crate::table::Table;
use crate::wait::now;

const EXAMPLES: &str = "\
Examples:
  plimsoll audit                                      the latest events, oldest first
  plimsoll audit -f                                   and what happens
  plimsoll audit --since 1h --type move_started,retired
  plimsoll audit --limit 5000 -o json";

/// Show the audit log.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Follow new events
    #[arg(short, long)]
    follow: bool,
    /// Only events of the last 10m, or since 2026-11-16T00:30:00Z
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Since>,
    /// Only events of these kinds, comma-separated
    #[arg(long = "type", value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Number of events to show
    #[arg(long, value_name = "EVENTS", default_value_t = 100)]
    limit: u32,
    /// Output format; with -f, json and yaml print one document per event
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.host.client()?;
    let query = AuditQuery {
        since: args.since.map(|since| since.from(now())),
        kinds: Some(args.kinds.join(",")).filter(|kinds| !kinds.is_empty()),
        limit: Some(args.limit),
        before: None,
        follow: args.follow,
    };
    live::block_on(async {
        if !args.follow {
            let events = client.audit(&query).await?;
            if events.is_empty() {
                note("nothing like that has happened, or it is too long ago");
            }
            print(args.output, &events, |events| text(events))?;
            if let Some(text) = dropped(&events, &query) {
                note(&text);
            }
            return Ok(());
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

/// That the first event is not the first that happened, where nobody asked for fewer. Events are numbered from 0.
fn dropped(events: &[AuditEvent], query: &AuditQuery) -> Option<String> {
    let is_all = query.since.is_none() && query.kinds.is_none();
    let is_short = query.limit.is_none_or(|limit| events.len() < limit as usize);
    let before = events.first()?.seq;
    (is_all && is_short && before > 0).then(|| {
        let were =
            if before == 1 { "1 older event is" } else { &format!("{before} older events are") };
        format!("{were} no longer kept: the audit keeps the last {MAX_AUDIT}")
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
            review: None,
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

        let limit = |limit| AuditQuery { limit: Some(limit), ..AuditQuery::default() };
        assert_eq!(
            dropped(&events[1..], &limit(100)).as_deref(),
            Some("2 older events are no longer kept: the audit keeps the last 10000")
        );
        assert_eq!(dropped(&events, &limit(2)), None, "the rest was not asked for");
        let kinds = AuditQuery { kinds: Some("placed".into()), ..limit(100) };
        assert_eq!(dropped(&events[1..], &kinds), None, "others were left out");
    }
}
