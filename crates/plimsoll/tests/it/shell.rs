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
          up              Run a node on this machine
          node            Manage nodes
          reschedule      Show, pause or resume the background rescheduler
          token           Manage join tokens and API tokens
          cell            Show the servers of the cell, recover it after losing the quorum, manage its authority and its keys
          backup          Back up the state of the cell to a file
          restore         Create a data directory from a backup
          migrate         Migrate a stopped cell to another storage engine

        Running a fleet of cells:
          coordinator     Run a node of a coordinator of cells (experimental)
          fleet           Show and manage a fleet of cells (experimental)

        Connecting:
          login           Log in to a cell with the string printed by `plimsoll token create`
          context         Manage the cells you are logged in to

        Deployments:
          apply           Deploy compose files and wait until they run
          scale           Scale services up or down
          restart         Restart replicas
          rollout         Show, pause, resume or abort rollouts
          rollback        Roll a deployment back to an earlier revision
          delete          Delete a deployment
          secret          Manage the secrets of the cell
          config          Manage the configs of the cell
          registry        Manage the cell's credentials for private registries
          volume          List, inspect, move, back up, restore and remove named volumes

        Inspecting:
          status          Show deployments, replicas and problems
          top             Watch nodes, replicas, moves and events full-screen
          dashboard       Open the dashboard of a cell in a browser on this machine
          get             List deployments, services, replicas, nodes, routes or certificates, or show some in full
          logs            Show the logs of replicas
          exec            Run a command in a replica
          history         List a deployment's revisions and what each changed, and the last runs of its services on a schedule
          audit           Show the audit log
          explain         Explain where replicas are placed, with the filter or score of every node, or where a request is routed
          what-if         Show what would come of a drain, a loss, new nodes, a file or a scale, without doing it
          optimize        Search for a better layout of what runs, and carry it out on request
          snapshot        Export the running cell as a case
          doctor          Check engine, ports, disk, clocks, peers and certificates of this node
          support-bundle  Collect logs, state, metrics and versions into one file

        Without a daemon:
          validate        Check compose files and show what they ask for
          decide          Show what plimsoll would decide on a described cell
          sim             Simulate a cell: the shipped scheduler, a virtual clock, faults, and promises checked at every step
          demo            Watch a node heal, update and restart real processes, in under a minute
          reasons         List every reason and problem code, with its meaning and what to do about it
          completion      Print the completion script of a shell

        Options:
              --host <HOST>             The daemon's socket, or https://address:port [env: PLIMSOLL_HOST]
              --context <NAME>          Context made by `plimsoll login` [env: PLIMSOLL_CONTEXT]
              --token <TOKEN>           API token or login string [env: PLIMSOLL_TOKEN]
              --authority <PRINT|FILE>  Fingerprint or CA file of the cell [env: PLIMSOLL_AUTHORITY]
              --certificate <FILE>      Your certificate and its key [env: PLIMSOLL_CERTIFICATE]
          -h, --help                    Print help
          -V, --version                 Print version

        Examples:
          plimsoll up                                  run a node on this machine
          plimsoll apply -f compose.yaml               deploy a compose file and wait until it runs
          plimsoll status -w                           watch it
          plimsoll logs shop/web -f                    follow its logs
          plimsoll sim run scenarios/lost-node.yaml    what if a node is lost?
          plimsoll demo                                a demonstration, without any file

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
    let no_examples = ["decide", "demo", "node", "sim", "snapshot"];
    let commands = listed().into_iter().filter(|name| !no_examples.contains(&name.as_str()));
    let below = [
        "",
        "decide place",
        "decide rebalance",
        "sim run",
        "sim trace",
        "node list",
        "snapshot export",
    ]
    .map(str::to_owned);
    for args in commands.chain(below) {
        let ran = plimsoll(&format!("{args} --help"));
        assert_eq!(ran.code(), 0, "{args}");
        assert!(ran.stdout().contains("Examples:\n  plimsoll "), "{args}: {}", ran.text());
    }
    expect![[r#"
        Deploy compose files and wait until they run

        Usage: plimsoll apply [OPTIONS]

        Options:
          -f, --file <FILE>          Compose file, `-` for stdin; repeatable, later files override earlier
                                     ones [default: as Compose]
          -p, --project-name <NAME>  Deployment name, instead of the one in the file
              --profile <PROFILE>    Profile to enable; `*` for all
              --env-file <FILE>      File with variables, instead of `.env` next to the first file
              --dry-run              Show what would change without changing it
          -d, --detach               Return without waiting
              --timeout <LENGTH>     Time limit for waiting, such as 90s, 10m or 1h30m [default: 10m]
          -o, --output <OUTPUT>      Output format [default: table] [possible values: table, json, yaml]
          -h, --help                 Print help

        Connection:
              --host <HOST>             The daemon's socket, or https://address:port [env: PLIMSOLL_HOST]
              --context <NAME>          Context made by `plimsoll login` [env: PLIMSOLL_CONTEXT]
              --token <TOKEN>           API token or login string [env: PLIMSOLL_TOKEN]
              --authority <PRINT|FILE>  Fingerprint or CA file of the cell [env: PLIMSOLL_AUTHORITY]
              --certificate <FILE>      Your certificate and its key [env: PLIMSOLL_CERTIFICATE]

        Examples:
          plimsoll apply                                 compose.yaml here, with its override
          plimsoll apply -f compose.yaml -f prod.yaml    the second laid over the first
          plimsoll apply --dry-run                       what would change, and what would be done
          plimsoll apply -d                              without waiting until it is steady
          plimsoll apply --timeout 2m                    or exit 2 with the reasons

        Applying the same file again changes nothing, but retries what failed.
    "#]].assert_eq(&plimsoll("apply --help").stdout());
    expect![[r#"
        Explain where replicas are placed, with the filter or score of every node, or where a request is
        routed

        Usage: plimsoll explain [OPTIONS] [REPLICA|SERVICE|NODE] [HOST/PATH]

        Arguments:
          [REPLICA|SERVICE|NODE]  A replica (shop-web-2), a service (shop/web), a node, or `route`; all
                                  replicas if left out
          [HOST/PATH]             After `route`: the request, as in shop.example/api

        Options:
          -i, --input <CASE>     A case instead of the running cell: nodes, deployments and what runs, as
                                 YAML or JSON; `-` for stdin
          -o, --output <OUTPUT>  Output format [default: table] [possible values: table, json, yaml]
          -h, --help             Print help

        Connection:
              --host <HOST>             The daemon's socket, or https://address:port [env: PLIMSOLL_HOST]
              --context <NAME>          Context made by `plimsoll login` [env: PLIMSOLL_CONTEXT]
              --token <TOKEN>           API token or login string [env: PLIMSOLL_TOKEN]
              --authority <PRINT|FILE>  Fingerprint or CA file of the cell [env: PLIMSOLL_AUTHORITY]
              --certificate <FILE>      Your certificate and its key [env: PLIMSOLL_CERTIFICATE]

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
    let file = "services:\n  web:\n    image: nginx\n    blkio_config: {weight: 10}\n";
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
