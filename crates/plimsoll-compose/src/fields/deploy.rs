//! The keys of `deploy`.

use super::FieldSupport::{Honoured, Ignored, Partly, Refused};
use super::Row;

pub(super) const DEPLOY: &[Row] = &[
    ("mode", Partly, "`replicated` and `global`; jobs are refused"),
    ("replicas", Honoured, ""),
    ("endpoint_mode", Ignored, "requests always go to a healthy replica"),
    ("labels", Ignored, "they apply to Swarm services; label containers with `labels`"),
    ("placement", Honoured, ""),
    ("resources", Honoured, ""),
    ("update_config", Honoured, ""),
    ("rollback_config", Ignored, "a rollback takes the same steps as the rollout it undoes"),
    ("restart_policy", Ignored, "plimsoll restarts replicas itself; see healthcheck"),
];

pub(super) const PLACEMENT: &[Row] = &[
    (
        "constraints",
        Partly,
        "node.labels.*, node.hostname, node.id, node.zone, node.platform.os and node.platform.arch",
    ),
    ("preferences", Partly, "`spread: node.labels.zone` is the default; others are ignored"),
    ("max_replicas_per_node", Honoured, "0 is no limit"),
];

pub(super) const PREFERENCE: &[Row] =
    &[("spread", Partly, "replicas are always spread over zones")];

pub(super) const RESOURCES: &[Row] = &[("limits", Honoured, ""), ("reservations", Honoured, "")];

pub(super) const LIMITS: &[Row] =
    &[("cpus", Honoured, ""), ("memory", Honoured, ""), ("pids", Honoured, "")];

pub(super) const RESERVATIONS: &[Row] = &[
    ("cpus", Honoured, ""),
    ("memory", Honoured, ""),
    ("devices", Honoured, "GPUs"),
    (
        "generic_resources",
        Refused,
        "reserve GPUs with `devices`, choose other hardware with a constraint on a label",
    ),
];

pub(super) const UPDATE_CONFIG: &[Row] = &[
    ("parallelism", Honoured, "1 by default; 0 changes all at once"),
    ("delay", Honoured, ""),
    ("failure_action", Honoured, "`rollback`, the default, `pause` or `continue`"),
    ("monitor", Honoured, ""),
    ("max_failure_ratio", Honoured, ""),
    (
        "order",
        Honoured,
        "`start-first`, the default wherever two copies can run side by side, or `stop-first`",
    ),
];
