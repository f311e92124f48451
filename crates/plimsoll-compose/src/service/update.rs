//! How a change reaches the replicas: `deploy.update_config`; and what else `deploy` says of how they are run.

use plimsoll_model::spec::{OnFailure, UpdateOrder, UpdatePolicy};

use crate::diagnostic::Findings;
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::yaml::Mapping;

pub(super) fn read(report: &mut Findings, deploy: &Mapping) -> UpdatePolicy {
    let default = UpdatePolicy::default();
    let mut deploy = KeyReader::of(report, deploy);
    let Some(mut keys) = deploy.section("update_config", Section::UpdateConfig) else {
        return default;
    };
    let orders = [("start-first", UpdateOrder::StartFirst), ("stop-first", UpdateOrder::StopFirst)];
    let actions = [
        ("rollback", OnFailure::Rollback),
        ("pause", OnFailure::Pause),
        ("continue", OnFailure::Continue),
    ];
    let parallelism = keys.integer("parallelism", 0, i64::from(u32::MAX));
    UpdatePolicy {
        // Compose's 0 is all of them.
        parallelism: match parallelism.unwrap_or(default.parallelism) {
            0 => u32::MAX,
            some => some,
        },
        delay: keys.parse("delay").unwrap_or(default.delay),
        order: keys.word("order", &orders).unwrap_or(default.order),
        on_failure: keys.word("failure_action", &actions).unwrap_or(default.on_failure),
        monitor: keys.parse("monitor").unwrap_or(default.monitor),
        max_failure_millionths: ratio(&mut keys).unwrap_or(default.max_failure_millionths),
    }
}

/// What Swarm would do otherwise than plimsoll does, said where a file asks for it.
pub(super) fn remarks(report: &mut Findings, deploy: &Mapping) {
    let mut keys = KeyReader::of(report, deploy);
    let modes = [("vip", false), ("dnsrr", true)];
    if let (Some(true), Some(entry)) =
        (keys.word("endpoint_mode", &modes), keys.get("endpoint_mode"))
    {
        let message =
            "`endpoint_mode: dnsrr` is read as `vip`: the name of a service is one address";
        keys.report.warn(entry.node.span, message);
    }
}

/// A share between 0 and 1, exact to a millionth.
fn ratio(keys: &mut KeyReader<'_, '_>) -> Option<u32> {
    let entry = keys.get("max_failure_ratio")?;
    let text = keys.text("max_failure_ratio")?;
    let millionths = millionths(&text).filter(|share| *share <= 1_000_000);
    if millionths.is_none() {
        let message = format!("`max_failure_ratio` must be between 0 and 1, found {text:?}");
        keys.report.error(entry.node.span, message);
    }
    millionths
}

fn millionths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() || text == "." || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let padded: String = fraction.chars().chain("000000".chars()).take(6).collect();
    whole.checked_mul(1_000_000)?.checked_add(padded.parse().ok()?)
}
