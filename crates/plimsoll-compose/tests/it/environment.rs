//! Where a container's environment comes from, and what interpolation does to the rest of the file.

use expect_test::expect;

use crate::case::{Case, file, web};

fn environment(case: &Case) -> String {
    let pairs = case.container().environment;
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn both_forms_give_the_same_environment() {
    let list = web("environment: [A=1, 'B=two words', C=a=b, D=]");
    let mapping = web("environment: {A: 1, B: two words, C: a=b, D: ''}");
    assert_eq!(environment(&list), "A=1 B=two words C=a=b D=");
    assert_eq!(environment(&list), environment(&mapping));
}

#[test]
fn values_stay_as_they_are_written() {
    let case =
        web("environment: {A: 1.10, B: 0123, C: yes, D: 1_000, E: 2024-01-01, F: 'null', G: True}");
    assert_eq!(environment(&case), "A=1.10 B=0123 C=yes D=1_000 E=2024-01-01 F=null G=True");
}

#[test]
fn a_name_alone_takes_the_shells_value_or_is_left_out() {
    for form in ["environment: [A, B]", "environment: {A: , B: ~}"] {
        assert_eq!(environment(&web(form).env("A", "shell")), "A=shell");
    }
}

#[test]
fn environment_wins_over_later_env_files_over_earlier_ones() {
    let case = web("env_file: [one.env, two.env]\nenvironment: {C: service}")
        .with("one.env", "A=one\nB=one\nC=one\n")
        .with("two.env", "B=two\nC=two\n");
    assert_eq!(environment(&case), "A=one B=two C=service");
}

#[test]
fn env_files_have_a_long_form() {
    let keys = "\
env_file:
  - path: raw.env
    format: raw
  - path: missing.env
    required: false";
    let case = web(keys).with("raw.env", "A=\"$B\" # kept\n");
    assert_eq!(environment(&case), "A=\"$B\" # kept");
    assert_eq!(environment(&web("env_file: a.env").with("a.env", "A='1' # gone\n")), "A=1");
}

#[test]
fn an_env_file_that_is_missing_is_refused_where_it_is_named() {
    expect![[r#"
        error: cannot read a.env: entity not found
         --> compose.yaml:4:16
          |
        4 |     env_file: [a.env]
          |                ^^^^^
        hint: `required: false` allows an env file to be missing
    "#]]
    .assert_eq(&web("env_file: [a.env]").refusal());
}

#[test]
fn a_wrong_line_of_an_env_file_is_shown() {
    let case = web("env_file: a.env").with("a.env", "A=1\nB C=2\nD='open\n");
    expect![[r#"
        error: this line is not KEY=value
         --> a.env:2:1
          |
        2 | B C=2
          | ^^^^^

        error: this quote is never closed
         --> a.env:3:3
          |
        3 | D='open
          |   ^^^^^
    "#]]
    .assert_eq(&case.refusal());
}

#[test]
fn a_name_alone_in_an_env_file_takes_the_shells_value() {
    let case = web("env_file: a.env").with("a.env", "A\nB\n").env("A", "shell");
    assert_eq!(environment(&case), "A=shell");
}

#[test]
fn values_are_interpolated_and_keys_are_not() {
    let case = web("environment: {$A: $A, B: '${B:-b}', C: '$$A', D: \"${A:+set}\"}").env("A", "a");
    assert_eq!(environment(&case), "$A=a B=b C=$A D=set");
}

#[test]
fn every_kind_of_field_takes_a_variable() {
    let keys = "\
ports: ['${PORT}:80']
tty: ${TTY}
deploy: {replicas: '${COUNT}', resources: {limits: {memory: '${MEMORY:-64m}'}}}";
    let case = web(keys).env("PORT", "8080").env("TTY", "true").env("COUNT", "3");
    let service = case.service("web");
    assert_eq!(service.container.ports[0].published, Some(8080));
    assert_eq!(service.container.tty, Some(true));
    assert_eq!(service.placement.mode.replicas(), Some(3));
    assert_eq!(service.container.limits.memory.0, 64 << 20);
}

#[test]
fn a_variable_that_is_not_set_is_warned_of_once() {
    let case = web("environment: {A: 'x${NONE}', B: $NONE}");
    assert_eq!(environment(&case), "A=x B=");
    let warnings = case.load().warnings;
    let text: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    expect![[r#"
        warning: the variable NONE is not set; it reads as empty (compose.yaml:4:26, and once more); set it in the shell or in .env, or write ${NAME:-} where empty is meant
    "#]]
    .assert_eq(&text.join("\n"));
}

#[test]
fn a_required_variable_without_a_value_is_refused() {
    let keys = "environment:\n  PASSWORD: \"a ${PASSWORD:?choose one}\"\n  OTHER: ${";
    expect![[r#"
        error: the variable PASSWORD is required and has no value: choose one
         --> compose.yaml:5:20
          |
        5 |       PASSWORD: "a ${PASSWORD:?choose one}"
          |                    ^^^^^^^^^^^^^^^^^^^^^^^
        hint: set PASSWORD in the shell or in .env

        error: `${` is not a variable
         --> compose.yaml:6:14
          |
        6 |       OTHER: ${
          |              ^^
        hint: write ${NAME}, ${NAME:-default} or ${NAME:?message}; a plain dollar is $$
    "#]]
    .assert_eq(&web(keys).refusal());
}

#[test]
fn an_interpolated_value_is_text_even_if_it_reads_as_null() {
    assert_eq!(
        environment(&web("environment: {A: '$A', B: $A}").env("A", "null")),
        "A=null B=null"
    );
    assert_eq!(environment(&web("environment: {A: \"${A}\"}").env("A", "")), "A=");
}

#[test]
fn the_project_name_is_a_variable() {
    let text = "name: till\nservices: {web: {image: '${COMPOSE_PROJECT_NAME}/web'}}";
    assert_eq!(file(text).container().image, "till/web");
    assert_eq!(file(text).called("other").container().image, "other/web");
}

#[test]
fn labels_come_from_files_too() {
    let case =
        web("label_file: a.labels\nlabels: [b=service, c]").with("a.labels", "a=1\nb=file\n");
    let labels = case.container().labels;
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["a=1", "b=service", "c="]);
}
