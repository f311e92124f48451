//! What a person reads, as whole text.

use expect_test::expect;

use crate::case::{file, web};

#[test]
fn every_mistake_of_a_file_is_named_in_one_run() {
    let text = "\
services:
  web:
    image: nginx
    imagee: nginx
    ports: [\"80:http\"]
    healthcheck: {test: [curl, localhost], interval: soon}
    volumes: [data:/data]
    networks: [front]
    extends: {service: base}
  db:
    build: ./db
";
    expect![[r#"
        error: unknown key `imagee` in a service
         --> compose.yaml:4:5
          |
        4 |     imagee: nginx
          |     ^^^^^^
        hint: did you mean `image`?

        error: "http" is not a port: use a number from 1 to 65535
         --> compose.yaml:5:13
          |
        5 |     ports: ["80:http"]
          |             ^^^^^^^^^
        hint: write "8080:80", "127.0.0.1:8080:80/udp" or "8000-8002:80-82"

        error: `test` begins with "curl", which does not say how it runs
         --> compose.yaml:6:25
          |
        6 |     healthcheck: {test: [curl, localhost], interval: soon}
          |                         ^^^^^^^^^^^^^^^^^
        hint: write ["CMD", "curl", "localhost"], or all of it as one text

        error: `interval`: "soon" is not a duration; write 30s, 1m30s or 500ms
         --> compose.yaml:6:54
          |
        6 |     healthcheck: {test: [curl, localhost], interval: soon}
          |                                                      ^^^^

        error: volume "data" is not declared
         --> compose.yaml:7:15
          |
        7 |     volumes: [data:/data]
          |               ^^^^^^^^^^
        hint: add `data:` under the top-level `volumes:`, or write ./data for a directory

        error: network "front" is not declared
         --> compose.yaml:8:16
          |
        8 |     networks: [front]
          |                ^^^^^
        hint: add `front:` under the top-level `networks:`

        error: service "web" extends "base", and compose.yaml has no such service
         --> compose.yaml:9:24
          |
        9 |     extends: {service: base}
          |                        ^^^^
        hint: name its file with `file:`

        error: service "db" has `build` and no `image`
          --> compose.yaml:11:5
           |
        11 |     build: ./db
           |     ^^^^^
        hint: plimsoll does not build images: build and push it, then set `image`
    "#]]
    .assert_eq(&file(text).refusal());
}

#[test]
fn the_list_of_mistakes_is_bounded() {
    let keys: String = (0..50).map(|key| format!("wrong{key}: 1\n")).collect();
    let refusal = web(&keys).refusal();
    assert_eq!(refusal.matches("error: ").count(), 20);
    assert!(refusal.ends_with("\nand 30 more\n"), "{refusal}");
}

#[test]
fn a_warning_names_the_line_it_is_about() {
    let loaded = web("attach: true\nmac_address: 02:42:ac:11:00:02").load();
    let text: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    expect![[r#"
        warning: `attach` is ignored: it applies to `docker compose up`; follow any service with `plimsoll logs` (compose.yaml:4:5)

        warning: `mac_address` is ignored: replicas share this spec and cannot share an address (compose.yaml:5:5)
    "#]].assert_eq(&text.join("\n"));
}

#[test]
fn style_only_adds_to_the_text() {
    let errors = web("imgae: x").try_load().unwrap_err();
    let styled = errors.render(true);
    assert!(styled.contains('\u{1b}'));
    let mut plain = String::new();
    let mut in_escape = false;
    for c in styled.chars() {
        match c {
            '\u{1b}' => in_escape = true,
            'm' if in_escape => in_escape = false,
            c if !in_escape => plain.push(c),
            _ => {}
        }
    }
    assert_eq!(plain, errors.render(false));
}

#[test]
fn places_count_from_one_in_characters() {
    let errors = file("services:\n  web: {image: é, imgae: x}\n").try_load().unwrap_err();
    let error = &errors.list[0];
    assert_eq!((error.file.as_str(), error.line, error.column), ("compose.yaml", 2, 19));
    assert_eq!(error.span, 29..34);
}

#[test]
fn a_line_of_data_is_not_shown() {
    let text = format!(
        "services: {{web: {{image: x, environment: {{A: {}}}, imgae: y}}}}",
        "x".repeat(5_000)
    );
    expect![[r#"
        error: unknown key `imgae` in a service
        --> compose.yaml:1:5048
        hint: did you mean `image`?
    "#]]
    .assert_eq(&file(text).refusal());
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let unix = "services:\n  web:\n    image: nginx\n    environment: {A: '1'}\n";
    let windows = format!("\u{feff}{}", unix.replace('\n', "\r\n"));
    assert_eq!(file(unix).load().deployment, file(windows).load().deployment);
    let wrong = "\u{feff}services:\r\n  web:\r\n    imgae: nginx\r\n";
    expect![[r#"
        error: service "web" has no image
         --> compose.yaml:2:3
          |
        2 |   web:
          |   ^^^
        hint: add `image: name:tag`

        error: unknown key `imgae` in a service
         --> compose.yaml:3:5
          |
        3 |     imgae: nginx
          |     ^^^^^
        hint: did you mean `image`?
    "#]]
    .assert_eq(&file(wrong).refusal());
}

#[test]
fn a_mistake_behind_an_alias_is_said_once() {
    let text = "\
x-base: &base {image: nginx, colour: red}
services:
  a: *base
  b: {<<: *base, command: x}
";
    assert_eq!(file(text).errors(), ["unknown key `colour` in a service"]);
}

#[test]
fn tags_without_a_meaning_are_refused() {
    expect![[r#"
        error: the tag `!secret` has no meaning here
         --> compose.yaml:4:11
          |
        4 |     user: !secret x
          |           ^^^^^^^
        hint: compose files support `!reset` and `!override`
    "#]]
    .assert_eq(&web("user: !secret x").refusal());
}
