//! Case files that cannot be read: each is refused at its line, with what to do about it.

use expect_test::expect;

use crate::run::plimsoll_reading;

fn decide(case: &str) -> String {
    plimsoll_reading("decide place --input -", case).text()
}

#[test]
fn a_case_that_is_no_yaml() {
    expect![[r#"
        exit 1
        --- stderr
        error: unclosed bracket '{'
         --> <stdin>:1:9
          |
        1 | nodes: [{name: ash
          |         ^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes: [{name: ash\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: the file is empty
        --> <stdin>
        hint: a case has at least `nodes:` and `deployments:`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(""));
    expect![[r#"
        exit 1
        --- stderr
        error: expected a mapping (`key: value`) here
         --> <stdin>:1:1
          |
        1 | - ash
          | ^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("- ash\n- birch\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: the file holds more than one document
         --> <stdin>:3:1
          |
        3 | nodes: []
          | ^
        hint: a case is one document: remove what follows `---`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes: []\n---\nnodes: []\n"));
}

#[test]
fn a_case_with_words_it_does_not_have() {
    expect![[r#"
        exit 1
        --- stderr
        error: unknown key `cpu`
         --> <stdin>:2:17
          |
        2 |   - {name: ash, cpu: 4, memory: 8gb}
          |                 ^^^
        hint: did you mean cpus or gpus?

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes:\n  - {name: ash, cpu: 4, memory: 8gb}\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: `memory` is missing
         --> <stdin>:2:17
          |
        2 |   - {name: ash, cpus: 4}
          |                 ^^^^
        hint: a full example is in docs/reference/case-format.md

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes:\n  - {name: ash, cpus: 4}\n"));
    let gone = "nodes:\n  - {name: ash, cpus: 4, memory: 8gb, status: gone}\n";
    expect![[r#"
        exit 1
        --- stderr
        error: unknown word `gone`
         --> <stdin>:2:47
          |
        2 |   - {name: ash, cpus: 4, memory: 8gb, status: gone}
          |                                               ^^^^
        hint: write ready or down

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(gone));
    expect![[r#"
        exit 1
        --- stderr
        error: `nodes` is there twice
         --> <stdin>:2:1
          |
        2 | nodes: []
          | ^^^^^
        hint: keep one of the two

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes: []\nnodes: []\n"));
}

#[test]
fn a_case_with_values_that_are_none() {
    expect![[r#"
        exit 1
        --- stderr
        error: node name "ash tree" has ' '; use letters, digits, '-', '_' and '.', starting with a letter or digit
         --> <stdin>:2:12
          |
        2 |   - {name: ash tree, cpus: 4, memory: 8gb}
          |            ^^^^^^^^

        refused: 1 error in <stdin>
    "#]].assert_eq(&decide("nodes:\n  - {name: ash tree, cpus: 4, memory: 8gb}\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: "four" is not a number of cpus; write 0.5 or 2
         --> <stdin>:2:23
          |
        2 |   - {name: ash, cpus: four, memory: 8gb}
          |                       ^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes:\n  - {name: ash, cpus: four, memory: 8gb}\n"));
    expect![[r#"
        exit 1
        --- stderr
        error: "-8gb" is not a size; write 512m, 2gb or a number of bytes
         --> <stdin>:2:34
          |
        2 |   - {name: ash, cpus: 4, memory: -8gb}
          |                                  ^^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide("nodes:\n  - {name: ash, cpus: 4, memory: -8gb}\n"));
    let pressure =
        "nodes:\n  - {name: ash, cpus: 4, memory: 8gb, pressure: {cpu: 85, memory: 0.1}}\n";
    expect![[r#"
        exit 1
        --- stderr
        error: "85" is not a share; write 0.85 for 85 % of the node
         --> <stdin>:2:55
          |
        2 |   - {name: ash, cpus: 4, memory: 8gb, pressure: {cpu: 85, memory: 0.1}}
          |                                                       ^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(pressure));
    let fast = "nodes:\n  - {name: ash, cpus: 99999999, memory: 8gb}\n";
    expect![[r#"
        exit 1
        --- stderr
        error: cpu of node ash is 99999999000, at most 1000000000 is allowed
         --> <stdin>:2:12
          |
        2 |   - {name: ash, cpus: 99999999, memory: 8gb}
          |            ^^^

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(fast));
    let ready = "nodes:\n  - {name: ash, cpus: 4, memory: 8gb, down_for: 3s}\n";
    expect![[r#"
        exit 1
        --- stderr
        error: node ash is ready, so it is not down for any time
         --> <stdin>:2:49
          |
        2 |   - {name: ash, cpus: 4, memory: 8gb, down_for: 3s}
          |                                                 ^^
        hint: add `status: down`, or remove `down_for`

        refused: 1 error in <stdin>
    "#]]
    .assert_eq(&decide(ready));
}

#[test]
fn a_case_that_multiplies_itself_is_refused_in_bounded_time() {
    let mut bomb = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let last = level - 1;
        let refs = vec![format!("*a{last}"); 10].join(", ");
        bomb.extend(["a", &level.to_string(), ": &a", &level.to_string(), " [", &refs, "]\n"]);
    }
    let ran = plimsoll_reading("decide place --input -", &bomb);
    assert_eq!(ran.code(), 1, "{}", ran.text());
    let nested = format!("nodes: {}", "[".repeat(100_000));
    let ran = plimsoll_reading("decide place --input -", &nested);
    assert_eq!(ran.code(), 1, "{}", ran.text());
}
