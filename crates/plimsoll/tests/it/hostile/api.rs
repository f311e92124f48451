//! The API's doors: TCP, and the socket of a node that holds no log.

use std::fs;
use std::time::{Duration, Instant};

use plimsoll_lab::NAMES;

use super::{AGENT, code, mallory, operators, run_with, say_tcp, say_unix, token, with_agent};
use crate::harness::{Cell, Site};

/// Everything that ever said who asks, however it is written, with one of each twice.
const FORGED: [(&str, &str); 5] = [
    ("Plimsoll-Identity", "unix:root@ash"),
    ("plimsoll-identity", "unix:root@ash"),
    ("PLIMSOLL-ROLE", "admin"),
    ("plimsoll-role", "admin"),
    ("plimsoll-leader-at", "{}"),
];

fn bearer(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}

#[test]
fn a_node_that_holds_no_log_lets_nobody_through_who_was_not_checked_by_a_server() {
    let cell = with_agent();
    let (reader, admin) = (token(&cell, "reader", "read"), token(&cell, "boss", "admin"));
    let operator = ("POST /v1/operators", mallory());
    let backup = ("POST /v1/backup", Vec::new());

    // Over TCP, with any text for a token and our own headers.
    for (line, body) in [&operator, &backup] {
        for given in ["nonsense", "", "plo_nonsense"] {
            let (name, value) = bearer(given);
            let headers: Vec<_> = FORGED.into_iter().chain([(name, value.as_str())]).collect();
            let answer = say_tcp(&cell, AGENT, line, &headers, body).unwrap();
            assert_eq!(answer.0, 401, "{line} with {given:?}: {}", answer.1);
        }
        let (name, value) = bearer(&reader);
        let headers: Vec<_> = FORGED.into_iter().chain([(name, value.as_str())]).collect();
        let answer = say_tcp(&cell, AGENT, line, &headers, body).unwrap();
        assert_eq!((answer.0, code(&answer).as_str()), (403, "forbidden"), "{line}: {}", answer.1);
    }
    // A header about the connection takes nothing of ours away, nor the token.
    for named in ["authorization", "close, AUTHORIZATION", "plimsoll-identity", "x , Plimsoll-Role"]
    {
        for at in [AGENT, 1] {
            let (name, value) = bearer(&reader);
            let headers = [("Connection", named), (name, &value)];
            let body = br#"{"services": {"web": 1}}"#;
            let answer =
                say_tcp(&cell, at, "POST /v1/deployments/shop/scale", &headers, body).unwrap();
            assert_eq!(answer.0, 400, "{named} at {}: {}", NAMES[at], answer.1);
        }
    }

    // On its socket: what anyone with a role may read, and nothing else without a token.
    for line in ["GET /v1/status", "GET /v1/nodes", "GET /v1/deployments/shop"] {
        assert_eq!(say_unix(&cell, AGENT, line, &FORGED, b"").unwrap().0, 200, "{line}");
    }
    let exec = br#"{"command": ["true"]}"#.to_vec();
    for (line, body) in [
        operator.clone(),
        backup.clone(),
        ("GET /v1/operators", Vec::new()),
        ("POST /v1/tokens/join", b"{}".to_vec()),
        ("GET /v1/deployments/shop/logs", Vec::new()),
        ("GET /v1/replicas/shop-web-1/logs", Vec::new()),
        ("POST /v1/replicas/shop-web-1/exec", exec),
        ("DELETE /v1/deployments/shop", Vec::new()),
    ] {
        let answer = say_unix(&cell, AGENT, line, &FORGED, &body).unwrap();
        assert_eq!((answer.0, code(&answer).as_str()), (401, "token_needed"), "{line}");
    }
    // Its own token is no more than its socket.
    let own = fs::read_to_string(cell.path(AGENT).join("api.token")).unwrap();
    let (name, value) = bearer(own.trim());
    let own = [(name, value.as_str())];
    assert_eq!(say_tcp(&cell, AGENT, "GET /v1/nodes", &own, b"").unwrap().0, 200);
    let answer = say_tcp(&cell, AGENT, operator.0, &own, &operator.1).unwrap();
    assert_eq!((answer.0, code(&answer).as_str()), (401, "token_needed"));
    assert_eq!(operators(&cell), ["boss", "reader"]);

    // Who has a token is known by it, and by the node that passed it on.
    let refused = run_with(&cell, AGENT, &reader, "scale shop web=7 -d");
    assert!(refused.text().contains("token reader has role read"), "{}", refused.text());
    let scaled = run_with(&cell, AGENT, &admin, "scale shop web=7 -d");
    assert_eq!(scaled.code(), 0, "{}", scaled.text());
    let history = cell.json(0, "history shop -o json");
    let by: Vec<&str> =
        history.as_array().unwrap().iter().filter_map(|it| it["by"].as_str()).collect();
    assert!(by.contains(&"token:boss@larch"), "{by:?}");
}

