//! How what is applied differs from what was: in a line, and field by field.

use owo_colors::OwoColorize;
use plimsoll_api::view::{Applied, FieldChange, ServiceChange};

use crate::pins_table;
use crate::plan_table::{Scores, counts, summary, tables};
use crate::replica_line::plain;

/// Added, removed, changed: every line of a diff begins with one of these, so that it can be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffMark {
    Added,
    Removed,
    Changed,
    Unchanged,
}

impl DiffMark {
    fn of(service: &ServiceChange) -> Self {
        match service.what.as_str() {
            "added" => Self::Added,
            "removed" => Self::Removed,
            "unchanged" => Self::Unchanged,
            _ => Self::Changed,
        }
    }

    fn of_field(field: &FieldChange) -> Self {
        match (&field.before, &field.after) {
            (None, Some(_)) => Self::Added,
            (Some(_), None) => Self::Removed,
            _ => Self::Changed,
        }
    }

    fn paint(self, text: &str) -> String {
        match self {
            Self::Added => format!("+ {text}").green().to_string(),
            Self::Removed => format!("- {text}").red().to_string(),
            Self::Changed => format!("~ {text}").yellow().to_string(),
            Self::Unchanged => format!("  {text}").dimmed().to_string(),
        }
    }
}

/// `shop revision 4: web changed, cache added`
pub(super) fn line(applied: &Applied) -> String {
    let is_news = |change: &&ServiceChange| DiffMark::of(change) != DiffMark::Unchanged;
    let changes: Vec<String> = applied
        .changes
        .iter()
        .filter(is_news)
        .map(|change| format!("{} {}", change.service, change.what))
        .collect();
    let mut changes = changes;
    match applied.routes.len() {
        0 => {}
        1 => changes.push("1 route changed".to_owned()),
        many => changes.push(format!("{many} routes changed")),
    }
    let changes = if changes.is_empty() { "nothing changed".into() } else { changes.join(", ") };
    format!("{} revision {}: {changes}", applied.deployment, applied.revision)
}

/// The whole of it, and what would be done about it.
pub(super) fn text(applied: &Applied) -> String {
    let (name, revision) = (&applied.deployment, applied.revision);
    let mut text = format!("{} would become revision {revision}\n", name.bold());
    let is_same = applied.changes.iter().all(|change| DiffMark::of(change) == DiffMark::Unchanged);
    if is_same && applied.routes.is_empty() {
        text = format!("{} stays at revision {revision}: nothing would change\n", name.bold());
    }
    for change in &applied.changes {
        let mark = DiffMark::of(change);
        let effect = match (mark, change.recreates) {
            (DiffMark::Changed, true) => "  (containers will be recreated)",
            (DiffMark::Changed, false) => "  (its containers go on running)",
            _ => "",
        };
        text.extend([&mark.paint(&change.service), effect, "\n"]);
        for change in &change.fields {
            let mark = DiffMark::of_field(change);
            text.extend(["    ", &mark.paint(&field(change)), "\n"]);
        }
    }
    if !applied.routes.is_empty() {
        text.push_str("routes\n");
    }
    for route in &applied.routes {
        text.extend(["    ", &route_line(route), "\n"]);
    }
    if !applied.pinned.is_empty() {
        text.extend(["\n", &pins_table::table(&applied.pinned)]);
    }
    if let Some(plan) = applied.plan.as_ref().filter(|plan| !plan.is_empty()) {
        let (tables, summary) = (tables(plan, Scores::Hidden), summary(plan));
        text.extend(["\n", &tables, "\n", &summary, "\n", &counts(plan)]);
    }
    text
}

/// A line of the daemon's, which begins with its mark.
fn route_line(line: &str) -> String {
    let line = plain(line);
    match line.split_once(' ') {
        Some(("+", rest)) => DiffMark::Added.paint(rest),
        Some(("-", rest)) => DiffMark::Removed.paint(rest),
        Some(("~", rest)) => DiffMark::Changed.paint(rest),
        _ => line,
    }
}

