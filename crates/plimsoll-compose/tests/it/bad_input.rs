//! Input that is wrong, hostile or huge: refused with its place, in bounded time.

use std::time::{Duration, Instant};

use expect_test::expect;

use crate::case::{Case, file, web};

/// The refusal, which must not keep anyone waiting.
fn soon(case: &Case) -> String {
    let before = at_work();
    let refusal = case.refusal();
    let took = at_work().saturating_sub(before);
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    refusal
}

/// How long this thread has had a processor: what others do on the machine does not count.
fn at_work() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn malformed_yaml_is_refused_at_its_place() {
    let text = "services:\n  web:\n    image: nginx\n   ports: [80]\n";
    expect![[r#"
        error: malformed YAML: while parsing a block mapping, did not find expected key
         --> compose.yaml:4:4
          |
        4 |    ports: [80]
          |    ^
    "#]]
    .assert_eq(&soon(&file(text)));
    let text = "services:\n  web:\n    ports: [80, 81\n";
    expect![[r#"
        error: malformed YAML: unclosed bracket '['
         --> compose.yaml:3:12
          |
        3 |     ports: [80, 81
          |            ^
    "#]]
    .assert_eq(&soon(&file(text)));
    let text = "services:\n\tweb:\n\t\timage: nginx\n";
    expect![[r#"
        error: a tab indents this line
         --> compose.yaml:2:1
          |
        2 |     web:
          | ^
        hint: YAML takes spaces only: replace the tab
    "#]]
    .assert_eq(&soon(&file(text)));
    let text = "services:\n  web:\n    image: \"nginx\n";
    expect![[r#"
        error: this quote is never closed
         --> compose.yaml:3:12
          |
        3 |     image: "nginx
          |            ^
        hint: close it on the same line
    "#]]
    .assert_eq(&soon(&file(text)));
}

#[test]
fn an_unknown_key_under_x_plimsoll_is_refused_at_its_place() {
    let text = "x-plimsoll:\n  placment: pack";
    expect![[r#"
        error: unknown key `placment` in x-plimsoll of a service
         --> compose.yaml:5:7
          |
        5 |       placment: pack
          |       ^^^^^^^^
        hint: did you mean `placement`?
    "#]]
    .assert_eq(&soon(&web(text)));
    let text = "services:\n  web: {image: nginx}\nx-plimsoll:\n  ingress: true\n";
    expect![[r#"
        error: unknown key `ingress` in x-plimsoll of the file
         --> compose.yaml:4:3
          |
        4 |   ingress: true
          |   ^^^^^^^
        hint: known keys: name, routes
    "#]]
    .assert_eq(&soon(&file(text)));
}

#[test]
fn a_circle_of_dependencies_is_named_whole() {
    let text = "\
services:
  a: {image: x, depends_on: [b]}
  b: {image: x, depends_on: {c: {condition: service_healthy}}}
  c:
    image: x
    depends_on:
      - a
";
    expect![[r#"
        error: dependency cycle: a → b → c → a
         --> compose.yaml:7:9
          |
        7 |       - a
          |         ^
    "#]]
    .assert_eq(&soon(&file(text)));
    let text = "services:\n  a: {image: x, depends_on: [a]}\n";
    expect![[r#"
        error: dependency cycle: a → a
         --> compose.yaml:2:30
          |
        2 |   a: {image: x, depends_on: [a]}
          |                              ^
    "#]]
    .assert_eq(&soon(&file(text)));
}

#[test]
fn a_long_chain_of_dependencies_ends() {
    let link = |service| format!("  s{service}: {{image: x, depends_on: [s{}]}}\n", service + 1);
    let links: String = (0..2_000).map(link).collect();
    let text = format!("services:\n{links}  s2000: {{image: x}}\n");
    assert_eq!(file(&text).load().deployment.services.len(), 2_001);
    let circular = text.replace("s2000: {image: x}", "s2000: {image: x, depends_on: [s0]}");
    assert!(soon(&file(circular)).contains("dependency cycle"));
}

#[test]
fn a_port_published_twice_is_shown_in_both_places() {
    let text = "\
services:
  api:
    image: x
    ports: [\"8080:80\"]
  web:
    image: x
    ports:
      - target: 3000
        published: 8080
";
    expect![[r#"
        error: port 8080/tcp is published twice, by "api" and "web"
         --> compose.yaml:9:20
          |
        9 |         published: 8080
          |                    ^^^^ again here
          |
         ::: compose.yaml:4:13
          |
        4 |     ports: ["8080:80"]
          |             --------- first here
    "#]]
    .assert_eq(&soon(&file(text)));
}

#[test]
fn a_file_of_50_megabytes_is_refused_unread() {
    let mut text = b"services:\n".to_vec();
    text.resize(50 << 20, b'#');
    expect![[r#"
        error: the file has 52428800 bytes; at most 8388608 are read
        --> compose.yaml
        hint: a compose file is a few kilobytes: is this the right file?
    "#]]
    .assert_eq(&soon(&file(text)));
}

#[test]
fn anchors_that_multiply_are_refused_before_they_do() {
    let level = |level| {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        format!("x-{level}: &a{level} [{aliases}]\n")
    };
    let levels: String = (1..30).map(level).collect();
    let text = format!("x-0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n{levels}");
    expect![[r#"
        error: the file expands to more than 262144 nodes
         --> compose.yaml:6:21
          |
        6 | x-5: &a5 [*a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4]
          |                     ^^^
        hint: anchors that contain aliases of anchors multiply; write out what is needed
    "#]]
    .assert_eq(&soon(&file(text)));

    let big = "x".repeat(1 << 20);
    let values: String = (0..10_000).map(|name| format!("      V{name}: *big\n")).collect();
    let service = "services:\n  web:\n    image: x\n    environment:\n";
    let text = format!("x-big: &big {big}\n{service}{values}");
    assert!(soon(&file(text)).contains("expands to more than"));
}

#[test]
fn variables_that_multiply_are_refused() {
    let big = "x".repeat(100_000);
    let value = |name| format!("  V{name}: ${{A}}${{A}}${{A}}${{A}}${{A}}\n");
    let values: String = (0..1_000).map(value).collect();
    let case = web(&format!("environment:\n{values}")).env("A", &big);
    assert!(soon(&case).contains("expands to more than"));
}

#[test]
fn deep_nesting_is_refused() {
    for text in [
        format!("x-deep: {}{}", "[".repeat(5_000), "]".repeat(5_000)),
        format!("x-deep: {}", "{a: ".repeat(5_000)),
        (0..2_000).fold(String::new(), |text, depth| text + &" ".repeat(depth) + "a:\n"),
        format!("x-deep:\n  {}x", "- ".repeat(5_000)),
    ] {
        let refusal = soon(&file(&text));
        assert!(refusal.contains("compose.yaml:"), "{refusal}");
    }
    // Each anchor is shallow, and the alias at its bottom makes it deep.
    let level = |level| format!("x-{level}: &a{level} {{k: {{k: {{k: *a{}}}}}}}\n", level - 1);
    let levels: String = (1..200).map(level).collect();
    let text = format!("x-0: &a0 {{k: v}}\n{levels}");
    assert!(soon(&file(text)).contains("nested deeper than 64 levels"));
}

#[test]
fn an_anchor_that_contains_itself_is_refused() {
    let refusal = soon(&file("services: &a\n  web: *a\n"));
    assert!(refusal.contains("an anchor cannot contain itself"), "{refusal}");
}

#[test]
fn invalid_utf8_is_refused_at_its_byte() {
    expect![[r#"
        error: byte 31 is 0xe9, which is not UTF-8
         --> compose.yaml:3:15
          |
        3 |     image: caf�
          |               ^
        hint: save the file as UTF-8
    "#]]
    .assert_eq(&soon(&file(b"services:\n  web:\n    image: caf\xe9\n")));
}

#[test]
fn negative_sizes_are_refused() {
    let text = "\
mem_limit: -512m
shm_size: -1
stop_grace_period: -5s
deploy:
  replicas: -2
  resources:
    reservations: {cpus: '-0.5', memory: -1}";
    expect![[r#"
        error: `mem_limit` cannot be negative, found -512m
         --> compose.yaml:4:16
          |
        4 |     mem_limit: -512m
          |                ^^^^^

        error: `shm_size` cannot be negative, found -1
         --> compose.yaml:5:15
          |
        5 |     shm_size: -1
          |               ^^

        error: `stop_grace_period` cannot be negative, found -5s
         --> compose.yaml:6:24
          |
        6 |     stop_grace_period: -5s
          |                        ^^^

        error: `replicas` must be a whole number between 0 and 100000, found "-2"
         --> compose.yaml:8:17
          |
        8 |       replicas: -2
          |                 ^^

        error: `cpus` cannot be negative, found -0.5
          --> compose.yaml:10:30
           |
        10 |         reservations: {cpus: '-0.5', memory: -1}
           |                              ^^^^^^

        error: `memory` cannot be negative, found -1
          --> compose.yaml:10:46
           |
        10 |         reservations: {cpus: '-0.5', memory: -1}
           |                                              ^^
    "#]]
    .assert_eq(&soon(&web(text)));
}

#[test]
fn an_empty_file_is_refused() {
    expect![[r#"
        error: the file is empty
        --> compose.yaml
        hint: a compose file has at least `services:`
    "#]]
    .assert_eq(&soon(&file("")));
    expect![[r#"
        error: the file is empty
        --> compose.yaml
        hint: a compose file has at least `services:`
    "#]]
    .assert_eq(&soon(&file("# nothing\n")));
    expect![[r#"
        error: a compose file is a mapping, found a single value
         --> compose.yaml:1:1
          |
        1 | just text
          | ^^^^^^^^^
        hint: begin with `services:`
    "#]]
    .assert_eq(&soon(&file("just text\n")));
    expect![[r#"
        error: the file has no services
         --> compose.yaml:1:1
          |
        1 | name: shop
          | ^^^^^^^^^^
    "#]]
    .assert_eq(&soon(&file("name: shop\n")));
}

#[test]
fn several_documents_are_refused() {
    expect![[r#"
        error: a second document begins here
         --> compose.yaml:2:1
          |
        2 | ---
          | ^^^
        hint: give each document its own file and `-f`
    "#]]
    .assert_eq(&soon(&file("services: {}\n---\nservices: {}\n")));
}

#[test]
fn a_key_set_twice_is_shown_in_both_places() {
    expect![[r#"
        error: the key `user` is set twice
         --> compose.yaml:6:5
          |
        6 |     user: b
          |     ^^^^ again here
          |
         ::: compose.yaml:4:5
          |
        4 |     user: a
          |     ---- first here
    "#]]
    .assert_eq(&soon(&web("user: a\nenvironment: {A: 1}\nuser: b")));
}

#[test]
fn more_ports_than_there_are_is_refused() {
    let lines = "- \"1-65535:1-65535/udp\"\n".repeat(30);
    assert!(soon(&web(&format!("ports:\n{lines}"))).contains("more than 100000 ports"));
}

#[test]
fn content_beyond_what_a_deployment_carries_is_refused() {
    let service = |service| format!("  s{service}: {{image: x, configs: [big]}}\n");
    let services: String = (0..100).map(service).collect();
    let text = format!("configs:\n  big: {{file: big}}\nservices:\n{services}");
    let case = file(text).with("big", vec![b'x'; 1_000_000]);
    let start = Instant::now();
    let refusal = case.refusal();
    assert!(refusal.contains("exceed 16777216 bytes"), "{refusal}");
    assert!(start.elapsed() < Duration::from_mins(1), "it took {:?}", start.elapsed());
}

#[test]
fn the_largest_files_are_read_in_bounded_time() {
    let comments = format!("services: {{web: {{image: x}}}}\n{}", "# x\n".repeat(2 << 20));
    let start = Instant::now();
    file(&comments[..8 << 20]).load();
    let lines = "        some content of a config\n".repeat(200_000);
    let config =
        format!("services: {{web: {{image: x}}}}\nconfigs:\n  c:\n    content: |\n{lines}");
    file(config).load();
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
}

#[test]
fn a_mistake_repeated_by_aliases_costs_what_it_costs_once() {
    let services: String = (0..2_000).map(|name| format!("  s{name}: *base\n")).collect();
    let text = format!("x-base: &base {{imagee: nginx, restart: x}}\nservices:\n{services}");
    let refusal = soon(&file(text));
    assert_eq!(refusal.matches("unknown key `imagee`").count(), 1);
    let keys: String = (0..50_000).map(|key| format!("imagee{key}: x\n")).collect();
    assert!(soon(&web(&keys)).ends_with("and 49980 more\n"));
}
