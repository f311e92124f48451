//! `plimsoll validate`.

use expect_test::expect;

use crate::run::{directory, plimsoll, plimsoll_reading, run_in};

const SHOP: &str = "\
name: shop
services:
  web:
    image: nginx:1.27
    ports: [\"8080:80\"]
    deploy:
      replicas: 3
      resources: {reservations: {cpus: '0.5', memory: 256M}}
  db:
    image: postgres:16
    volumes: [data:/var/lib/postgresql/data]
    x-plimsoll: {placement: hosts, hosts: [ash]}
  agent:
    image: agent:1
    deploy: {mode: global}
    ports:
      - {target: 9100, published: 9100, mode: host}
volumes:
  data:
";

#[test]
fn a_good_file_is_summed_up() {
    let here = directory("validate_good", [("compose.yaml", SHOP)]);
    expect![[r#"
        exit 0
        --- stdout
        shop: 3 services, 4 replicas

        SERVICE  IMAGE        PLACEMENT        RESERVES          PORTS               DATA       SPEC
        agent    agent:1      global           -                 host 9100:9100/tcp  stateless  fa8c468c89d8
        db       postgres:16  hosts ×1 on ash  -                 -                   stateful   64672ef1c004
        web      nginx:1.27   spread ×3        0.5 cpu, 256 MiB  8080:80/tcp         stateless  28494504638e

        PINNED BY DATA  DATA
        db              volume shop_data
    "#]].assert_eq(&here.run("validate").text());
}

#[test]
fn the_same_facts_come_as_json_and_yaml() {
    let one = "services:\n  web:\n    image: nginx:1.27\n    ports: ['80']\n";
    let json = plimsoll_reading("validate -f - -p try -o json", one);
    expect![[r#"
        exit 0
        --- stdout
        {
          "valid": true,
          "deployment": "try",
          "services": [
            {
              "name": "web",
              "image": "nginx:1.27",
              "placement": "spread",
              "replicas": 1,
              "hosts": [],
              "constraints": [],
              "reserves": {
                "cpus": "0",
                "memory_bytes": 0,
                "gpus": 0,
                "all_gpus": false
              },
              "ports": [
                "*:80/tcp"
              ],
              "stateful": false,
              "priority": 0,
              "spec_hash": "f44e08a791b54e157a803bcc8b6696ef83ba620f20f9b97afa5fe721c9d007ff"
            }
          ],
          "routes": [],
          "pinned": [],
          "warnings": []
        }
    "#]]
    .assert_eq(&json.text());
    let yaml = plimsoll_reading("validate -f - -p try -o yaml", one);
    expect![[r#"
        exit 0
        --- stdout
        valid: true
        deployment: try
        services:
        - name: web
          image: nginx:1.27
          placement: spread
          replicas: 1
          hosts: []
          constraints: []
          reserves:
            cpus: "0"
            memory_bytes: 0
            gpus: 0
            all_gpus: false
          ports:
          - "*:80/tcp"
          stateful: false
          priority: 0
          spec_hash: f44e08a791b54e157a803bcc8b6696ef83ba620f20f9b97afa5fe721c9d007ff
        routes: []
        pinned: []
        warnings: []
    "#]]
    .assert_eq(&yaml.text());
}

#[test]
fn what_is_ignored_is_said_on_stderr() {
    let file = "services:\n  web:\n    image: nginx\n    attach: true\n";
    expect![[r#"
        exit 0
        --- stdout
        try: 1 service, 1 replica

        SERVICE  IMAGE  PLACEMENT  RESERVES  PORTS  DATA       SPEC
        web      nginx  spread ×1  -         -      stateless  9ad75a323188
        --- stderr
        warning: `attach` is ignored: it applies to `docker compose up`; follow any service with `plimsoll logs` (<stdin>:4:5)
    "#]]
    .assert_eq(&plimsoll_reading("validate -f - -p try", file).text());
}

#[test]
fn every_mistake_is_shown_and_counted() {
    let file = "\
services:
  web:
    image: nginx
    deploy: {replicas: -1}
    x-plimsoll: {placement: sprad}
  agent:
    image: agent
    deploy: {mode: global, replicas: 2}
";
    let here = directory("validate_refused", [("compose.yaml", file)]);
    expect![[r#"
        exit 1
        --- stderr
        error: `replicas` must be a whole number between 0 and 100000, found "-1"
         --> compose.yaml:4:24
          |
        4 |     deploy: {replicas: -1}
          |                        ^^

        error: `placement` must be spread, pack, binpack, hosts or global, found "sprad"
         --> compose.yaml:5:29
          |
        5 |     x-plimsoll: {placement: sprad}
          |                             ^^^^^

        error: service "agent" uses placement=global; remove replicas (global runs one replica per ready node)
         --> compose.yaml:8:28
          |
        8 |     deploy: {mode: global, replicas: 2}
          |                            ^^^^^^^^

        refused: 3 errors in compose.yaml
    "#]].assert_eq(&here.run("validate").text());
    expect![[r#"
        {
          "valid": false,
          "errors": [
            {
              "file": "compose.yaml",
              "line": 4,
              "column": 24,
              "message": "`replicas` must be a whole number between 0 and 100000, found \"-1\"",
              "hint": null
            },
            {
              "file": "compose.yaml",
              "line": 5,
              "column": 29,
              "message": "`placement` must be spread, pack, binpack, hosts or global, found \"sprad\"",
              "hint": null
            },
            {
              "file": "compose.yaml",
              "line": 8,
              "column": 28,
              "message": "service \"agent\" uses placement=global; remove replicas (global runs one replica per ready node)",
              "hint": null
            }
          ],
          "more": 0,
          "warnings": []
        }
    "#]].assert_eq(&here.run("validate -o json").stdout());
}

#[test]
fn files_are_found_and_laid_over_each_other_as_compose_does() {
    let base = "services:\n  web:\n    image: nginx:${TAG}\n";
    let over = "services:\n  web:\n    deploy: {replicas: 4}\n";
    let here = directory(
        "My Shop",
        [
            ("compose.yml", base),
            ("compose.override.yml", over),
            ("docker-compose.yml", "services: {}\n"),
            (".env", "TAG=1.27\n"),
            ("other.env", "TAG=1.26\n"),
        ],
    );
    expect![[r#"
        exit 0
        --- stdout
        myshop: 1 service, 4 replicas

        SERVICE  IMAGE       PLACEMENT  RESERVES  PORTS  DATA       SPEC
        web      nginx:1.27  spread ×4  -         -      stateless  66687628b136
        --- stderr
        note: reading compose.yml, not docker-compose.yml
    "#]]
    .assert_eq(&here.run("validate").text());
    for (case, args, wanted) in [
        ("-f reads that file alone", "validate -f compose.yml", "spread ×1"),
        ("-f twice", "validate -f compose.yml -f compose.override.yml", "spread ×4"),
        ("another env file", "validate --env-file other.env", "nginx:1.26"),
        ("another name", "validate -p till", "till: 1 service"),
    ] {
        let ran = here.run(args);
        assert!(ran.stdout().contains(wanted), "{case}: {}", ran.text());
    }
    let named = here.run_with("validate", &[("COMPOSE_FILE", "compose.yml"), ("TAG", "2")]);
    assert!(named.stdout().contains("nginx:2"), "the shell wins over .env: {}", named.text());
}

#[test]
fn profiles_choose_services() {
    let file = "\
services:
  web: {image: nginx}
  debug: {image: busybox, profiles: [debug]}
";
    let here = directory("validate_profiles", [("compose.yaml", file)]);
    assert!(here.run("validate").stdout().contains("1 service,"));
    assert!(here.run("validate --profile debug").stdout().contains("2 services,"));
    let by_env = here.run_with("validate", &[("COMPOSE_PROFILES", "debug")]);
    assert!(by_env.stdout().contains("2 services,"));
}

#[test]
fn every_example_is_valid() {
    for name in ["shop", "monitoring", "workers"] {
        let ran = plimsoll(&format!("validate -f examples/{name}.yaml"));
        assert_eq!((ran.code(), ran.stderr()), (0, String::new()), "{name}");
    }
}

#[test]
fn labels_for_traefik_are_printed_as_routes() {
    let file = "\
services:
  web:
    image: nginx
    labels:
      traefik.http.routers.web.rule: Host(`shop.example`)
      traefik.http.routers.web.tls.certresolver: le
      traefik.http.services.web.loadbalancer.server.port: 80
      traefik.http.routers.odd.rule: HostRegexp(`.+`)
";
    expect![[r#"
        exit 0
        --- stdout
        x-plimsoll:
          routes:
            - host: shop.example
              service: web
              port: 80
              tls: auto
        # web: router odd: HostRegexp has no equal in a route, in HostRegexp(`.+`)
        --- stderr
        warning: the labels of web say routes to Traefik, and nothing to plimsoll (<stdin>:2:3); `plimsoll validate --routes-from-labels` prints the routes they mean
    "#]]
    .assert_eq(&plimsoll_reading("validate -f - -p try --routes-from-labels", file).text());
    let none = plimsoll_reading(
        "validate -f - -p try --routes-from-labels",
        "services: {web: {image: x}}\n",
    );
    assert!(
        none.text().contains("# no label of the file says a route to Traefik"),
        "{}",
        none.text()
    );
}

#[test]
fn files_are_found_as_compose_finds_them() {
    let web = "services: {web: {image: nginx}}\n";
    let here = directory(
        "validate_found",
        [
            (
                "shop/compose.yaml",
                "include: [db/compose.yaml]\nservices: {web: {image: nginx, volumes: ['./data:/data']}}\n",
            ),
            ("shop/db/compose.yaml", "services: {db: {image: 'db:${TAG}'}}\n"),
            ("shop/db/.env", "TAG=1\n"),
            ("shop/deploy/notes.txt", ""),
            ("named/.env", "COMPOSE_FILE=a.yaml:b.yaml\n"),
            ("named/a.yaml", web),
            ("named/b.yaml", "services: {web: {user: nobody}}\n"),
        ],
    );
    let first_lines = |at: &str, command: &str| {
        let said = run_in(&here.path().join(at), command, "", &[]).text();
        let table: Vec<String> =
            said.lines().map(str::to_owned).filter(|line| !line.contains("warning")).collect();
        table.join("\n")
    };
    let named = first_lines("shop", "validate");
    assert!(named.contains("shop: 2 services"), "{named}");
    assert_eq!(first_lines("shop/deploy", "validate"), named, "a directory below");
    assert_eq!(first_lines("shop/deploy", "validate -f ../compose.yaml"), named, "named with ..");
    assert_eq!(
        first_lines("shop/db", "validate -f ../../shop/compose.yaml"),
        named,
        "around a corner"
    );
    assert!(first_lines("named", "validate").contains("named: 1 service"), "COMPOSE_FILE of .env");
}
