//! Certificates as a table.

use plimsoll_api::view::{Certificate, Time};
use plimsoll_model::Timestamp;

use crate::age;
use crate::replica_line::plain;
use crate::table::Table;

pub(super) fn text(all: &[Certificate], now: Timestamp) -> String {
    let mut table = Table::new(["HOST", "SOURCE", "ISSUER", "EXPIRES", "RENEWAL", "LAST ERROR"]);
    for one in all {
        table.row([
            one.host.clone(),
            one.source.clone(),
            one.issuer.as_deref().map_or_else(nothing, plain),
            one.expires_at.map_or_else(nothing, |at| until(at, now)),
            renewal(one, now),
            one.last_error.as_deref().map(plain).unwrap_or_default(),
        ]);
    }
    table.render()
}

/// What `explain route` says of it, in a line.
pub(crate) fn line(one: &Certificate, now: Timestamp) -> String {
    let mut text = format!("certificate ({})", one.source);
    match (&one.issuer, one.expires_at) {
        (Some(issuer), Some(at)) => {
            text.extend([" by ", &plain(issuer), ", expires ", &until(at, now)]);
        }
        _ => text.push_str(": none"),
    }
    if let Some(at) = one.renew_at {
        text.extend([", renewed ", &until(at, now)]);
    }
    if let Some(error) = &one.last_error {
        text.extend(["; last error: ", &plain(error)]);
    }
    if let Some(at) = one.retry_at {
        text.extend(["; tried again ", &until(at, now)]);
    }
    text
}

fn renewal(one: &Certificate, now: Timestamp) -> String {
    match (one.retry_at, one.renew_at) {
        (Some(retry), _) => format!("retry {}", until(retry, now)),
        (None, Some(renew)) => until(renew, now),
        (None, None) => nothing(),
    }
}

/// `in 59d`, or how long ago.
fn until(at: Time, now: Timestamp) -> String {
    if at.0 > now { age::until(at, now) } else { format!("{} ago", age::age(at, now)) }
}

fn nothing() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_model::Millis;

    use super::*;

    #[test]
    fn certificates_say_who_issued_them_when_they_run_out_and_what_went_wrong() {
        let now = Timestamp(1_800_000_000_000);
        let at = |days: u64| Some(Time(now.plus(Millis::minutes(days * 24 * 60))));
        let good = Certificate {
            host: "shop.example".into(),
            source: "auto".into(),
            deployments: vec!["shop".into()],
            issuer: Some("Pebble Intermediate CA".into()),
            expires_at: at(80),
            renew_at: at(50),
            retry_at: None,
            last_error: None,
            failures: 0,
            told_by: "ash".into(),
        };
        let failing = Certificate {
            host: "blog.example".into(),
            issuer: None,
            expires_at: None,
            renew_at: None,
            retry_at: Some(Time(now.plus(Millis::minutes(5)))),
            last_error: Some("dns: no such name".into()),
            failures: 1,
            ..good.clone()
        };
        let files = Certificate { source: "files".into(), renew_at: None, ..good.clone() };
        expect![[r#"
            HOST          SOURCE  ISSUER                  EXPIRES  RENEWAL      LAST ERROR
            blog.example  auto    -                       -        retry in 5m  dns: no such name
            shop.example  auto    Pebble Intermediate CA  in 80d   in 50d
            shop.example  files   Pebble Intermediate CA  in 80d   -
        "#]]
        .assert_eq(
            &anstream::adapter::strip_str(&text(&[failing.clone(), good.clone(), files], now))
                .to_string(),
        );
        expect![[r#"
            certificate (auto) by Pebble Intermediate CA, expires in 80d, renewed in 50d
            certificate (auto): none; last error: dns: no such name; tried again in 5m
        "#]]
        .assert_eq(&format!("{}\n{}\n", line(&good, now), line(&failing, now)));
    }
}
