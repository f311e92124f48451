//! The keys of `deploy`.

use super::FieldSupport::{Honoured, Ignored, Partly, Refused};
use super::Row;

pub(super) const DEPLOY: &[Row] = &[
    (
        "mode",
        Honoured,
        "`replicated-job` runs `replicas` copies to their end, all at once; `global-job` one on each node, also on nodes that join later",
    ),
    ("replicas", Honoured, ""),
    (
        "endpoint_mode",
        Partly,
        "`vip`; `dnsrr` is read as `vip`: a name is one address, and requests go to a healthy replica",
    ),
    ("labels", Honoured, "of the service; those of its containers are `labels`"),
    ("placement", Honoured, ""),
    ("resources", Honoured, ""),
    ("update_config", Honoured, ""),
    ("rollback_config", Ignored, "a rollback takes the same steps as the rollout it undoes"),
    (
        "restart_policy",
        Honoured,
        "counts before `restart`; with `on-failure` and `none` an end with status 0 completes the replica",
    ),
];

pub(super) const RESTART_POLICY: &[Row] = &[
    ("condition", Honoured, "`any` is what plimsoll does of itself"),
    (
        "delay",
        Partly,
        "between attempts with `on-failure`; else tries are a second apart at first, then twice as long each time",
    ),
    (
        "max_attempts",
        Partly,
        "retries with `on-failure`, 0 or nothing is three attempts in all; else three failures in a row end the tries",
    ),
    ("window", Honoured, "for Swarm: a replica that runs on has no failures any more"),
];

pub(super) const PLACEMENT: &[Row] = &[
    (
        "constraints",
        Partly,
        "node.labels.*, node.role, node.hostname, node.id, node.zone, node.platform.os and node.platform.arch",
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
