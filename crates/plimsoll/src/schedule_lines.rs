//! When a service on a schedule runs next, and how it ended the last times, in words.

use plimsoll_api::view::{Deployment, MissedRuns, ScheduledRun, Service, ServiceSchedule, Time};
use plimsoll_model::Timestamp;
use plimsoll_model::schedule::utc_minute;

use crate::age::{age, took, until};
use crate::table::Table;

/// `0 3 * * * (Europe/Berlin); next run in 20h; last run completed 3h ago`
pub(crate) fn summary(schedule: &ServiceSchedule, now: Timestamp) -> String {
    let mut parts = vec![format!("{} ({})", schedule.cron, schedule.timezone)];
    parts.extend(schedule.next.map(|next| format!("next run {}", until(next, now))));
    let last = schedule.runs.last();
    parts.extend(last.map(|last| {
        let since = age(last.ended.unwrap_or(last.started), now);
        match last.state.as_str() {
            "open" => format!("run {} under way for {since}", last.run),
            state => format!("last run {state} {since} ago"),
        }
    }));
    let is_newest = |missed: &&MissedRuns| last.is_none_or(|run| missed.last.0 > run.started.0);
    let missed = schedule.missed.last().filter(is_newest);
    parts.extend(missed.map(|it| format!("missed {} ago: {}", age(it.last, now), it.text)));
    parts.join("; ")
}

/// What is said of the schedules of services: a table of their last runs, newest first; nothing where there is none.
pub(crate) fn history(deployment: &Deployment, now: Timestamp) -> String {
    let scheduled = deployment.services.iter().filter_map(|it| Some((it, it.schedule.as_ref()?)));
    let mut text = String::new();
    for (service, schedule) in scheduled {
        text.push_str(&of_service(service, schedule, now));
    }
    text
}

fn of_service(service: &Service, schedule: &ServiceSchedule, now: Timestamp) -> String {
    let next = schedule.next.map_or_else(
        || "no further run".to_owned(),
        |next| format!("next run at {} ({})", utc_minute(next.0), until(next, now)),
    );
    let mut lines: Vec<(Time, [String; 5])> = Vec::new();
    lines.extend(schedule.runs.iter().map(|run| (run.started, of_run(run))));
    lines.extend(schedule.missed.iter().map(|missed| (missed.last, of_missed(missed))));
    lines.sort_by_key(|(at, _)| std::cmp::Reverse(at.0));
    let mut table = Table::new([">RUN", "DUE", "STATE", ">TOOK", "REPLICAS"]);
    for (_, line) in lines {
        table.row(line);
    }
    let (name, cron, zone) = (&service.name, &schedule.cron, &schedule.timezone);
    let runs = if table.is_empty() { String::new() } else { table.render() };
    format!("{name}: {cron} ({zone}), {next}\n{runs}")
}

fn of_run(run: &ScheduledRun) -> [String; 5] {
    let due = run.slot.map_or_else(|| "by request".to_owned(), |slot| utc_minute(slot.0));
    let took = run.ended.map(|ended| took(ended.0.since(run.started.0))).unwrap_or_default();
    [run.run.to_string(), due, run.state.clone(), took, run.replicas.join(", ")]
}

fn of_missed(missed: &MissedRuns) -> [String; 5] {
    let state = match missed.count {
        1 => format!("missed: {}", missed.text),
        count => format!("{count} missed: {}", missed.text),
    };
    [String::new(), utc_minute(missed.last.0), state, String::new(), String::new()]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::sample::{NOW, With as _, ago, deployment};

    fn nightly() -> ServiceSchedule {
        let run = |run, seconds, state: &str, slot: bool| ScheduledRun {
            run,
            slot: slot.then(|| ago(seconds + 1)),
            started: ago(seconds),
            ended: (state != "open").then(|| ago(seconds - 42)),
            state: state.to_owned(),
            replicas: vec![format!("shop-mail-{run}")],
        };
        let missed = MissedRuns {
            first: ago(90_000),
            last: ago(90_000),
            count: 1,
            reason: "too_late".to_owned(),
            text: "no leader started it in time".to_owned(),
        };
        ServiceSchedule {
            cron: "0 3 * * *".to_owned(),
            timezone: "UTC".to_owned(),
            next: Some(Time(Timestamp(NOW.0 + 72_000_000))),
            runs: vec![run(6, 180_000, "failed", true), run(7, 7_200, "completed", false)],
            missed: vec![missed],
        }
    }

    #[test]
    fn a_schedule_says_what_comes_and_what_was() {
        let mut schedule = nightly();
        expect!["0 3 * * * (UTC); next run in 20h; last run completed 1h ago"]
            .assert_eq(&summary(&schedule, NOW));
        schedule.runs.truncate(1);
        expect!["0 3 * * * (UTC); next run in 20h; last run failed 2d ago; missed 1d ago: no leader started it in time"]
            .assert_eq(&summary(&schedule, NOW));
        schedule.runs.clear();
        schedule.missed.clear();
        expect!["0 3 * * * (UTC); next run in 20h"].assert_eq(&summary(&schedule, NOW));
    }

    #[test]
    fn the_last_runs_are_listed_with_what_was_missed() {
        let mut shop = deployment("shop").service("mail", 1);
        assert_eq!(history(&shop, NOW), "");
        shop.services[0].schedule = Some(nightly());
        let text = history(&shop, NOW);
        let states: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(states.len(), 3, "{text}");
        assert!(states[0].contains("by request") && states[0].contains("42.0 s"), "{text}");
        assert!(states[1].contains("missed: no leader") && states[2].contains("failed"), "{text}");
    }
}
