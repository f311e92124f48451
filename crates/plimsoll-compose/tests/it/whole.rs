//! What only shows in the whole file: dependencies, ports, routes, profiles.

use expect_test::expect;
use plimsoll_model::spec::{Dependency, RouteSpec, Tls};

use crate::case::file;

#[test]
fn dependencies_have_a_short_and_a_long_form() {
    let text = "\
services:
  db: {image: x}
  cache: {image: x}
  init: {image: x}
  web:
    image: x
    depends_on:
      db: {condition: service_healthy}
      init: {condition: service_completed_successfully, restart: true}
      cache:
      metrics: {condition: service_started, required: false}
  short: {image: x, depends_on: [db], links: [cache, 'db:db']}
";
    let case = file(text);
    let depends_on = |service: &str| -> Vec<(String, Dependency)> {
        let edges = case.service(service).depends_on.into_iter();
        edges.map(|(name, condition)| (name.to_string(), condition)).collect()
    };
    let edge = |name: &str, condition| (name.to_owned(), condition);
    assert_eq!(
        depends_on("web"),
        [
            edge("cache", Dependency::Started),
            edge("db", Dependency::Healthy),
            edge("init", Dependency::Completed)
        ]
    );
    let short = [edge("cache", Dependency::Started), edge("db", Dependency::Started)];
    assert_eq!(depends_on("short"), short);
    assert_eq!(
        case.warnings(),
        ["`restart` is ignored: a change rolls the service it is made to, and no other"]
    );
}

