//! The keys at the top of a file, of what it declares there, and of `x-plimsoll`.

use super::FieldSupport::{Honoured, Ignored, Partly, Refused};
use super::Row;

pub(super) const TOP: &[Row] = &[
    ("name", Honoured, "of the deployment; `-p` wins over it"),
    ("version", Honoured, "it says nothing: the Compose specification has no versions any more"),
    ("services", Honoured, "required"),
    ("networks", Honoured, ""),
    ("volumes", Honoured, ""),
    ("configs", Honoured, ""),
    ("secrets", Honoured, ""),
    ("include", Honoured, "local files, read where the command runs"),
    ("models", Refused, "run the model as a service and pass its address in `environment`"),
];

pub(super) const INCLUDE: &[Row] = &[
    ("path", Honoured, "a file, or several laid over each other; addresses are refused"),
    (
        "project_directory",
        Honoured,
        "what its paths are relative to, by default the directory of the file",
    ),
    (
        "env_file",
        Honoured,
        "what its variables are filled in from after the shell and `.env`; by default its own `.env`",
    ),
];

pub(super) const VOLUME: &[Row] = &[
    ("name", Honoured, ""),
    ("external", Honoured, ""),
    ("driver", Honoured, ""),
    ("driver_opts", Honoured, ""),
    ("labels", Honoured, ""),
];

pub(super) const VOLUME_EXTENSION: &[Row] = &[(
    "scope",
    Honoured,
    "`global`: the driver has the volume for every node alike, so it ties nobody to one; takes a `driver` or `external`",
)];

pub(super) const NETWORK: &[Row] = &[
    ("name", Honoured, ""),
    ("external", Honoured, ""),
    ("internal", Honoured, ""),
    (
        "driver",
        Partly,
        "`bridge` and `overlay` are what plimsoll does; `macvlan` and `ipvlan` are refused, others ignored",
    ),
    ("driver_opts", Ignored, "plimsoll connects the nodes itself"),
    ("attachable", Ignored, "only replicas of the deployment join its networks"),
    ("enable_ipv4", Ignored, "plimsoll chooses the addresses"),
    ("enable_ipv6", Ignored, "plimsoll chooses the addresses"),
    ("ipam", Ignored, "plimsoll chooses the addresses"),
    ("labels", Ignored, "networks carry no labels here"),
];

pub(super) const CONFIG: &[Row] = &[
    ("file", Honoured, ""),
    ("content", Honoured, ""),
    ("environment", Honoured, ""),
    ("external", Honoured, ""),
    ("name", Honoured, "of an external one"),
    ("labels", Ignored, "configs carry no labels here"),
    ("template_driver", Refused, "write the values into the file with ${VARIABLES}"),
];

pub(super) const SECRET: &[Row] = &[
    ("file", Honoured, ""),
    ("environment", Honoured, ""),
    ("external", Honoured, ""),
    ("name", Honoured, "of an external one"),
    ("labels", Ignored, "secrets carry no labels here"),
    (
        "driver",
        Refused,
        "fetch the secret before applying and pass it with `file` or `environment`",
    ),
    (
        "driver_opts",
        Refused,
        "fetch the secret before applying and pass it with `file` or `environment`",
    ),
    ("template_driver", Refused, "write the finished value with `file` or `environment`"),
];

pub(super) const SERVICE_EXTENSION: &[Row] = &[
    ("placement", Honoured, "`spread`, the default, `pack`, `binpack`, `hosts` or `global`"),
    ("hosts", Honoured, "the nodes of `placement: hosts`"),
    ("priority", Honoured, "higher priorities stay when capacity is short; 0 by default"),
    (
        "reschedule",
        Honoured,
        "`never`, or `{threshold: N}`: only a gain in score above N, up to 10000, is worth a move",
    ),
    ("interruption_penalty", Honoured, "what a stop costs, from 0, the default, to 100"),
    (
        "replay",
        Honoured,
        "`off`: an unanswered HTTP request at a TCP port is not replayed on another replica",
    ),
    (
        "schedule",
        Honoured,
        "when a job runs, as cron has it: `0 3 * * *`, `@daily`; see the guide on jobs",
    ),
    (
        "timezone",
        Honoured,
        "whose clock the schedule goes by, such as `Europe/Berlin`; UTC by default",
    ),
];

pub(super) const RESCHEDULE: &[Row] =
    &[("threshold", Honoured, "the gain in score, up to 10000, that is not worth a move yet")];

pub(super) const TOP_EXTENSION: &[Row] = &[
    ("name", Honoured, "of the deployment; wins over the file's own `name`"),
    ("routes", Honoured, ""),
];

pub(super) const ROUTE: &[Row] = &[
    ("host", Honoured, "every host if absent"),
    ("path", Honoured, "a prefix, `/` by default"),
    ("strip_path", Honoured, "`true` hides the prefix from the service"),
    ("service", Honoured, "required"),
    ("port", Honoured, "the container's; required"),
    ("tls", Honoured, "`off`, the default, `internal`, `files` or `auto`"),
];
