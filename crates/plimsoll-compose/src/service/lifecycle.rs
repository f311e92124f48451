//! What the end of a replica means: `restart`, `deploy.restart_policy`, and the job modes of `deploy.mode`.

use plimsoll_model::Millis;
use plimsoll_model::spec::{ContainerSpec, HealthTest, Lifecycle, Retries};

use crate::diagnostic::Findings;
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::yaml::Mapping;

/// The words of `deploy.mode` that make a job.
const JOB_MODES: [&str; 2] = ["replicated-job", "global-job"];

/// What a file asks to be done when a container ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    Always,
    /// Never, or when it failed.
    ToEnd(Retries),
}

/// As Compose does it, `deploy.restart_policy` counts before `restart`. A file that says neither describes a service, though
/// Compose's default is `no`: there it is what nobody thought about.
pub(super) fn read(
    report: &mut Findings,
    service: &Mapping,
    deploy: Option<&Mapping>,
    container: &ContainerSpec,
) -> Lifecycle {
    let plain = plain(&mut KeyReader::of(report, service));
    let policy = deploy.and_then(|deploy| policy(&mut KeyReader::of(report, deploy)));
    let restart = policy.or(plain);
    if deploy.is_some_and(is_job_mode) {
        return Lifecycle::Job(match restart {
            Some(Restart::ToEnd(retries)) => retries,
            Some(Restart::Always) | None => Retries::default(),
        });
    }
    match restart {
        None | Some(Restart::Always) => Lifecycle::Service,
        Some(Restart::ToEnd(retries)) if serves(container) => Lifecycle::Finite(retries),
        Some(Restart::ToEnd(retries)) => Lifecycle::Job(retries),
    }
}

pub(super) fn is_job_mode(deploy: &Mapping) -> bool {
    let mode = deploy.get("mode").and_then(|entry| entry.node.as_scalar());
    mode.is_some_and(|mode| JOB_MODES.contains(&mode.text.as_str()))
}

/// Whether others are to reach it, or to know that it is well: that is no job.
fn serves(container: &ContainerSpec) -> bool {
    let check = container.healthcheck.as_ref();
    !container.ports.is_empty() || check.is_some_and(|check| check.test != HealthTest::Disabled)
}

/// `restart`: `no`, `always`, `unless-stopped`, `on-failure` or `on-failure:3`.
fn plain(keys: &mut KeyReader<'_, '_>) -> Option<Restart> {
    let entry = keys.get("restart")?;
    let text = keys.text("restart")?;
    let (word, count) =
        text.split_once(':').map_or((text.as_str(), None), |(word, n)| (word, Some(n)));
    match (word, count) {
        ("", None) => None,
        ("always" | "unless-stopped", None) => Some(Restart::Always),
        ("no", None) => Some(Restart::ToEnd(Retries::NEVER)),
        ("on-failure", None) => Some(Restart::ToEnd(Retries::default())),
        ("on-failure", Some(count)) if count.parse::<u32>().is_ok() => {
            let limit = count.parse().ok();
            Some(Restart::ToEnd(Retries { limit, delay: None }))
        }
        _ => {
            let words = "no, always, unless-stopped, on-failure or on-failure:3";
            let message = format!("`restart` must be {words}, found {text:?}");
            keys.report.error(entry.node.span, message);
            None
        }
    }
}

fn policy(deploy: &mut KeyReader<'_, '_>) -> Option<Restart> {
    let mut keys = deploy.section("restart_policy", Section::RestartPolicy)?;
    // Compose takes the words of `restart` here too.
    let conditions = [
        ("any", Restart::Always),
        ("always", Restart::Always),
        ("unless-stopped", Restart::Always),
        ("on-failure", Restart::ToEnd(Retries::default())),
        ("none", Restart::ToEnd(Retries::NEVER)),
        ("no", Restart::ToEnd(Retries::NEVER)),
    ];
    let limit: Option<u32> = keys.integer("max_attempts", 0, i64::from(u32::MAX));
    let delay: Option<Millis> = keys.parse("delay");
    match keys.word("condition", &conditions)? {
        // Swarm's 0 is no limit.
        Restart::ToEnd(retries) if retries != Retries::NEVER => {
            Some(Restart::ToEnd(Retries { limit: limit.filter(|limit| *limit > 0), delay }))
        }
        other => Some(other),
    }
}