#[test]
fn a_dependency_that_is_not_there_is_refused() {
    let text = "services:\n  web: {image: x, depends_on: [bd, other]}\n  db: {image: x}\n";
    expect![[r#"
        error: service "web" depends on "bd", and there is no such service
         --> compose.yaml:2:32
          |
        2 |   web: {image: x, depends_on: [bd, other]}
          |                                ^^
        hint: did you mean `db`?

        error: service "web" depends on "other", and there is no such service
         --> compose.yaml:2:36
          |
        2 |   web: {image: x, depends_on: [bd, other]}
          |                                    ^^^^^
    "#]]
    .assert_eq(&file(text).refusal());
}

#[test]
fn a_service_with_profiles_is_there_only_when_one_is_active() {
    let text = "\
services:
  web: {image: x}
  debug: {image: x, profiles: [debug, dev]}
  job: {image: x, profiles: [job]}
";
    let names = |case: crate::case::Case| -> Vec<String> {
        case.load().deployment.services.keys().map(ToString::to_string).collect()
    };
    assert_eq!(names(file(text)), ["web"]);
    assert_eq!(names(file(text).profile("dev")), ["debug", "web"]);
    assert_eq!(names(file(text).profile("dev").profile("job")), ["debug", "job", "web"]);
    assert_eq!(names(file(text).profile("*")), ["debug", "job", "web"]);
}

#[test]
fn a_file_that_leaves_out_all_its_services_is_refused() {
    let text = "services:\n  debug: {image: x, profiles: [debug, dev]}\n";
    expect![[r#"
        error: no active profile includes any service of the file
         --> compose.yaml:2:3
          |
        2 |   debug: {image: x, profiles: [debug, dev]}
          |   ^^^^^
        hint: activate one, such as `--profile debug`
    "#]]
    .assert_eq(&file(text).refusal());
    assert_eq!(file(text).profile("dev").load().deployment.services.len(), 1);
    assert_eq!(file("services: {x-a: {image: x}}\n").errors(), ["the file has no services"]);
}

#[test]
fn a_dependency_on_a_service_that_is_left_out_is_refused_unless_it_may_be_missing() {
    let text = "\
services:
  web: {image: x, depends_on: [db]}
  db: {image: x, profiles: [data]}
";
    expect![[r#"
        error: service "web" depends on "db", which no active profile includes
         --> compose.yaml:2:32
          |
        2 |   web: {image: x, depends_on: [db]}
          |                                ^^
        hint: activate it with `--profile data`
    "#]]
    .assert_eq(&file(text).refusal());
    let optional = text.replace("[db]}", "{db: {condition: service_started, required: false}}}");
    assert!(file(&optional).service("web").depends_on.is_empty());
    assert_eq!(file(&optional).profile("data").service("web").depends_on.len(), 1);
}

#[test]
fn a_service_that_is_left_out_reads_no_files_but_its_keys_are_checked() {
    let text =
        "services:\n  web: {image: x}\n  dev: {image: x, profiles: [dev], env_file: none.env}\n";
    assert_eq!(file(text).load().deployment.services.len(), 1);
    let text = text.replace("env_file", "envfile");
    assert_eq!(file(text).errors(), ["unknown key `envfile` in a service"]);
}

#[test]
fn ports_meet_when_two_services_need_one() {
    for (case, a, b, meets) in [
        ("the same port", "'80:1'", "'80:2'", true),
        ("another protocol", "'80:1'", "'80:1/udp'", false),
        ("ranges that overlap", "'80-90:80-90'", "'85-95:85-95'", true),
        ("ranges side by side", "'80-84:80-84'", "'85-95:85-95'", false),
        ("an address and any", "'127.0.0.1:80:1'", "'80:1'", true),
        ("two addresses", "'127.0.0.1:80:1'", "'127.0.0.2:80:1'", false),
        ("all addresses and one of them", "'0.0.0.0:80:1'", "'127.0.0.2:80:1'", true),
        ("both families", "'0.0.0.0:80:1'", "'[::]:80:1'", false),
        ("no published port", "'80'", "'80'", false),
        ("host ports, on two nodes", HOST, HOST, false),
        ("a host port and a routed one", HOST, "'80:80'", true),
    ] {
        let text = format!(
            "services:\n  a: {{image: x, ports: [{a}]}}\n  b: {{image: x, ports: [{b}]}}\n"
        );
        assert_eq!(!file(&text).errors().is_empty(), meets, "{case}");
    }
    let text = format!("services:\n  a: {{image: x, ports: [{HOST}, {HOST}]}}\n");
    let twice = "port 80/tcp is published twice, by \"a\" and \"a\"";
    assert_eq!(file(text).errors(), [twice], "one service");
}

const HOST: &str = "{target: 80, published: 80, mode: host}";

#[test]
fn routes_are_read() {
    let text = "\
services: {web: {image: x}, api: {image: x}}
x-plimsoll:
  routes:
    - {host: shop.example.org, service: web, port: 80, tls: internal}
    - {host: shop.example.org, path: /api, strip_path: true, service: api, port: '3000'}
    - {host: b.example.org, service: web, port: 80, tls: files}
    - {service: web, port: 80}
";
    let route = |host: Option<&str>, path: &str, strip_path, service: &str, port, tls| RouteSpec {
        host: host.map(str::to_owned),
        path: path.to_owned(),
        strip_path,
        service: service.parse().unwrap(),
        port,
        tls,
    };
    let host = Some("shop.example.org");
    assert_eq!(
        file(text).load().deployment.routes,
        [
            route(host, "/", false, "web", 80, Tls::Internal),
            route(host, "/api", true, "api", 3000, Tls::Off),
            route(Some("b.example.org"), "/", false, "web", 80, Tls::Files),
            route(None, "/", false, "web", 80, Tls::Off),
        ]
    );
}

#[test]
fn a_route_that_leads_nowhere_is_refused() {
    let text = "\
services: {web: {image: x}}
x-plimsoll:
  routes:
    - {host: a.example.org, service: wbe, port: 80}
    - {host: https://a.example.org, service: web, port: 0}
    - {path: api, service: web, port: 80, tls: acme}
    - {host: b.example.org, port: 80}
    - {host: c.example.org, service: web, port: 80}
    - {host: c.example.org, service: web, port: 81, strip_paht: true}
";
    expect![[r#"
        error: the route targets "wbe", and there is no such service
         --> compose.yaml:4:38
          |
        4 |     - {host: a.example.org, service: wbe, port: 80}
          |                                      ^^^
        hint: did you mean `web`?

        error: "https://a.example.org" is not a host name
         --> compose.yaml:5:14
          |
        5 |     - {host: https://a.example.org, service: web, port: 0}
          |              ^^^^^^^^^^^^^^^^^^^^^
        hint: write shop.example.org, without scheme, port or path

        error: `port` must be a whole number between 1 and 65535, found "0"
         --> compose.yaml:5:57
          |
        5 |     - {host: https://a.example.org, service: web, port: 0}
          |                                                         ^

        error: `path` must begin with /, found "api"
         --> compose.yaml:6:14
          |
        6 |     - {path: api, service: web, port: 80, tls: acme}
          |              ^^^

        error: `tls` must be off, internal, files or auto, found "acme"
         --> compose.yaml:6:48
          |
        6 |     - {path: api, service: web, port: 80, tls: acme}
          |                                                ^^^^

        error: a route needs `service`
         --> compose.yaml:7:7
          |
        7 |     - {host: b.example.org, port: 80}
          |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

        error: two routes for c.example.org, path /
         --> compose.yaml:9:38
          |
        9 |     - {host: c.example.org, service: web, port: 81, strip_paht: true}
          |                                      ^^^ again here
          |
         ::: compose.yaml:8:38
          |
        8 |     - {host: c.example.org, service: web, port: 80}
          |                                      --- first here

        error: unknown key `strip_paht` in an entry of x-plimsoll.routes
         --> compose.yaml:9:53
          |
        9 |     - {host: c.example.org, service: web, port: 81, strip_paht: true}
          |                                                     ^^^^^^^^^^
        hint: did you mean `strip_path`?
    "#]]
    .assert_eq(&file(text).refusal());
}

#[test]
fn a_wildcard_gets_no_certificate_of_an_acme_authority() {
    let text = "\
services: {web: {image: x}}
x-plimsoll:
  routes:
    - {host: '*.example.org', service: web, port: 80, tls: auto}
";
    expect![[r#"
        error: `tls: auto` gets no certificate for a wildcard
         --> compose.yaml:4:60
          |
        4 |     - {host: '*.example.org', service: web, port: 80, tls: auto}
          |                                                            ^^^^
        hint: an ACME authority proves single hosts over HTTP; name each, or use `tls: files`
    "#]]
    .assert_eq(&file(text).refusal());
}

#[test]
fn a_certificate_needs_a_host() {
    let text = "\
services: {web: {image: x}}
x-plimsoll:
  routes:
    - {service: web, port: 80, tls: internal}
";
    expect![[r#"
        error: a certificate is for a host, and none is named
         --> compose.yaml:4:37
          |
        4 |     - {service: web, port: 80, tls: internal}
          |                                     ^^^^^^^^
        hint: name one with `host`
    "#]]
    .assert_eq(&file(text).refusal());
}
