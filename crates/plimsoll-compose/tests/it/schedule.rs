//! Jobs on a schedule.

use plimsoll_model::spec::{Lifecycle, Retries};

use crate::case::{file, web};

fn on(text: &str) -> String {
    format!("x-plimsoll: {{{text}}}")
}

#[test]
fn a_schedule_makes_a_job_and_has_a_time_zone() {
    for (keys, expected) in [
        ("schedule: \"0 3 * * *\"", "0 3 * * * (UTC)"),
        ("schedule: \"@daily\"", "@daily (UTC)"),
        (
            "schedule: \"0 3 * * mon-fri\", timezone: Europe/Berlin",
            "0 3 * * mon-fri (Europe/Berlin)",
        ),
        ("schedule: \"CRON_TZ=Asia/Tokyo 0 3 * * *\"", "0 3 * * * (Asia/Tokyo)"),
        ("schedule: \"TZ=Asia/Tokyo 0 3 * * *\", timezone: Asia/Tokyo", "0 3 * * * (Asia/Tokyo)"),
    ] {
        let spec = web(&on(keys)).service("web");
        assert_eq!(spec.schedule.as_ref().map(ToString::to_string).as_deref(), Some(expected));
        assert_eq!(spec.lifecycle, Lifecycle::Job(Retries::default()), "{keys}");
    }
    let once = format!("{}\nrestart: 'no'\nports: ['80']", on("schedule: \"@hourly\""));
    assert_eq!(web(&once).service("web").lifecycle, Lifecycle::Job(Retries::NEVER));
    let plain = web("restart: 'no'").service("web");
    assert!(plain.schedule.is_none());
}

#[test]
fn what_cannot_be_kept_is_refused_with_what_to_write() {
    for (keys, expected) in [
        (
            on("schedule: \"0 3 * *\""),
            "a schedule has five fields (minute hour day month weekday), found 4",
        ),
        (
            on("schedule: \"0 25 * * *\""),
            "\"25\" is no hour of a schedule: it takes numbers from 0 to 23",
        ),
        (
            on("schedule: \"0 3 * * *\", timezone: Berlin"),
            "there is no time zone \"Berlin\"; use a name such as Europe/Berlin",
        ),
        (
            on("schedule: \"CRON_TZ=Asia/Tokyo 0 3 * * *\", timezone: UTC"),
            "the schedule says Asia/Tokyo, and `timezone` UTC",
        ),
        (on("timezone: UTC"), "`timezone` says when a schedule is due"),
        (
            format!("{}\ndeploy: {{mode: global-job}}", on("schedule: \"@daily\"")),
            "a service with a `schedule` cannot be global",
        ),
    ] {
        assert_eq!(web(&keys).errors(), [expected], "{keys}");
    }
}

#[test]
fn nobody_waits_for_a_job_on_a_schedule_to_complete() {
    let text = "services:\n  nightly: {image: x, x-plimsoll: {schedule: '@daily'}}\n  \
                web: {image: x, depends_on: {nightly: {condition: service_completed_successfully}}}\n";
    let message = "other services wait for \"nightly\" to complete, and it runs on a schedule";
    assert_eq!(file(text).errors(), [message]);
}
