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

/// The commands that `plimsoll --help` lists.
fn listed() -> Vec<String> {
    let help = plimsoll("--help").stdout();
    let before_options = help.split("Options:").next().unwrap().to_owned();
    let lines = before_options.lines().filter_map(|line| line.strip_prefix("  "));
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn help_groups_every_command() {
    expect![[r#"
        A container orchestrator that keeps every node above its line

        Usage: plimsoll [OPTIONS] <COMMAND>

        Running a node:
          up          Run a node on this machine
          node        See the nodes of the cell, and empty them
          token       Let nodes join the cell, and people use it over the network
          cluster     See the servers of the cell, or go on without those that are lost
          backup      Write the cell's whole state to a file
          restore     Make a data directory from a backup
          migrate     Take a stopped cell from one engine to another

        Deployments:
          apply       Make compose files run, and wait until they do
          scale       Run more or fewer replicas of services
          restart     Start replicas anew
          rollout     See and steer changes of spec as they reach the replicas
          rollback    Go back to an earlier revision of a deployment
          delete      Take a deployment down

        Looking:
          status      Show what runs, where, and what is wrong with it
          get         List deployments, services, replicas, nodes or routes, or show some in full
          logs        Show what replicas print
          exec        Run a command beside a replica
          history     List a deployment's revisions and what each changed
          audit       Show what happened, and who stood behind it
          explain     Say why replicas are where they are, with every node's filter or score, or where a request goes

        Without a daemon:
          validate    Check compose files and show what they ask for
          decide      Show what plimsoll would decide on a described cell
          sim         Simulate a cell: the shipped scheduler, a virtual clock, faults, and promises checked at every step
          demo        Watch a node heal, update and restart real processes, in under a minute
          completion  Print the completion script of a shell

        Options:
              --host <HOST>    The daemon's socket, or http://address:port [env: PLIMSOLL_HOST]
              --token <TOKEN>  What a daemon on TCP asks for [env: PLIMSOLL_TOKEN]
          -h, --help           Print help
          -V, --version        Print version

        Examples:
          plimsoll up                                  run a node on this machine
          plimsoll apply -f compose.yaml               make a compose file run, and wait until it does
          plimsoll status -w                           watch it
          plimsoll logs shop/web -f                    read what it prints
          plimsoll sim run scenarios/lost-node.yaml    what if a node is lost?
          plimsoll demo                                a story, without any file

        Exit codes: 0 done, 1 refused (the input is at fault), 2 failed.
    "#]].assert_eq(&plimsoll("--help").stdout());
    // The completion script knows every command; the list should, too.
    let script = plimsoll("completion bash").stdout();
    let mut words = script.lines().filter_map(|line| line.trim().strip_prefix("opts=\""));
    let known = words.find(|words| words.contains(" apply ")).unwrap();
    let mut known: Vec<&str> = known
        .trim_end_matches('"')
        .split_whitespace()
        .filter(|word| !word.starts_with(['-', '<']))
        .collect();
    let mut listed = listed();
    listed.sort();
    known.sort_unstable();
    assert_eq!(listed, known);
}

#[test]
fn help_has_examples() {
    let no_examples = ["decide", "demo", "node", "sim"];
    let commands = listed().into_iter().filter(|name| !no_examples.contains(&name.as_str()));
    let below = ["", "decide place", "sim run", "node list"].map(str::to_owned);
    for args in commands.chain(below) {
        let ran = plimsoll(&format!("{args} --help"));
        assert_eq!(ran.code(), 0, "{args}");
        assert!(ran.stdout().contains("Examples:\n  plimsoll "), "{args}: {}", ran.text());
    }
    expect![[r#"
        Make compose files run, and wait until they do

        Usage: plimsoll apply [OPTIONS]

        Options:
          -f, --file <FILE>          A compose file, `-` for stdin; later ones are laid over earlier ones
                                     [default: as Compose]
          -p, --project-name <NAME>  The deployment's name, instead of the one in the file
              --profile <PROFILE>    A profile to enable; `*` for all
              --env-file <FILE>      Where variables come from, instead of `.env` beside the first file
              --dry-run              Show what would change; change nothing
          -d, --detach               Do not wait until it is done
              --timeout <LENGTH>     How long to wait, as 90s, 10m or 1h30m [default: 10m]
          -o, --output <OUTPUT>      How to print what was done [default: table] [possible values: table,
                                     json, yaml]
          -h, --help                 Print help

        Connection:
              --host <HOST>    The daemon's socket, or http://address:port [env: PLIMSOLL_HOST]
              --token <TOKEN>  What a daemon on TCP asks for [env: PLIMSOLL_TOKEN]

        Examples:
          plimsoll apply                                 compose.yaml here, with its override
          plimsoll apply -f compose.yaml -f prod.yaml    the second laid over the first
          plimsoll apply --dry-run                       what would change, and what would be done
          plimsoll apply -d                              without waiting until it is steady
          plimsoll apply --timeout 2m                    or exit 1 with the reasons

        Applying the same file again changes nothing, but tries again what was given up.
    "#]].assert_eq(&plimsoll("apply --help").stdout());
    expect![[r#"
        Say why replicas are where they are, with every node's filter or score, or where a request goes

        Usage: plimsoll explain [OPTIONS] [REPLICA|SERVICE|NODE] [HOST/PATH]

        Arguments:
          [REPLICA|SERVICE|NODE]  A replica (shop-web-2), a service (shop/web), a node, or `route`; all
                                  replicas if left out
          [HOST/PATH]             After `route`: the request, as in shop.example/api

        Options:
          -i, --input <CASE>     A case instead of the running cell: nodes, deployments and what runs, as
                                 YAML or JSON; `-` for stdin
          -o, --output <OUTPUT>  How to print the explanation [default: table] [possible values: table,
                                 json, yaml]
          -h, --help             Print help

        Connection:
              --host <HOST>    The daemon's socket, or http://address:port [env: PLIMSOLL_HOST]
              --token <TOKEN>  What a daemon on TCP asks for [env: PLIMSOLL_TOKEN]

        Examples:
          plimsoll explain                                          every replica of the running cell
          plimsoll explain shop-web-2                               one, and what every node has to say
          plimsoll explain birch                                    why nothing moves off a node, or what
          does
          plimsoll explain route shop.example/api                   where a request goes, and why nowhere
          else
          plimsoll explain --input examples/cell.yaml               every replica of a described cell
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
