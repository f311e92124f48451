use super::*;

fn at(text: &str) -> Timestamp {
    let moment: jiff::Timestamp = text.parse().unwrap();
    Timestamp(u64::try_from(moment.as_millisecond()).unwrap())
}

fn shown(at: Timestamp) -> String {
    let moment = jiff::Timestamp::from_millisecond(i64::try_from(at.0).unwrap()).unwrap();
    moment.strftime("%Y-%m-%dT%H:%MZ").to_string()
}

fn schedule(cron: &str, zone: Option<&str>) -> Schedule {
    Schedule::new(Cron::parse(cron).unwrap(), zone.map(|name| ZoneName::new(name).unwrap()))
}

fn next(cron: &str, zone: Option<&str>, after: &str, count: usize) -> Vec<String> {
    let schedule = schedule(cron, zone);
    let mut last = at(after);
    let mut slots = Vec::new();
    for _ in 0..count {
        last = schedule.next(last).unwrap();
        slots.push(shown(last));
    }
    slots
}

#[test]
fn five_fields_mean_what_they_mean_to_cron() {
    let after = "2026-11-18T06:30:30Z";
    for (case, cron, expected) in [
        ("every night", "0 3 * * *", ["2026-11-19T03:00Z", "2026-11-20T03:00Z"]),
        ("a macro", "@daily", ["2026-11-19T00:00Z", "2026-11-20T00:00Z"]),
        ("another", "@Hourly", ["2026-11-18T07:00Z", "2026-11-18T08:00Z"]),
        ("steps", "*/20 * * * *", ["2026-11-18T06:40Z", "2026-11-18T07:00Z"]),
        ("steps from a number on", "50/5 6 * * *", ["2026-11-18T06:50Z", "2026-11-18T06:55Z"]),
        ("steps in a range", "0 8-12/2 * * *", ["2026-11-18T08:00Z", "2026-11-18T10:00Z"]),
        ("a list", "5,45 6,7 * * *", ["2026-11-18T06:45Z", "2026-11-18T07:05Z"]),
        ("names", "0 9 * JAN-feb Mon", ["2027-01-04T09:00Z", "2027-01-11T09:00Z"]),
        ("Sunday is 7 too", "0 0 * * 7", ["2026-11-22T00:00Z", "2026-11-29T00:00Z"]),
        ("and begins a week", "0 0 * * 0-1", ["2026-11-22T00:00Z", "2026-11-23T00:00Z"]),
        ("either day will do", "0 0 20 * fri", ["2026-11-20T00:00Z", "2026-11-27T00:00Z"]),
        ("unless one is any", "0 0 */2 * fri", ["2026-11-27T00:00Z", "2026-12-11T00:00Z"]),
        ("leap years", "0 0 29 2 *", ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]),
        ("the longest months", "0 0 31 * *", ["2026-12-31T00:00Z", "2027-01-31T00:00Z"]),
    ] {
        assert_eq!(next(cron, None, after, 2), expected, "{case}: {cron}");
    }
}

#[test]
fn what_is_no_schedule_says_what_is_wrong_with_it() {
    for (cron, expected) in [
        ("0 3 * *", "a schedule has five fields (minute hour day month weekday), found 4"),
        ("0 0 3 * * *", "a schedule has five fields (minute hour day month weekday), found 6"),
        ("60 3 * * *", "\"60\" is no minute of a schedule: it takes numbers from 0 to 59"),
        (
            "0 3 * foo *",
            "\"foo\" is no month of a schedule: it takes numbers from 1 to 12, or jan to dec",
        ),
        (
            "0 3 * * 8",
            "\"8\" is no weekday of a schedule: it takes numbers from 0 to 7, or sun to sat",
        ),
        ("0 3 L * *", "\"L\" is no day of a schedule: it takes numbers from 1 to 31"),
        ("*/0 * * * *", "\"*/0\" is no minute of a schedule: a step is a number above 0"),
        ("0 20-4 * * *", "\"20-4\" is no hour of a schedule: 20 comes after 4; write two ranges"),
        ("0 0 30 2 *", "no date ever matches this schedule"),
        (
            "@reboot",
            "@reboot is no schedule; use five fields, or @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly",
        ),
    ] {
        assert_eq!(Cron::parse(cron).unwrap_err().to_string(), expected);
    }
    assert!(Cron::parse("@every 5m").is_err() && Cron::parse("").is_err());
    let long = format!("{} * * * *", "1,".repeat(200));
    assert_eq!(Cron::parse(&long), Err(InvalidCron::Long));
    let zone = ZoneName::new("Europe/Berlim").unwrap_err().to_string();
    assert_eq!(zone, "there is no time zone \"Europe/Berlim\"; use a name such as Europe/Berlin");
}

