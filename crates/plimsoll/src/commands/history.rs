//! `plimsoll history`: what was applied to a deployment, when and by whom.

use plimsoll_api::view::{FieldChange, Revision};
use plimsoll_model::Timestamp;
use plimsoll_model::state::MAX_REVISIONS;

use super::apply::diff;
use crate::age::age;
use crate::consistency::{ConsistencyArgs, remark};
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, note, print};
use crate::schedule_lines;
use crate::table::Table;
use crate::terminal::Target;
use crate::wait::now;

/// How much of a value is shown.
const MAX_VALUE: usize = 40;

const EXAMPLES: &str = "\
Examples:
  plimsoll history shop
  plimsoll rollback shop --to 3    go back to one of them";

/// List a deployment's revisions and what each changed, and the last runs of its services on a schedule.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    deployment: String,
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
        let status = live::status(&client, Some(&args.deployment)).await?;
        let revisions = client.history(&status.deployments[0].name).await?;
        remark(&client);
        let width = Target::Stdout.size().map(|(width, _)| width);
        let runs = schedule_lines::history(&status.deployments[0], now());
        print(args.output, &revisions, |revisions| {
            let between = if runs.is_empty() { "" } else { "\n" };
            format!("{}{between}{runs}", text(revisions, now(), width))
        })?;
        if let Some(text) = dropped(&revisions) {
            note(&text);
        }
        Ok(())
    })
}

fn text(revisions: &[Revision], now: Timestamp, width: Option<usize>) -> String {
    let mut table = Table::new([">REVISION", ">AGE", "BY", "CHANGES"]);
    for revision in revisions {
        let mark = if revision.is_current { " (current)" } else { "" };
        table.row([
            revision.revision.to_string(),
            age(revision.at, now),
            revision.by.clone(),
            changes(revision) + mark,
        ]);
    }
    table.within(width)
}

/// That there were earlier ones. Revisions are numbered from 1.
fn dropped(revisions: &[Revision]) -> Option<String> {
    let before = revisions.last()?.revision.saturating_sub(1);
    (before > 0).then(|| {
        let were = if before == 1 {
            "1 older revision is"
        } else {
            &format!("{before} older revisions are")
        };
        format!("{were} no longer kept: a deployment keeps its last {MAX_REVISIONS}")
    })
}

/// A command or a list can be long; a line has room for its beginning.
fn short(change: &FieldChange) -> String {
    let cut = |value: &Option<String>| {
        value.as_ref().map(|value| match value.char_indices().nth(MAX_VALUE) {
            Some((at, _)) => format!("{}…", &value[..at]),
            None => value.clone(),
        })
    };
    let (before, after) = (cut(&change.before), cut(&change.after));
    if before == after {
        // They differ only in what was cut off.
        return change.field.clone();
    }
    diff::field(&FieldChange { field: change.field.clone(), before, after })
}

/// `web: image: nginx:1.27 → nginx:1.28; +cache; -old; route + shop.example → web:80`
fn changes(revision: &Revision) -> String {
    let services = revision.changes.iter().filter_map(|change| match change.what.as_str() {
        "unchanged" => None,
        "added" => Some(format!("+{}", change.service)),
        "removed" => Some(format!("-{}", change.service)),
        _ => {
            let fields: Vec<String> = change.fields.iter().map(short).collect();
            Some(format!("{} {}", change.service, fields.join(", ")))
        }
    });
    let routes = revision.routes.iter().map(|line| format!("route {line}"));
    let shown: Vec<String> = services.chain(routes).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join("; ") }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::ServiceChange;

    use super::*;
    use crate::sample::{NOW, ago};

    #[test]
    fn each_revision_says_what_it_changed() {
        let change = |service: &str, what: &str, fields: Vec<FieldChange>| ServiceChange {
            service: service.into(),
            what: what.into(),
            recreates: true,
            fields,
        };
        let image = FieldChange {
            field: "image".into(),
            before: Some("nginx:1.27".into()),
            after: Some("nginx:1.28".into()),
        };
        let revision = |revision, seconds, changes| Revision {
            revision,
            at: ago(seconds),
            by: "ada".into(),
            is_current: revision == 3,
            changes,
            routes: if revision == 3 {
                vec!["+ shop.example → web port 80".into()]
            } else {
                vec![]
            },
        };
        let revisions = [
            revision(3, 250, vec![change("web", "changed", vec![image])]),
            revision(
                2,
                7_300,
                vec![change("old", "removed", vec![]), change("db", "unchanged", vec![])],
            ),
            revision(
                1,
                90_000,
                vec![change("db", "added", vec![]), change("web", "added", vec![])],
            ),
        ];
        let text = text(&revisions, NOW, None);
        expect![[r#"
            REVISION  AGE  BY   CHANGES
                   3   4m  ada  web image: nginx:1.27 → nginx:1.28; route + shop.example → web port 80 (current)
                   2   2h  ada  -old
                   1   1d  ada  +db; +web
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&text).to_string());
        assert_eq!(dropped(&revisions), None, "all of them are there");
        let text = dropped(&revisions[..2]).unwrap();
        assert_eq!(text, "1 older revision is no longer kept: a deployment keeps its last 20");
        let text = dropped(&revisions[..1]).unwrap();
        assert_eq!(text, "2 older revisions are no longer kept: a deployment keeps its last 20");
    }
}
