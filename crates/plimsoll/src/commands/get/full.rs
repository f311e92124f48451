//! One replica, with all that is known of it.

use plimsoll_api::view::{Assignment, Deployment, Replica, Service};
use plimsoll_model::Timestamp;

use super::{cpu, memory, short};
use crate::age::{age, until};
use crate::replica_line::{coloured, said};
use crate::table::Table;

pub(crate) fn text(
    deployment: &Deployment,
    service: &Service,
    replica: &Replica,
    now: Timestamp,
) -> String {
    let mut table = Table::list(2);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("service", format!("{}/{}", deployment.name, service.name));
    if let Some(place) = &replica.now {
        assignment(&mut row, "", place, now);
    }
    if let Some(next) = &replica.next {
        assignment(&mut row, "next ", next, now);
    }
    if let Some(cause) = &replica.cause {
        row("cause", cause.to_string());
    }
    if let Some(why) = &replica.waiting {
        row("waits", said(why));
    }
    for place in &replica.leaving {
        row("leaving", format!("{} on {}", coloured(&place.state), place.node));
    }
    format!("{}\n{}", replica.id, table.render())
}

fn assignment(
    row: &mut impl FnMut(&str, String),
    prefix: &str,
    place: &Assignment,
    now: Timestamp,
) {
    let mut row = |name: &str, value: String| row(&format!("{prefix}{name}"), value);
    row("node", place.node.clone());
    row("state", format!("{} for {}", coloured(&place.state), age(place.since, now)));
    if let Some(reason) = &place.reason {
        row("reason", said(reason));
    }
    if place.failures > 0 {
        row("failures", format!("{} in a row", place.failures));
    }
    if let Some(at) = place.next_try {
        row("next try", until(at, now));
    }
    row("image", place.image.clone());
    row("revision", place.revision.to_string());
    row("spec", short(&place.spec));
    row("generation", place.generation.to_string());
    if place.cpu_millis.is_some() || place.memory_bytes.is_some() {
        row("uses", format!("{} cpu, {}", cpu(place.cpu_millis), memory(place.memory_bytes)));
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::sample::{NOW, With, deployment, in_state, unpulled};

    #[test]
    fn a_replica_in_full() {
        let shop = deployment("shop").service("web", 1).replica("shop-web-1", |replica| {
            replica.now = Some(unpulled("ash"));
            replica.next = Some(in_state("birch", 3, "starting"));
            replica.cause = Some(plimsoll_api::view::ReasonCode::NodeLost);
        });
        let service = &shop.services[0];
        let text = text(&shop, service, &service.replicas[0], NOW);
        expect![[r#"
            shop-web-1
              service          shop/web
              node             ash
              state            pending for 3s
              reason           image_pull_failed: web:1.99: manifest unknown
              failures         3 in a row
              next try         in 8s
              image            web:1.23
              revision         3
              spec             spec-3
              generation       7
              uses             0.12 cpu, 48 MiB
              next node        birch
              next state       starting for 3s
              next image       web:1.23
              next revision    3
              next spec        spec-3
              next generation  7
              next uses        0.12 cpu, 48 MiB
              cause            node_lost
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&text).to_string());
    }
}
