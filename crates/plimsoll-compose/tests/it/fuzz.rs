//! Compose and env files that were broken at random: every one is read or refused, in bounded time and memory.

use std::fmt::Write as _;
use std::fs;

use plimsoll_compose::{load_env, routes_from_labels};
use plimsoll_fuzz::Fuzz;

use crate::case::file;
use crate::fixtures;

/// What means something to a reader of YAML or to Compose.
const WORDS: &[&str] = &[
    "\n",
    "\t",
    ": ",
    "- ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    "'",
    "\"",
    "|",
    ">",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "&a ",
    "*a",
    "<<: *a\n",
    "<<: [*a, *b]\n",
    "!reset ",
    "!override ",
    "!!binary ",
    "!!python/object ",
    "$",
    "$$",
    "${",
    "${A:-${B:-${C}}}",
    "${A:?",
    "${A+",
    "}",
    "\u{0}",
    "\u{feff}",
    "\u{2028}",
    "\r\n",
    "null",
    "~",
    "yes",
    ".inf",
    "0o17",
    "1_000",
    "1e309",
    "services:\n",
    "volumes:\n",
    "networks:\n",
    "secrets:\n",
    "configs:\n",
    "x-plimsoll:\n",
    "extends:\n",
    "extends: base\n",
    "extends: {file: base.yaml, service: web}\n",
    "include:\n",
    "include: [base.yaml]\n",
    "include: [{path: [base.yaml, more.yaml], project_directory: .., env_file: a.env}]\n",
    "container_name: a\n",
    "links: [web:a]\n",
    "node.role == manager",
    "labels: [traefik.http.routers.a.rule=Host(`a`)&&(PathPrefix(`/b`)||Path(`/c`))]\n",
    "${A:?}",
    "deploy:\n",
    "healthcheck:\n",
    "depends_on:\n",
    "ports:\n",
    "80-90:80",
    "1-65535:1-65535",
    "[::1]:80:80/udp",
    "env_file: .env\n",
    "replicas: 4294967295\n",
    "interval: 9999999999h\n",
    "mem_limit: 99999999999g\n",
    "cpus: 1e-9\n",
    "profiles: [a]\n",
    "command: [\"sh\", \"-c\", \"x\"]\n",
    "build: {context: .}\n",
    "driver_opts: {type: none, o: bind, device: /}\n",
];

/// One alias of an alias of an alias: a few lines that stand for a billion.
fn laughs() -> String {
    let mut text = "x-0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for depth in 1..10 {
        let below = vec![format!("*a{}", depth - 1); 9].join(", ");
        writeln!(text, "x-{depth}: &a{depth} [{below}]").unwrap();
    }
    text + "services: {web: {image: nginx, command: *a9}}\n"
}

#[test]
fn no_broken_compose_file_breaks_its_reader() {
    let mut fuzz = Fuzz::new("compose").one_of(2).words(WORDS).input(laughs());
    for (_, paths) in fixtures::all() {
        for path in paths {
            fuzz = fuzz.input(fs::read(path).unwrap());
        }
    }
    let base = "services: {web: {image: a, extends: {file: more.yaml, service: more}}}\n";
    let more = "services: {more: {image: b, env_file: a.env, volumes: [./x:/x]}}\n";
    let read = |input: &[u8]| {
        let case = file(input).env("A", "1").with("base.yaml", base).with("more.yaml", more);
        case.with("a.env", "B=2\n").try_load()
    };
    fuzz.run(|input| match read(input) {
        Ok(loaded) => {
            assert!(!loaded.deployment.services.is_empty());
            let _ = routes_from_labels(&loaded.deployment).yaml();
        }
        Err(errors) => assert!(!errors.list.is_empty() && !errors.render(true).is_empty()),
    });
}

#[test]
fn no_broken_env_file_breaks_its_reader() {
    let file = "A=1\nexport B=\"two $A\"\nC='three'\n# a comment\nD=${A:-x} # and another\nE=\"line\\nline\"\n";
    Fuzz::new("env")
        .one_of(2)
        .words(&["=", "'", "\"", "\\", "$", "${", "}", "\n", "#", "export "])
        .input(file)
        .run(|input| {
            let _ = load_env(Some((".env", input)), []);
        });
}