#[test]
fn a_write_is_audited_as_who_asked_for_it_whatever_they_say_of_themselves() {
    let cell = Cell::of_three(Site::Loopback);
    let ci = token(&cell, "ci", "admin");
    let leader = cell.until_led(&[0, 1, 2]);
    for (nth, at) in cell.nodes().enumerate() {
        cell.until("the token is good everywhere", |cell| {
            let (name, value) = bearer(&ci);
            say_tcp(cell, at, "GET /v1/nodes", &[(name, &value)], b"").is_some_and(|it| it.0 == 200)
        });
        let (name, value) = bearer(&ci);
        let headers: Vec<_> = FORGED.into_iter().chain([(name, value.as_str())]).collect();
        let body = format!(r#"{{"name": "of-ci-{nth}", "role": "read"}}"#);
        let made = say_tcp(&cell, at, "POST /v1/operators", &headers, body.as_bytes()).unwrap();
        assert_eq!(made.0, 200, "{}", made.1);
        let body = format!(r#"{{"name": "of-root-{nth}", "role": "read"}}"#);
        let made = say_unix(&cell, at, "POST /v1/operators", &FORGED, body.as_bytes()).unwrap();
        assert_eq!(made.0, 200, "{}", made.1);
    }
    let events = cell.json(leader, "audit --type operator_added -o json");
    for at in cell.nodes() {
        let by = |name: &str| {
            let mut all = events.as_array().unwrap().iter();
            let event = all.find(|event| event.to_string().contains(&format!("{name}-{at}")));
            event.unwrap()["by"].as_str().unwrap().to_owned()
        };
        let way = if at == leader { String::new() } else { format!("@{}", NAMES[at]) };
        assert_eq!(by("of-ci"), format!("token:ci{way}"));
        assert!(by("of-root").starts_with("unix:") && by("of-root").ends_with(&way));
        assert!(!by("of-root").contains("@ash@"), "{}", by("of-root"));
    }
}

#[test]
fn a_node_that_has_just_joined_lets_nobody_through() {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    for at in 1..3 {
        let join = cell.token(0);
        cell.launch(at, Some(&join));
        let (name, value) = bearer("nonsense");
        let headers: Vec<_> = FORGED.into_iter().chain([(name, value.as_str())]).collect();
        let (mut first, mut asked) = (None, 0);
        // From its first answer until it has long been a server.
        while first.is_none_or(|first: Instant| first.elapsed() < Duration::from_secs(3)) {
            let Some(answer) = say_tcp(&cell, at, "POST /v1/operators", &headers, &mallory())
            else {
                continue;
            };
            first.get_or_insert_with(Instant::now);
            asked += 1;
            assert!([401, 503].contains(&answer.0), "{}: {}", answer.0, answer.1);
            // Nor does it leave anything out of the cell to whoever is on its host with a name of their own.
            let answer = say_unix(&cell, at, "GET /v1/nodes", &FORGED, b"");
            assert!(answer.is_none_or(|(status, _)| [200, 503].contains(&status)));
        }
        assert!(asked > 10, "{asked}");
        assert_eq!(operators(&cell), Vec::<String>::new());
    }
}
