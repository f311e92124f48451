//! What runs and as whom: command, user, labels, stop, logging.

use plimsoll_model::spec::{ContainerSpec, Logging, PullPolicy};

use super::ServiceContext;
use crate::diagnostic::Finding;
use crate::dotenv::EnvFileFormat;
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::Mapping;

pub(super) fn fill(
    context: &mut ServiceContext<'_>,
    service: &Mapping,
    container: &mut ContainerSpec,
) {
    label_files(context, service, container);
    let mut keys = KeyReader::of(context.report, service);
    container.pull = pull_policy(&mut keys);
    container.platform = keys.text("platform");
    container.command = command(&mut keys, "command");
    container.entrypoint = command(&mut keys, "entrypoint");
    container.working_dir = keys.text("working_dir");
    container.user = keys.text("user");
    container.group_add = keys.texts("group_add");
    container.hostname = keys.text("hostname");
    container.domainname = keys.text("domainname");
    container.labels.extend(keys.pairs("labels"));
    container.annotations = keys.pairs("annotations");
    container.stop_signal = keys.text("stop_signal");
    container.stop_grace = keys.parse("stop_grace_period");
    container.init = keys.boolean("init");
    container.tty = keys.boolean("tty");
    container.stdin_open = keys.boolean("stdin_open");
    container.runtime = keys.text("runtime");
    container.logging = logging(&mut keys);
}

fn command(keys: &mut KeyReader<'_, '_>, key: &str) -> Option<Vec<String>> {
    let entry = keys.get(key)?;
    read::command(keys.report, entry)
}

fn pull_policy(keys: &mut KeyReader<'_, '_>) -> Option<PullPolicy> {
    let entry = keys.get("pull_policy")?;
    let text = keys.text("pull_policy")?;
    match text.as_str() {
        "always" => Some(PullPolicy::Always),
        "missing" | "if_not_present" => Some(PullPolicy::Missing),
        "never" => Some(PullPolicy::Never),
        "daily" | "weekly" => {
            let message = format!("`pull_policy: {text}` is treated as always");
            keys.report.warn(entry.node.span, message);
            Some(PullPolicy::Always)
        }
        period if period.starts_with("every_") => {
            let message = format!("`pull_policy: {text}` is treated as always");
            keys.report.warn(entry.node.span, message);
            Some(PullPolicy::Always)
        }
        "build" => {
            let problem = Finding::new(entry.node.span, "`pull_policy: build` is not supported");
            keys.report.push(problem.hint("build and push the image, then set `image`"));
            None
        }
        _ => {
            let message = format!("`pull_policy` must be always, missing or never, found {text:?}");
            keys.report.error(entry.node.span, message);
            None
        }
    }
}

fn logging(keys: &mut KeyReader<'_, '_>) -> Option<Logging> {
    let mut logging = keys.section("logging", Section::Logging)?;
    Some(Logging { driver: logging.text("driver"), options: logging.pairs("options") })
}

/// Labels from files; those of `labels` win, so these are laid down first.
fn label_files(context: &mut ServiceContext<'_>, service: &Mapping, container: &mut ContainerSpec) {
    let Some(entry) = service.get("label_file") else { return };
    for path in read::one_or_many(context.report, entry) {
        let lines = match context.env_file(&path.text, EnvFileFormat::Quoted) {
            Ok(lines) => lines,
            Err(error) => {
                context.report.error(path.span, format!("cannot read {}: {error}", path.text));
                continue;
            }
        };
        for (key, value) in lines.iter() {
            let value = value.clone().unwrap_or_default();
            if !context.carry(key.len() + value.len(), path.span) {
                return;
            }
            container.labels.insert(key.clone(), value);
        }
    }
}