/// `image: nginx:1.27 → nginx:1.28`
pub(crate) fn field(change: &FieldChange) -> String {
    let FieldChange { field, before, after } = change;
    match (before.as_deref().map(plain), after.as_deref().map(plain)) {
        (Some(before), Some(after)) => format!("{field}: {before} → {after}"),
        (Some(value), None) | (None, Some(value)) => format!("{field}: {value}"),
        // A value that is not shown: only that it differs is known.
        (None, None) => field.clone(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::{DataPin, Plan, PlannedMove, ReasonCode};

    use super::*;

    fn field(field: &str, before: Option<&str>, after: Option<&str>) -> FieldChange {
        let own = |text: Option<&str>| text.map(str::to_owned);
        FieldChange { field: field.into(), before: own(before), after: own(after) }
    }

    fn change(
        service: &str,
        what: &str,
        recreates: bool,
        fields: Vec<FieldChange>,
    ) -> ServiceChange {
        ServiceChange { service: service.into(), what: what.into(), recreates, fields }
    }

    fn applied(changes: Vec<ServiceChange>, plan: Plan) -> Applied {
        Applied {
            deployment: "shop".into(),
            revision: 4,
            index: None,
            changes,
            routes: Vec::new(),
            plan: Some(plan),
            pinned: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn stripped(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_dry_run_shows_every_field_and_the_plan() {
        let changes = vec![
            change("cache", "added", false, vec![field("image", None, Some("redis:7"))]),
            change("db", "unchanged", false, vec![]),
            change("old", "removed", false, vec![]),
            change(
                "web",
                "changed",
                true,
                vec![
                    field("image", Some("nginx:1.27"), Some("nginx:1.28")),
                    field("environment.DEBUG", None, None),
                    field("ports", Some("8080:80/tcp"), None),
                ],
            ),
            change("worker", "changed", false, vec![field("replicas", Some("2"), Some("3"))]),
        ];
        let step = |replica: &str, round| PlannedMove {
            replica: replica.into(),
            service: "shop/web".into(),
            from: "ash".into(),
            to: "ash".into(),
            cause: ReasonCode::Outdated,
            is_stop_first: false,
            round,
            score: None,
            parts: None,
        };
        let moved = vec![step("shop-web-2", 1), step("shop-web-1", 2)];
        let mut applied = applied(changes, Plan { moved, ..Plan::default() });
        let pin = |services: &[&str], data: &str, nodes: &[&str]| {
            let [services, nodes] =
                [services, nodes].map(|all| all.iter().map(|it| (*it).to_owned()).collect());
            DataPin { services, data: vec![data.to_owned()], nodes }
        };
        applied.pinned = vec![
            pin(&["db", "worker"], "volume shop_data", &["ash"]),
            pin(&["web"], "bind /srv/www", &[]),
        ];
        expect![[r#"
            shop would become revision 4
            + cache
                + image: redis:7
              db
            - old
            ~ web  (containers will be recreated)
                ~ image: nginx:1.27 → nginx:1.28
                ~ environment.DEBUG
                - ports: 8080:80/tcp
            ~ worker  (its containers go on running)
                ~ replicas: 2 → 3

            PINNED BY DATA  NODE  DATA
            db, worker      ash   volume shop_data
            web             -     bind /srv/www

            MOVED       ROUND  FROM  TO   CAUSE     HOW
            shop-web-2      1  ash   ash  outdated  start-first
            shop-web-1      2  ash   ash  outdated  start-first

            0 placed, 2 moved, 0 stay, 0 unplaced
            every service keeps its full count
        "#]]
        .assert_eq(&stripped(&text(&applied)));
        expect!["shop revision 4: cache added, old removed, web changed, worker changed"]
            .assert_eq(&line(&applied));
    }

    #[test]
    fn an_apply_that_changes_nothing_says_so() {
        let applied = applied(vec![change("web", "unchanged", false, vec![])], Plan::default());
        expect![[r#"
            shop stays at revision 4: nothing would change
              web
        "#]]
        .assert_eq(&stripped(&text(&applied)));
        expect!["shop revision 4: nothing changed"].assert_eq(&line(&applied));
    }
}
