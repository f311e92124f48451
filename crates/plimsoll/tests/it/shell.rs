//! What is around the answers: help, version, completion, colour, and pipes that end early.

use std::io::Read;
use std::process::{Command, Stdio};

use expect_test::expect;

use crate::run::{directory, plimsoll, root};

#[test]
fn the_version_is_said() {
    let ran = plimsoll("--version");
    assert_eq!(ran.text(), format!("exit 0\n--- stdout\nplimsoll {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_has_examples() {
    for args in
        ["--help", "validate --help", "decide place --help", "explain --help", "sim run --help"]
    {
        let ran = plimsoll(args);
        assert_eq!(ran.code(), 0, "{args}");
        assert!(ran.stdout().contains("Examples:\n  plimsoll "), "{args}: {}", ran.text());
    }
    expect![[r#"
        Say why replicas are where they are, with every node's filter or score

        Usage: plimsoll explain [OPTIONS] --input <CASE> [REPLICA|SERVICE]

        Arguments:
          [REPLICA|SERVICE]  A replica (shop-web-2) or a service (shop/web); all replicas if left out

        Options:
          -i, --input <CASE>     The case: nodes, deployments and what runs now, as YAML or JSON; `-` for
                                 stdin
          -o, --output <OUTPUT>  How to print the explanation [default: table] [possible values: table,
                                 json, yaml]
          -h, --help             Print help

        Examples:
          plimsoll explain --input examples/cell.yaml               every replica, one line each
          plimsoll explain shop-web-2 --input examples/cell.yaml    one, and what every node had to say
          plimsoll explain shop/web --input examples/cell.yaml      the next one, or why there is none

        The nodes stand best first, as they were when the replica's turn came.
    "#]].assert_eq(&plimsoll("explain --help").stdout());
}

#[test]
fn shells_learn_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = plimsoll(&format!("completion {shell}"));
        assert_eq!(ran.code(), 0, "{shell}");
        assert!(ran.stdout().contains("validate"), "{shell}");
    }
}

#[test]
fn colour_only_adds() {
    let file = "services:\n  web:\n    image: nginx\n    restart: always\n";
    let here = directory("shell_colour", [("compose.yaml", file)]);
    let (plain, forced) =
        (here.run("validate"), here.run_with("validate", &[("CLICOLOR_FORCE", "1")]));
    for (plain, forced) in [(plain.stdout(), forced.stdout()), (plain.stderr(), forced.stderr())] {
        assert!(!plain.contains('\x1b') && forced.contains('\x1b'));
        assert_eq!(anstream::adapter::strip_str(&forced).to_string(), plain);
    }
}

#[test]
fn a_world_at_fault_is_a_failure() {
    let status = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["completion", "bash"])
        .stdout(std::fs::File::options().write(true).open("/dev/full").unwrap())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8(status.stderr).unwrap();
    assert_eq!(status.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: cannot write the answer: "), "{said}");
}

#[test]
fn a_reader_who_has_read_enough_is_no_trouble() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["completion", "bash"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}
