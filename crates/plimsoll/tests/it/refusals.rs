//! Every wrong thing a person would try: a clear error, a next step, and the right exit code.

use expect_test::expect;

use crate::run::{directory, plimsoll};

#[test]
fn a_file_that_is_not_there() {
    let here = directory("refusals_missing", [("compose.yaml", "services: {}\n")]);
    expect![[r#"
        exit 1
        --- stderr
        error: there is no file compse.yaml
        hint: did you mean compose.yaml?
    "#]]
    .assert_eq(&here.run("validate -f compse.yaml").text());
    expect![[r#"
        exit 1
        --- stderr
        error: there is no file elsewhere/case.yaml
        hint: check the path; `-` reads stdin
    "#]]
    .assert_eq(&here.run("decide place --input elsewhere/case.yaml").text());
    let empty = directory("refusals_empty", []);
    expect![[r#"
        exit 1
        --- stderr
        error: there is no compose.yaml, compose.yml, docker-compose.yml or docker-compose.yaml in this directory or above it
        hint: name the file with `-f`
    "#]].assert_eq(&empty.run("validate").text());
}

#[test]
fn a_directory_instead_of_a_file() {
    let here = directory("refusals_directory", [("deploy/compose.yaml", ""), ("other/x.txt", "")]);
    expect![[r#"
        exit 1
        --- stderr
        error: deploy is a directory
        hint: name a file in it: deploy/compose.yaml
    "#]]
    .assert_eq(&here.run("validate -f deploy").text());
    expect![[r#"
        exit 1
        --- stderr
        error: other is a directory
        hint: name a file; other has no YAML or JSON
    "#]]
    .assert_eq(&here.run("decide place --input other").text());
}

#[test]
fn bytes_that_are_no_text() {
    let here = directory("refusals_bytes", []);
    here.write("case.yaml", b"nodes:\n  - {name: \xff}\n");
    expect![[r#"
        exit 1
        --- stderr
        error: case.yaml:2: byte 18 is 0xff, not UTF-8
        hint: save the file as UTF-8
    "#]]
    .assert_eq(&here.run("decide place --input case.yaml").text());
    expect![[r#"
        exit 1
        --- stderr
        error: byte 18 is 0xff, which is not UTF-8
         --> case.yaml:2:12
          |
        2 |   - {name: �}
          |            ^
        hint: save the file as UTF-8

        refused: 1 error in case.yaml
    "#]]
    .assert_eq(&here.run("validate -f case.yaml").text());
}

#[test]
fn a_file_far_too_large() {
    let here = directory("refusals_large", []);
    here.write("large.yaml", "# nothing but comments\n".repeat(2_300_000).as_bytes());
    let ran = here.run("validate -f large.yaml");
    assert_eq!(ran.code(), 1, "{}", ran.text());
    expect![[r#"
        exit 1
        --- stderr
        error: the file has 52900000 bytes; at most 8388608 are read
        --> large.yaml
        hint: a compose file is a few kilobytes: is this the right file?

        refused: 1 error in large.yaml
    "#]]
    .assert_eq(&ran.text());
    here.write("larger.yaml", "# nothing but comments\n".repeat(3_000_000).as_bytes());
    expect![[r#"
        exit 1
        --- stderr
        error: larger.yaml has 69000000 bytes, more than the 67108864 read
        hint: is this the right file?
    "#]]
    .assert_eq(&here.run("decide place --input larger.yaml").text());
}

#[test]
fn arguments_that_are_missing_or_unknown() {
    expect![[r#"
        exit 1
        --- stderr
        error: the following required arguments were not provided:
          --input <CASE>

        Usage: plimsoll decide place --input <CASE>

        For more information, try '--help'.
    "#]]
    .assert_eq(&plimsoll("decide place").text());
    expect![[r#"
        exit 1
        --- stderr
        error: unrecognized subcommand 'vaildate'

          tip: a similar subcommand exists: 'validate'

        Usage: plimsoll [OPTIONS] <COMMAND>

        For more information, try '--help'.
    "#]]
    .assert_eq(&plimsoll("vaildate").text());
    expect![[r#"
        exit 1
        --- stderr
        error: invalid value 'xml' for '--output <OUTPUT>'
          [possible values: table, json, yaml]

          tip: a similar value exists: 'yaml'

        For more information, try '--help'.
    "#]]
    .assert_eq(&plimsoll("validate -o xml").text());
    let bare = plimsoll("");
    assert_eq!((bare.code(), bare.stdout().as_str()), (1, ""));
    assert!(bare.stderr().contains("Usage: plimsoll"));
}

#[test]
fn a_name_that_nothing_goes_by() {
    let ran = plimsoll("explain shop-wbe-2 --input examples/cell.yaml");
    expect![[r#"
        exit 1
        --- stderr
        error: there is no replica or service shop-wbe-2
        hint: did you mean shop-web-2, shop-web-1 or shop-web-3?
    "#]]
    .assert_eq(&ran.text());
    let ran = plimsoll("explain zzz --input examples/cell.yaml");
    expect![[r#"
        exit 1
        --- stderr
        error: there is no replica or service zzz
        hint: leave the name out to see all of them
    "#]]
    .assert_eq(&ran.text());
}
