//! Compose files in a few words. A service is healthy at once, goes when it is told, and has no network, unless it says
//! otherwise: most tests have no use for what that would cost.

use std::fmt::Write as _;

/// Healthy as soon as it runs, and not asked again.
const HEALTHY: &str =
    "healthcheck: {test: [CMD, 'true'], interval: 5m, start_period: 5m, start_interval: 100ms}";

/// Defaults, each with the words that replace it.
const DEFAULTS: [(&str, &[&str]); 4] = [
    ("image: plimsoll-test:1", &["image"]),
    ("command: [sh, -c, \"trap 'exit 0' TERM; sleep 600 & wait\"]", &["command"]),
    (HEALTHY, &["healthcheck"]),
    ("network_mode: none", &["network_mode", "networks"]),
];

/// A file with these services, each with the lines that it does not take from the defaults.
pub(crate) fn compose(services: &[(&str, &[&str])]) -> String {
    let mut text = "services:\n".to_owned();
    for (name, lines) in services {
        let _ = writeln!(text, "  {name}:");
        let has = |key: &&str| lines.iter().any(|line| line.starts_with(&format!("{key}:")));
        let defaults = DEFAULTS.iter().filter(|(_, keys)| !keys.iter().any(has));
        for line in defaults.map(|(line, _)| *line).chain(lines.iter().copied()) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// One service, named web.
pub(crate) fn web(lines: &[&str]) -> String {
    compose(&[("web", lines)])
}

/// A shell script as the command of a service.
pub(crate) fn sh(script: &str) -> String {
    format!("command: [sh, -c, {}]", serde_json::Value::from(script))
}
