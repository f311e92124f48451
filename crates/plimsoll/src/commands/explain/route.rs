//! Where a request goes, as a daemon says.

use plimsoll_api::client::Client;
use plimsoll_api::view::{RouteContainer, RouteExplanation, RouteQuery};

use crate::commands::get::certificates;
use crate::commands::get::routes::name;
use crate::error::CliError;
use crate::output::{Format, print};
use crate::replica_line::plain;
use crate::table::Table;
use crate::wait::now;
use plimsoll_model::Timestamp;

pub(super) async fn run(client: &Client, asked: &str, format: Format) -> Result<(), CliError> {
    let explanation = client.explain_route(&query(asked)).await?;
    print(format, &explanation, |explanation| text(explanation, now()))
}

/// `shop.example/api`, also as a browser shows it.
fn query(asked: &str) -> RouteQuery {
    let bare = asked.split_once("://").map_or(asked, |(_, rest)| rest);
    let bare = bare.split(['?', '#']).next().unwrap_or(bare);
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    RouteQuery { host: host.to_owned(), path: format!("/{path}") }
}

fn text(explanation: &RouteExplanation, now: Timestamp) -> String {
    let RouteExplanation { route, certificate, told_by, containers } = explanation;
    let (deployment, service, port) = (&route.deployment, &route.service, route.port);
    let mut text = format!("{} leads to {deployment}/{service} port {port}", name(route));
    if route.strip_path {
        text.push_str(", without the path");
    }
    if route.tls != "off" {
        text.extend([", under TLS (", &route.tls, ")"]);
    }
    text.push('\n');
    if let Some(certificate) = certificate {
        text.extend([&certificates::line(certificate, now), "\n"]);
    }
    for note in &route.notes {
        text.extend(["not from ", &note.subject, ": ", &plain(&note.text), "\n"]);
    }
    if containers.is_empty() {
        text.push_str("there is no container of it: requests are answered 503\n");
    }
    let mut table = Table::list(4);
    for container in containers {
        let RouteContainer { replica, generation, node, reason, .. } = container;
        let detail = plain(&reason.text) + &under_way(container, told_by);
        let replica = format!("{replica} ({generation})");
        table.row([replica, node.clone(), reason.word.to_string(), detail]);
    }
    text + &table.render()
}

fn under_way(container: &RouteContainer, told_by: &str) -> String {
    let open = container.in_flight.filter(|open| *open > 0);
    open.map(|open| format!("; {open} in flight from {told_by}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::{Reason, ReasonCode, Route};

    use super::*;

    #[test]
    fn a_request_is_named_as_people_have_it() {
        for (asked, host, path) in [
            ("shop.example/api/v1", "shop.example", "/api/v1"),
            ("shop.example", "shop.example", "/"),
            ("https://shop.example:8443/a?b=c#d", "shop.example:8443", "/a"),
        ] {
            assert_eq!(
                query(asked),
                RouteQuery { host: host.into(), path: path.into() },
                "{asked}"
            );
        }
    }

    #[test]
    fn every_container_has_its_say() {
        let container = |replica: &str, takes_requests, in_flight, word: ReasonCode, text: &str| {
            let reason = Reason::new(replica, word, text);
            let (replica, node) = (replica.to_owned(), "ash".to_owned());
            RouteContainer { replica, generation: 3, node, takes_requests, in_flight, reason }
        };
        let route = Route {
            host: Some("shop.example".into()),
            path: "/api".into(),
            deployment: "shop".into(),
            service: "web".into(),
            port: 80,
            strip_path: true,
            tls: "internal".into(),
            taking: 1,
            notes: Vec::new(),
        };
        let containers = vec![
            container(
                "shop-web-1",
                true,
                Some(2),
                ReasonCode::TakesRequests,
                "running and healthy",
            ),
            container("shop-web-2", false, None, ReasonCode::Degraded, "it is degraded"),
        ];
        let explanation =
            RouteExplanation { route, certificate: None, told_by: "birch".into(), containers };
        expect![[r#"
            shop.example/api leads to shop/web port 80, without the path, under TLS (internal)
              shop-web-1 (3)  ash  takes_requests  running and healthy; 2 in flight from birch
              shop-web-2 (3)  ash  degraded        it is degraded
        "#]]
        .assert_eq(&text(&explanation, Timestamp(0)));
    }
}