#[test]
fn clocks_that_are_put_forward_and_back_neither_lose_nor_repeat_a_slot() {
    let berlin = Some("Europe/Berlin");
    // Clocks jump from 2 to 3 at 01:00 UTC on 2026-03-29, and from 3 back to 2 at 01:00 UTC on 2026-10-25.
    let (spring, autumn) = ("2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z");
    for (case, cron, after, expected) in [
        ("before and after", "0 3 * * *", spring, ["2026-03-29T01:00Z", "2026-03-30T01:00Z"]),
        (
            "left out: when it jumps",
            "30 2 * * *",
            spring,
            ["2026-03-29T01:00Z", "2026-03-30T00:30Z"],
        ),
        (
            "once for all of them",
            "*/10 2 * * *",
            spring,
            ["2026-03-29T01:00Z", "2026-03-30T00:00Z"],
        ),
        ("twice: the first", "30 2 * * *", autumn, ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]),
        ("and after it", "0 3 * * *", autumn, ["2026-10-25T02:00Z", "2026-10-26T02:00Z"]),
        (
            "from within",
            "30 2 * * *",
            "2026-10-25T00:30:00Z",
            ["2026-10-26T01:30Z", "2026-10-27T01:30Z"],
        ),
        (
            "from its second half",
            "45 2 * * *",
            "2026-10-25T01:10:00Z",
            ["2026-10-26T01:45Z", "2026-10-27T01:45Z"],
        ),
        (
            "hourly goes on",
            "30 * * * *",
            "2026-10-25T00:00:00Z",
            ["2026-10-25T00:30Z", "2026-10-25T01:30Z"],
        ),
        (
            "hourly leaves nothing out",
            "30 * * * *",
            "2026-03-29T00:00:00Z",
            ["2026-03-29T00:30Z", "2026-03-29T01:30Z"],
        ),
    ] {
        assert_eq!(next(cron, berlin, after, 2), expected, "{case}: {cron}");
    }
}

/// Minute by minute: what the clock of the zone shows for the first time, and what it never shows at the moment it jumps.
#[test]
fn every_slot_around_a_change_of_the_clock_is_found_and_no_other() {
    const MINUTE: u64 = 60_000;
    for (zone, change) in [
        ("Europe/Berlin", "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-10-25T01:00:00Z"),
        ("America/New_York", "2026-03-08T07:00:00Z"),
        ("America/New_York", "2026-11-01T06:00:00Z"),
        // By half an hour.
        ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        // At midnight.
        ("Africa/Cairo", "2026-04-23T22:00:00Z"),
        ("Asia/Kolkata", "2026-03-29T01:00:00Z"),
    ] {
        let tz = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
        let local = |minute: u64| {
            let moment = jiff::Timestamp::from_millisecond(i64::try_from(minute).unwrap()).unwrap();
            tz.to_datetime(moment)
        };
        for cron in ["*/15 0-3 * * *", "30 2 * * sun", "7 * * * *", "0 0 * * *"] {
            let schedule = schedule(cron, Some(zone));
            let mut minute = at(change).0 - 25 * 60 * MINUTE;
            let mut slot = schedule.next(Timestamp(minute)).unwrap();
            let mut newest = local(minute);
            for _ in 0..50 * 60 {
                minute += MINUTE;
                let shown = local(minute);
                let is_due = if schedule.cron.is_hourly() {
                    schedule.cron.next(shown) == Some(shown)
                } else {
                    // All that the clock has come to since the latest time it ever showed.
                    let from = newest.checked_add(jiff::ToSpan::minute(1)).unwrap();
                    schedule.cron.next(from).is_some_and(|next| next <= shown)
                };
                newest = newest.max(shown);
                assert_eq!(slot.0 == minute, is_due, "{cron} in {zone} at {shown}");
                if is_due {
                    slot = schedule.next(slot).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_schedule_is_written_as_its_text() {
    let cron = Cron::parse("  0   3 * *  mon ").unwrap();
    assert_eq!(serde_json::to_string(&cron).unwrap(), "\"0 3 * * mon\"");
    let read: Cron = postcard::from_bytes(&postcard::to_stdvec(&cron).unwrap()).unwrap();
    assert_eq!(read, cron);
    assert!(serde_json::from_str::<Cron>("\"0 3\"").is_err());
    let nightly = schedule("0 3 * * *", Some("europe/berlin"));
    assert_eq!(nightly.to_string(), "0 3 * * * (Europe/Berlin)");
}
