//! The field table does what it says, and the reference page says what it does.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use plimsoll_compose::{Field, FieldSupport, Section, field_table};

use crate::case::{Case, file, service_web, web};

const BEGIN: &str = "<!-- fields: begin, written by the tests of plimsoll-compose -->\n";
const END: &str = "<!-- fields: end -->\n";

fn fields(section: Section) -> impl Iterator<Item = &'static Field> {
    field_table().iter().filter(move |field| field.section == section)
}

/// A value for each honoured key of a service that shows in its spec.
const SAMPLES: &[(&str, &str)] = &[
    ("annotations", "{a: b}"),
    ("cap_add", "[NET_ADMIN]"),
    ("cap_drop", "[ALL]"),
    ("cgroup", "private"),
    ("cgroup_parent", "m-group"),
    ("command", "run"),
    ("configs", "[c]"),
    ("container_name", "shop-web"),
    ("cpu_period", "50000\ncpu_quota: 100"),
    ("cpu_quota", "50000"),
    ("cpu_shares", "512"),
    ("cpus", "0.5"),
    ("cpuset", "0-1"),
    ("depends_on", "[db]"),
    ("deploy", "{replicas: 2}"),
    ("device_cgroup_rules", "['c 1:3 mr']"),
    ("devices", "[/dev/null]"),
    ("dns", "1.1.1.1"),
    ("dns_opt", "[use-vc]"),
    ("dns_search", "example.org"),
    ("domainname", "example.org"),
    ("entrypoint", "run"),
    ("env_file", "a.env"),
    ("environment", "[A=1]"),
    ("expose", "[80]"),
    ("extends", "{service: base}"),
    ("extra_hosts", "['a=10.0.0.1']"),
    ("gpus", "all"),
    ("group_add", "[mail]"),
    ("healthcheck", "{test: x}"),
    ("hostname", "web"),
    ("init", "true"),
    ("label_file", "a.env"),
    ("labels", "[a=b]"),
    ("logging", "{driver: syslog}"),
    ("mem_limit", "1g"),
    ("mem_reservation", "1g"),
    ("mem_swappiness", "10"),
    ("memswap_limit", "2g"),
    ("networks", "[front]"),
    ("oom_kill_disable", "true"),
    ("oom_score_adj", "100"),
    ("pids_limit", "10"),
    ("platform", "linux/arm64"),
    ("ports", "['80:80']"),
    ("privileged", "true"),
    ("profiles", "[other]"),
    ("read_only", "true"),
    ("restart", "on-failure:2"),
    ("runtime", "runsc"),
    ("scale", "2"),
    ("secrets", "[s]"),
    ("security_opt", "[no-new-privileges]"),
    ("shm_size", "64m"),
    ("stdin_open", "true"),
    ("stop_grace_period", "5s"),
    ("stop_signal", "SIGINT"),
    ("storage_opt", "{size: 1G}"),
    ("sysctls", "{a.b: 1}"),
    ("tmpfs", "/run"),
    ("tty", "true"),
    ("ulimits", "{nofile: 1024}"),
    ("user", "nobody"),
    ("userns_mode", "host"),
    ("uts", "host"),
    ("volumes", "[data:/data]"),
    ("working_dir", "/srv"),
    // Partly honoured: a value of the honoured part.
    ("ipc", "host"),
    ("links", "[db]"),
    ("network_mode", "host"),
    ("pid", "host"),
    ("pull_policy", "always"),
];

fn surrounded(keys: &str) -> Case {
    let rest = "  db: {image: postgres}\n  base: {user: nobody, image: x}\nvolumes: {data: }\nnetworks: {front: }\n\
                configs: {c: {content: x}}\nsecrets: {s: {environment: S}}\n";
    file(format!("{}{rest}", service_web(keys))).env("S", "x").with("a.env", "A=1\n")
}

#[test]
fn every_honoured_key_of_a_service_shows_in_its_spec() {
    let bare = surrounded("").load().deployment;
    for field in fields(Section::Service) {
        if !matches!(field.verdict, FieldSupport::Honoured | FieldSupport::Partly) {
            continue;
        }
        if matches!(field.key, "image" | "build") {
            continue;
        }
        let sample = SAMPLES.iter().find(|(key, _)| *key == field.key);
        let (key, value) = sample.unwrap_or_else(|| panic!("{} has no sample", field.key));
        let loaded = surrounded(&format!("{key}: {value}")).load();
        assert_ne!(loaded.deployment, bare, "{key} is honoured, and changes nothing");
        assert!(loaded.warnings.is_empty(), "{key}: {:?}", loaded.warnings);
    }
}

#[test]
fn every_ignored_key_of_a_service_warns_and_changes_nothing() {
    let bare = web("").load().deployment;
    for field in fields(Section::Service).filter(|field| field.verdict == FieldSupport::Ignored) {
        let loaded = web(&format!("{}: x", field.key)).load();
        assert_eq!(loaded.deployment, bare, "{}", field.key);
        let message = format!("`{}` is ignored: {}", field.key, field.note);
        assert_eq!(loaded.warnings[0].message, message);
    }
}

#[test]
fn every_refused_key_of_a_service_says_what_to_use() {
    for field in fields(Section::Service).filter(|field| field.verdict == FieldSupport::Refused) {
        let errors = web(&format!("{}: x", field.key)).try_load().unwrap_err();
        assert_eq!(errors.list[0].message, format!("`{}` is not supported", field.key));
        assert_eq!(errors.list[0].hint.as_deref(), Some(field.note));
    }
}

#[test]
fn keys_of_ones_own_are_accepted_anywhere() {
    let text = "\
x-top: 1
services:
  x-not-a-service: {}
  web:
    image: x
    x-mine: {any: [thing]}
    healthcheck: {test: x, x-a: 1}
    deploy: {x-b: 1, resources: {x-c: 1, limits: {x-d: 1}}, placement: {x-e: 1}}
    ports: [{target: 80, x-f: 1}]
    logging: {x-g: 1}
volumes: {data: {x-h: 1}, x-i: }
networks: {front: {x-j: 1}}
";
    let loaded = file(text).load();
    assert_eq!(loaded.deployment.services.len(), 1);
    assert!(loaded.warnings.is_empty());
}

#[test]
fn a_version_says_nothing() {
    let base = "services: {web: {image: x}}\n";
    let versioned = file(format!("version: '3.9'\n{base}")).load();
    assert_eq!(versioned.deployment, file(base).load().deployment);
    assert!(versioned.warnings.is_empty());
}

fn written() -> String {
    let mut text = String::new();
    for section in Section::ALL {
        let title = section.title();
        let heading = title[..1].to_uppercase() + &title[1..];
        writeln!(text, "\n### {heading}\n\n| key | | |\n|---|---|---|").unwrap();
        for field in fields(section) {
            let (key, verdict) = (field.key, field.verdict.word());
            writeln!(text, "| `{key}` | {verdict} | {} |", field.note).unwrap();
        }
    }
    text.push('\n');
    text
}

#[test]
fn the_reference_page_lists_the_table_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/compose.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has the first marker");
    let (found, after) = rest.split_once(END).expect("the page has the second marker");
    let written = written();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{written}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, written, "write the page anew with UPDATE_EXPECT=1");
}

#[test]
fn samples_stand_for_keys_that_exist() {
    let known: BTreeSet<_> = fields(Section::Service).map(|field| field.key).collect();
    for (key, _) in SAMPLES {
        assert!(known.contains(key), "{key}");
    }
}
