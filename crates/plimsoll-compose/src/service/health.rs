//! How a container says that it is well.

use plimsoll_model::ceilings::MAX_RETRIES;
use plimsoll_model::spec::{ContainerSpec, HealthTest, Healthcheck};

use crate::diagnostic::{Finding, Findings};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::{Mapping, YamlEntry};

pub(super) fn fill(report: &mut Findings, service: &Mapping, container: &mut ContainerSpec) {
    let mut keys = KeyReader::of(report, service);
    let Some(mut keys) = keys.section("healthcheck", Section::Healthcheck) else { return };
    let disabled = keys.boolean("disable").unwrap_or_default();
    let test = match keys.get("test") {
        Some(entry) => test(keys.report, entry),
        None => HealthTest::Image,
    };
    container.healthcheck = Some(Healthcheck {
        test: if disabled { HealthTest::Disabled } else { test },
        interval: keys.parse("interval"),
        timeout: keys.parse("timeout"),
        start_period: keys.parse("start_period"),
        start_interval: keys.parse("start_interval"),
        retries: keys.integer("retries", 0, MAX_RETRIES.into()),
    });
}

/// A text runs in the container's shell; a list says by its first word how it runs.
fn test(report: &mut Findings, entry: &YamlEntry) -> HealthTest {
    if let Some(scalar) = entry.node.as_scalar() {
        return HealthTest::Shell(scalar.text.clone());
    }
    let words = read::plain(read::texts(report, entry));
    match words.split_first() {
        None => HealthTest::Image,
        Some((first, [])) if first == "NONE" => HealthTest::Disabled,
        Some((first, [shell])) if first == "CMD-SHELL" => HealthTest::Shell(shell.clone()),
        Some((first, rest)) if first == "CMD" && !rest.is_empty() => {
            HealthTest::Command(rest.to_vec())
        }
        Some((first, rest)) => {
            let problem = match (first.as_str(), rest.len()) {
                ("CMD-SHELL", 2..) => {
                    let message = format!("`CMD-SHELL` takes one line, found {} words", rest.len());
                    let written = format!("{:?}", rest.join(" "));
                    let hint =
                        format!("write [\"CMD-SHELL\", {written}], or `CMD` to run no shell");
                    Finding::new(entry.node.span, message).hint(hint)
                }
                ("CMD" | "CMD-SHELL", 0) => Finding::new(
                    entry.node.span,
                    format!("`{first}` is followed by nothing to run"),
                )
                .hint(format!(
                    "write [\"{first}\", \"curl -f localhost\"], or [\"NONE\"] for no check"
                )),
                ("NONE", _) => Finding::new(entry.node.span, "`NONE` is followed by words")
                    .hint("write [\"NONE\"] for no check"),
                _ => {
                    let message =
                        format!("`test` begins with {first:?}, which does not say how it runs");
                    let hint =
                        format!("write [\"CMD\", {}], or all of it as one text", quoted(&words));
                    Finding::new(entry.node.span, message).hint(hint)
                }
            };
            report.push(problem);
            HealthTest::Image
        }
    }
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
}
