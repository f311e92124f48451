//! Routes as a table.

use plimsoll_api::view::Route;

use crate::replica_line::plain;
use crate::table::Table;

pub(super) fn text(all: &[Route]) -> String {
    let mut table = Table::new(["ROUTE", "SERVICE", ">PORT", "TLS", ">TAKING", "DETAIL"]);
    for route in all {
        table.row([
            name(route),
            format!("{}/{}", route.deployment, route.service),
            route.port.to_string(),
            route.tls.clone(),
            route.taking.to_string(),
            detail(route),
        ]);
    }
    table.render()
}

/// `shop.example/api`, or `*/api` for every host.
pub(crate) fn name(route: &Route) -> String {
    format!("{}{}", route.host.as_deref().unwrap_or("*"), route.path)
}

fn detail(route: &Route) -> String {
    let stripped = route.strip_path.then(|| "the path is stripped".to_owned());
    let nobody = (route.taking == 0).then(|| "no replica takes requests".to_owned());
    let notes = route.notes.iter().map(|note| format!("{}: {}", note.subject, plain(&note.text)));
    stripped.into_iter().chain(nobody).chain(notes).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::{Reason, ReasonCode};

    use super::*;

    #[test]
    fn routes_say_where_they_lead_and_whether_anyone_is_there() {
        let shop = Route {
            host: Some("shop.example".into()),
            path: "/api".into(),
            deployment: "shop".into(),
            service: "web".into(),
            port: 80,
            strip_path: true,
            tls: "files".into(),
            taking: 2,
            notes: vec![Reason::new(
                "ash",
                ReasonCode::NoCertificate,
                "cannot read shop.example.crt",
            )],
        };
        let all = Route {
            host: None,
            path: "/".into(),
            tls: "off".into(),
            strip_path: false,
            taking: 0,
            notes: Vec::new(),
            ..shop.clone()
        };
        expect![[r#"
            ROUTE             SERVICE   PORT  TLS    TAKING  DETAIL
            shop.example/api  shop/web    80  files       2  the path is stripped; ash: cannot read shop.example.crt
            */                shop/web    80  off         0  no replica takes requests
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&text(&[shop, all])).to_string());
    }
}
