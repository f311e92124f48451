//! The keys of the long forms within a service.

use super::FieldSupport::{Honoured, Ignored, Partly, Refused};
use super::Row;

pub(super) const EXTENDS: &[Row] = &[
    ("service", Honoured, "required"),
    ("file", Honoured, "the same file if absent; an address is refused"),
];

pub(super) const ENV_FILE: &[Row] = &[
    ("path", Honoured, ""),
    ("required", Honoured, "`false` allows the file to be missing"),
    ("format", Honoured, "`raw` takes values as they are"),
];

pub(super) const DEPENDS_ON: &[Row] = &[
    (
        "condition",
        Honoured,
        "`service_started`, `service_healthy` or `service_completed_successfully`",
    ),
    ("required", Honoured, "`false` allows the service to be missing"),
    ("restart", Ignored, "a change rolls the service it is made to, and no other"),
];

pub(super) const HEALTHCHECK: &[Row] = &[
    ("test", Honoured, ""),
    ("interval", Honoured, ""),
    ("timeout", Honoured, ""),
    ("retries", Honoured, ""),
    ("start_period", Honoured, ""),
    ("start_interval", Honoured, ""),
    ("disable", Honoured, ""),
];

pub(super) const PORT: &[Row] = &[
    ("target", Honoured, ""),
    ("published", Honoured, ""),
    ("host_ip", Honoured, ""),
    ("protocol", Honoured, "`tcp`, `udp` or `sctp`"),
    ("mode", Honoured, "`ingress`, the default, or `host`"),
    ("app_protocol", Ignored, "ports are forwarded as they are; see x-plimsoll.routes for HTTP"),
    ("name", Honoured, "for people only"),
];

pub(super) const PORT_EXTENSION: &[Row] = &[(
    "proxy_protocol",
    Honoured,
    "`v2`: connections to the port begin with the address of their client; TCP only",
)];

pub(super) const MOUNT: &[Row] = &[
    ("type", Partly, "`bind`, `volume` and `tmpfs`"),
    ("source", Honoured, ""),
    ("target", Honoured, ""),
    ("read_only", Honoured, ""),
    ("consistency", Honoured, ""),
    ("bind", Honoured, ""),
    ("volume", Honoured, ""),
    ("tmpfs", Honoured, ""),
    ("image", Refused, "copy what is needed into a named volume"),
];

pub(super) const MOUNT_BIND: &[Row] = &[
    ("propagation", Honoured, ""),
    ("create_host_path", Honoured, ""),
    ("selinux", Honoured, "`z` or `Z`"),
    ("recursive", Ignored, "mounts below the source follow the engine's default"),
];

pub(super) const MOUNT_VOLUME: &[Row] = &[
    ("nocopy", Honoured, ""),
    ("subpath", Honoured, ""),
    ("labels", Ignored, "labels of a volume stand with its declaration"),
];

pub(super) const MOUNT_TMPFS: &[Row] = &[("size", Honoured, ""), ("mode", Honoured, "")];

pub(super) const FILE_MOUNT: &[Row] = &[
    ("source", Honoured, ""),
    ("target", Honoured, ""),
    ("uid", Honoured, ""),
    ("gid", Honoured, ""),
    ("mode", Honoured, ""),
];

pub(super) const NETWORK_ATTACHMENT: &[Row] = &[
    ("aliases", Honoured, ""),
    ("ipv4_address", Partly, "on external networks; on its own, plimsoll chooses the addresses"),
    ("ipv6_address", Partly, "on external networks; on its own, plimsoll chooses the addresses"),
    ("priority", Ignored, "networks are attached in the order of their names"),
    ("gw_priority", Ignored, "the engine chooses the gateway"),
    ("link_local_ips", Ignored, "replicas share this spec and cannot share an address"),
    ("mac_address", Ignored, "replicas share this spec and cannot share an address"),
    ("interface_name", Ignored, "the engine names the interface"),
    ("driver_opts", Ignored, "plimsoll sets up networks itself"),
];

pub(super) const ULIMIT: &[Row] = &[("soft", Honoured, ""), ("hard", Honoured, "")];

pub(super) const DEVICE: &[Row] =
    &[("source", Honoured, ""), ("target", Honoured, ""), ("permissions", Honoured, "")];

pub(super) const GPU: &[Row] = &[
    ("capabilities", Partly, "`gpu` must be one of them: other devices are not reserved"),
    ("count", Honoured, "a number or `all`"),
    ("device_ids", Honoured, ""),
    ("driver", Honoured, ""),
    ("options", Honoured, ""),
];

pub(super) const LOGGING: &[Row] = &[("driver", Honoured, ""), ("options", Honoured, "")];
