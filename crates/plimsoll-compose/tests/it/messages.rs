//! Mistakes that people make often, and the texts that tell them so.

use expect_test::expect;

use crate::case::{file, web};

#[test]
fn a_port_of_four_parts_is_told_from_a_bad_address() {
    let case = web("ports: ['80:80:80:80', 'local:80:80', '[::1]:80:81']");
    expect![[r#"
        error: a port has at most three parts, address:published:target, and this has 4
         --> compose.yaml:4:13
          |
        4 |     ports: ['80:80:80:80', 'local:80:80', '[::1]:80:81']
          |             ^^^^^^^^^^^^^
        hint: write "8080:80", "127.0.0.1:8080:80/udp" or "8000-8002:80-82"

        error: "local" is not an IP address
         --> compose.yaml:4:28
          |
        4 |     ports: ['80:80:80:80', 'local:80:80', '[::1]:80:81']
          |                            ^^^^^^^^^^^^^
        hint: write "8080:80", "127.0.0.1:8080:80/udp" or "8000-8002:80-82"
    "#]]
    .assert_eq(&case.refusal());
}

#[test]
fn services_at_the_top_level_are_told_where_they_belong() {
    expect![[r#"
        error: `web` looks like a service, and stands at the top level
         --> compose.yaml:1:1
          |
        1 | web:
          | ^^^
        hint: write `services:` on a line of its own, and `web:` below it, indented
    "#]]
    .assert_eq(&file("web:\n  image: nginx\n").refusal());
}

#[test]
fn an_anchor_that_is_not_there_is_named_with_a_guess() {
    let text = "x-base: &base {image: x}\nservices:\n  web: *bass\n";
    expect![[r#"
        error: `*bass` names no anchor above it
         --> compose.yaml:3:8
          |
        3 |   web: *bass
          |        ^^^^^
        hint: did you mean `*base`?
    "#]]
    .assert_eq(&file(text).refusal());
    expect![[r#"
        error: `*base` names no anchor above it
         --> compose.yaml:2:8
          |
        2 |   web: *base
          |        ^^^^^
        hint: `&base` stands further down: anchors come before their use
    "#]]
    .assert_eq(&file("services:\n  web: *base\nx-base: &base {image: x}\n").refusal());
    expect![[r#"
        error: `*other` names no anchor above it
         --> compose.yaml:2:8
          |
        2 |   web: *other
          |        ^^^^^^
        hint: mark what is meant with `&other`, above this line
    "#]]
    .assert_eq(&file("services:\n  web: *other\n").refusal());
}

#[test]
fn a_quote_that_stays_open_is_pointed_at() {
    let text = "services:\n  web:\n    image: \"nginx\n    user: nobody\n  db: {image: postgres}\n";
    expect![[r#"
        error: this quote is never closed
         --> compose.yaml:3:12
          |
        3 |     image: "nginx
          |            ^
        hint: close it on the same line
    "#]]
    .assert_eq(&file(text).refusal());
}

#[test]
fn tabs_are_told_to_be_tabs() {
    expect![[r#"
        error: a tab indents this line
         --> compose.yaml:3:1
          |
        3 |     image: nginx
          | ^
        hint: YAML takes spaces only: replace the tab
    "#]]
    .assert_eq(&file("services:\n  web:\n\timage: nginx\n").refusal());
}

#[test]
fn what_is_declared_under_almost_that_name_is_offered() {
    let text = "\
services:
  web:
    image: x
    networks: [fornt]
    volumes: ['dta:/data']
    configs: [cnofig]
    secrets: [passwrod]
networks: {front: }
volumes: {data: }
configs: {config: {content: x}}
secrets: {password: {environment: P}}
";
    let errors = file(text).env("P", "x").try_load().unwrap_err();
    let hints: Vec<_> = errors.list.iter().filter_map(|error| error.hint.clone()).collect();
    assert_eq!(
        hints,
        [
            "did you mean `front`? else add `fornt:` under the top-level `networks:`",
            "did you mean `data`? else add `dta:` under the top-level `volumes:`, or write ./dta for a directory",
            "did you mean `config`? else add `cnofig:` under the top-level `configs:`",
            "did you mean `password`? else add `passwrod:` under the top-level `secrets:`",
        ]
    );
}

#[test]
fn a_missing_env_file_offers_the_example_beside_it() {
    for (path, beside, hint) in [
        ("app.env", "app.env.example", "copy app.env.example to app.env and fill it in"),
        ("env/.env", "env/.env.sample", "copy env/.env.sample to env/.env and fill it in"),
        ("app.env", "app.example.env", "copy app.example.env to app.env and fill it in"),
        ("app.env", "other", "`required: false` allows an env file to be missing"),
    ] {
        let errors =
            web(&format!("env_file: {path}")).with(beside, "A=1\n").try_load().unwrap_err();
        assert_eq!(errors.list[0].hint.as_deref(), Some(hint), "{path} beside {beside}");
    }
}

#[test]
fn a_test_that_does_not_say_how_it_runs_is_written_out() {
    let case = web("healthcheck: {test: [CMD-SHELL, curl, -f, localhost]}");
    expect![[r#"
        error: `CMD-SHELL` takes one line, found 3 words
         --> compose.yaml:4:25
          |
        4 |     healthcheck: {test: [CMD-SHELL, curl, -f, localhost]}
          |                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: write ["CMD-SHELL", "curl -f localhost"], or `CMD` to run no shell
    "#]]
    .assert_eq(&case.refusal());
    let hint = |keys: &str| web(keys).try_load().unwrap_err().list[0].hint.clone().unwrap();
    assert_eq!(
        hint("healthcheck: {test: [curl, localhost]}"),
        "write [\"CMD\", \"curl\", \"localhost\"], or all of it as one text"
    );
}

#[test]
fn warnings_are_one_line_a_kind_and_stand_beside_errors() {
    let text = "\
services:
  web:
    image: nginx:$TAG
    attach: true
    volumes: ['./a:/a', './b:/b']
    command: echo $OTHER $1 cost$
    mem_limit: lots
  db: {image: x, attach: false, volumes: ['./a:/a'], user: $TAG}
";
    expect![[r#"
        error: `mem_limit`: "lots" is not a size; write 512m, 2gb or a number of bytes
         --> compose.yaml:7:16
          |
        7 |     mem_limit: lots
          |                ^^^^

        warning: variables that are not set read as empty: TAG, OTHER (compose.yaml:3:19, and 2 more); set it in the shell or in .env, or write ${NAME:-} where empty is meant
        warning: `attach` is ignored: it applies to `docker compose up`; follow any service with `plimsoll logs` (compose.yaml:4:5, and once more)
        warning: these must exist on every node that may run their services: ./a, ./b (compose.yaml:5:15, and 2 more); carry files with `configs:`, keep data in a volume
        warning: these begin no variable and are read as they stand: $1, $ (compose.yaml:6:19, and once more); write $$ for a dollar sign
    "#]]
    .assert_eq(&file(text).refusal());
}

#[test]
fn what_plimsoll_does_anyway_is_not_worth_a_warning() {
    let text = "\
version: '3.8'
services:
  web:
    image: nginx
    restart: always
    container_name: shop-web
    deploy:
      endpoint_mode: vip
      labels: {team: shop}
      restart_policy: {condition: any, delay: 5s, window: 10s}
  db:
    image: postgres
    restart: unless-stopped
    networks: [back]
    deploy: {restart_policy: {condition: always}}
networks: {back: {driver: overlay}, front: {driver: bridge}}
";
    assert_eq!(file(text).warnings(), [] as [&str; 0]);
    let text = "\
services:
  job: {image: x, restart: on-failure, deploy: {endpoint_mode: dnsrr, restart_policy: {condition: none}}}
networks: {odd: {driver: weave}}
";
    assert_eq!(
        file(text).warnings(),
        [
            "`endpoint_mode: dnsrr` is read as `vip`: the name of a service is one address",
            "`driver: weave` is ignored: plimsoll connects the nodes itself",
        ]
    );
}

#[test]
fn a_missing_required_variable_hides_no_other_mistake() {
    let text = "\
services:
  web:
    image: ${IMAGE:?name one}
    ports: ['${PORT:?}:80']
    imgae: x
    mem_limit: ${MEMORY:?how much}
  db: {image: x, depends_on: [wbe]}
";
    assert_eq!(
        file(text).errors(),
        [
            "the variable IMAGE is required and has no value: name one",
            "the variable PORT is required and has no value",
            "unknown key `imgae` in a service",
            "the variable MEMORY is required and has no value: how much",
            "service \"db\" depends on \"wbe\", and there is no such service",
        ]
    );
}

#[test]
fn a_value_that_an_unset_variable_spoilt_says_so() {
    let case = web(
        "deploy: {placement: {constraints: ['node.labels.disk == ${DISK}']}}\nstop_grace_period: ${GRACE}",
    );
    expect![[r#"
        error: "node.labels.disk == " is no constraint: the variable DISK is not set
         --> compose.yaml:4:40
          |
        4 |     deploy: {placement: {constraints: ['node.labels.disk == ${DISK}']}}
          |                                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: DISK is not set: set it in the shell or in .env, or write ${DISK:-default}

        error: `stop_grace_period`: "" is not a duration; write 30s, 1m30s or 500ms
         --> compose.yaml:5:24
          |
        5 |     stop_grace_period: ${GRACE}
          |                        ^^^^^^^^
        hint: GRACE is not set: set it in the shell or in .env, or write ${GRACE:-default}

        warning: variables that are not set read as empty: DISK, GRACE (compose.yaml:4:63, and once more); set it in the shell or in .env, or write ${NAME:-} where empty is meant
    "#]]
    .assert_eq(&case.refusal());
}

#[test]
fn networks_that_plimsoll_does_not_make_are_refused() {
    expect![[r#"
        error: plimsoll makes no macvlan networks
         --> compose.yaml:2:24
          |
        2 | networks: {n: {driver: macvlan}}
          |                        ^^^^^^^
        hint: make it on each node with `docker network create`, and declare it `external: true`
    "#]]
    .assert_eq(
        &file("services: {web: {image: x, networks: [n]}}\nnetworks: {n: {driver: macvlan}}\n")
            .refusal(),
    );
}

#[test]
fn who_speaks_to_swarm_and_who_to_traefik_is_named() {
    let text = "\
services:
  traefik:
    image: traefik
    command: --providers.swarm=true
    volumes: ['/var/run/docker.sock:/var/run/docker.sock']
  portainer:
    image: portainer
    volumes: ['/var/run/docker.sock:/var/run/docker.sock:ro']
    deploy: {placement: {constraints: [node.role == manager]}}
  watcher: {image: x, volumes: ['/var/run/docker.sock:/var/run/docker.sock']}
  web: {image: x, deploy: {labels: ['traefik.http.routers.web.rule=Host(`a.example`)']}}
  api: {image: x, labels: ['traefik.http.routers.api.rule=Host(`b.example`)']}
x-plimsoll: {routes: [{host: b.example, service: api, port: 80}]}
";
    assert_eq!(
        file(text).warnings(),
        [
            "these mount the socket of their node's engine, where Swarm's API does not answer: traefik, portainer",
            "the labels of web say routes to Traefik, and nothing to plimsoll",
        ]
    );
}
