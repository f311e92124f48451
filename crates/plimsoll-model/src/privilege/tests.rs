//! Every field of a container by value and the role it needs; and for any mix of them, what an oracle that knows only the
//! ways to the node says of those that `deploy` may have.

use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};

use super::*;

/// A node whose admin allowed `/srv/data`.
fn docker() -> RuntimeFacts {
    RuntimeFacts { bind_roots: ["/srv/data".to_owned()].into(), ..RuntimeFacts::default() }
}

/// A node that runs processes as root.
fn process() -> RuntimeFacts {
    RuntimeFacts { root_is_host: true, ..RuntimeFacts::default() }
}

fn spec(fields: &[(&str, Value)]) -> ContainerSpec {
    let mut spec = serde_json::to_value(ContainerSpec::default()).unwrap();
    for (field, value) in fields {
        assert!(spec.get(*field).is_some(), "there is a field {field}");
        spec[*field] = value.clone();
    }
    serde_json::from_value(spec).unwrap_or_else(|error| panic!("{fields:?}: {error}"))
}

fn bind(path: &str, propagation: Option<&str>, selinux: Option<&str>) -> Value {
    let bind = json!({"path": path, "propagation": propagation, "create_host_path": true, "selinux": selinux});
    json!([{"source": {"bind": bind}, "target": "/x", "read_only": true, "consistency": null}])
}

fn tmpfs(option: &str) -> Value {
    let tmpfs = json!({"size": null, "mode": null, "options": [option]});
    json!([{"source": {"tmpfs": tmpfs}, "target": "/x", "read_only": false, "consistency": null}])
}

fn volume(patch: &Value) -> Value {
    let mut volume =
        json!({"name": null, "external": false, "driver": null, "driver_opts": {}, "labels": {}});
    volume.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
    json!({"data": volume})
}

fn network(name: Option<&str>, external: bool) -> Value {
    json!({"back": {"name": name, "external": external, "internal": false, "aliases": ["db"],
        "ipv4_address": null, "ipv6_address": null}})
}

fn file(mode: u32) -> Value {
    json!([{"name": "key", "target": "/key", "content": {"inline": [1]}, "uid": "0", "gid": "0", "mode": mode}])
}

fn gpu(driver: Option<&str>, options: &Value) -> Value {
    json!([{"driver": driver, "count": 1, "device_ids": [], "capabilities": ["gpu"], "options": options}])
}

/// A field, a value, and what is said of it; nothing where `deploy` may have it.
type Row = (&'static str, Value, &'static [&'static str]);

fn rows() -> Vec<Row> {
    rows_of_rights().into_iter().chain(rows_of_resources()).collect()
}

fn rows_of_rights() -> Vec<Row> {
    let device = json!([{"source": "/dev/kvm", "target": "/dev/kvm", "permissions": "rwm"}]);
    let limit = json!({"soft": 1, "hard": 1});
    vec![
        ("image", json!("app:1"), &[]),
        ("environment", json!({"A": "host"}), &[]),
        ("user", json!("0"), &[]),
        ("group_add", json!(["docker"]), &[]),
        (
            "ports",
            json!([{"target": 80, "published": 80, "host_ip": null, "protocol": "tcp", "mode": "host"}]),
            &[],
        ),
        ("limits", json!({"cpu": 1, "memory": 1, "gpus": 0}), &[]),
        ("privileged", json!(false), &[]),
        ("privileged", json!(true), &["privileged: true"]),
        ("pid", json!("host"), &["pid: host"]),
        ("pid", json!("container:db"), &["pid: container:db"]),
        ("network_mode", json!("none"), &[]),
        ("network_mode", json!("bridge"), &["network_mode: bridge"]),
        ("network_mode", json!("host"), &["network_mode: host"]),
        ("network_mode", json!("container:db"), &["network_mode: container:db"]),
        ("ipc", json!("private"), &[]),
        ("ipc", json!("host"), &["ipc: host"]),
        ("ipc", json!("container:db"), &["ipc: container:db"]),
        ("uts", json!("host"), &["uts: host"]),
        ("userns_mode", json!("host"), &["userns_mode: host"]),
        ("cgroup", json!("private"), &[]),
        ("cgroup", json!("host"), &["cgroup: host"]),
        ("cgroup_parent", json!("/system.slice"), &["cgroup_parent: /system.slice"]),
        ("runtime", json!("sysbox"), &["runtime: sysbox"]),
        ("cap_drop", json!(["ALL"]), &[]),
        ("cap_add", json!(["NET_BIND_SERVICE", "cap_chown"]), &[]),
        (
            "cap_add",
            json!(["PERFMON", "cap_sys_admin", "CHOWN"]),
            &["cap_add: PERFMON", "cap_add: cap_sys_admin"],
        ),
        ("cap_add", json!(["ALL"]), &["cap_add: ALL"]),
        ("cap_add", json!(["NET_ADMIN"]), &["cap_add: NET_ADMIN"]),
        ("security_opt", json!(["no-new-privileges:true"]), &[]),
        (
            "security_opt",
            json!(["no-new-privileges:false"]),
            &["security_opt: no-new-privileges:false"],
        ),
        ("security_opt", json!(["seccomp=unconfined"]), &["security_opt: seccomp=unconfined"]),
        ("security_opt", json!(["seccomp=/etc/shadow"]), &["security_opt: seccomp=/etc/shadow"]),
        ("security_opt", json!(["seccomp={}"]), &["security_opt: seccomp={}"]),
        ("security_opt", json!(["label=type:spc_t"]), &["security_opt: label=type:spc_t"]),
        ("security_opt", json!(["apparmor:unconfined"]), &["security_opt: apparmor:unconfined"]),
        (
            "security_opt",
            json!(["systempaths=unconfined"]),
            &["security_opt: systempaths=unconfined"],
        ),
        ("devices", device, &["devices: /dev/kvm"]),
        ("device_cgroup_rules", json!(["a *:* rwm"]), &["device_cgroup_rules: a *:* rwm"]),
        ("gpu_requests", gpu(None, &json!({})), &[]),
        ("gpu_requests", gpu(Some("cdi"), &json!({})), &["gpus: cdi"]),
        ("gpu_requests", gpu(None, &json!({"a": "b"})), &["gpus: a"]),
        ("ulimits", json!({"nofile": limit}), &[]),
        ("ulimits", json!({"rtprio": limit}), &["ulimits: rtprio"]),
        ("sysctls", json!({"net.ipv4.tcp_syncookies": "1", "net.core.somaxconn": "9"}), &[]),
        ("sysctls", json!({"kernel.core_pattern": "|/x"}), &["sysctls: kernel.core_pattern"]),
        ("sysctls", json!({"net.core.somaxconn2": "9"}), &["sysctls: net.core.somaxconn2"]),
    ]
}

/// The same of files, networks and what a node counts.
fn rows_of_resources() -> Vec<Row> {
    vec![
        ("oom_kill_disable", json!(false), &[]),
        ("oom_kill_disable", json!(true), &["oom_kill_disable: true"]),
        ("oom_score_adj", json!(500), &[]),
        ("oom_score_adj", json!(-1), &["oom_score_adj: -1"]),
        ("memory_swap", json!(0), &[]),
        ("memory_swap", json!(-1), &["memswap_limit: -1"]),
        ("storage_opt", json!({"size": "1G"}), &["storage_opt: size"]),
        ("annotations", json!({"run.oci.x": "y"}), &["annotations: run.oci.x"]),
        ("logging", json!({"driver": "json-file", "options": {"max-size": "1m"}}), &[]),
        (
            "logging",
            json!({"driver": "syslog", "options": {"syslog-address": "unix:///run/x"}}),
            &["logging: syslog", "logging: options.syslog-address"],
        ),
        (
            "logging",
            json!({"driver": null, "options": {"splunk-capath": "/etc/shadow"}}),
            &["logging: options.splunk-capath"],
        ),
        ("configs", file(0o755), &[]),
        ("configs", file(0o4755), &["configs: key with mode 4755"]),
        ("secrets", file(0o2755), &["secrets: key with mode 2755"]),
        ("networks", network(None, false), &[]),
        ("networks", network(Some("host"), false), &["networks: back with name host"]),
        ("networks", network(None, true), &["networks: back, external"]),
        ("volumes", volume(&json!({"labels": {"a": "b"}, "driver": "local"})), &[]),
        (
            "volumes",
            volume(&json!({"name": "other_data"})),
            &["volumes: data with name other_data"],
        ),
        ("volumes", volume(&json!({"external": true})), &["volumes: data with external"]),
        ("volumes", volume(&json!({"driver": "nfs"})), &["volumes: data with driver nfs"]),
        (
            "volumes",
            volume(&json!({"driver_opts": {"type": "none", "o": "bind", "device": "/"}})),
            &[
                "volumes: data with driver_opts.device",
                "volumes: data with driver_opts.o",
                "volumes: data with driver_opts.type",
            ],
        ),
        ("mounts", bind("/srv/data/shop", None, None), &[]),
        ("mounts", bind("/srv/data", None, None), &[]),
        ("mounts", bind("/srv/database", None, None), &["volumes: /srv/database:/x"]),
        ("mounts", bind("/srv", None, None), &["volumes: /srv:/x"]),
        ("mounts", bind("/srv/data/../../etc", None, None), &["volumes: /srv/data/../../etc:/x"]),
        ("mounts", bind("srv/data", None, None), &["volumes: srv/data:/x"]),
        ("mounts", bind("/", None, None), &["volumes: /:/x"]),
        ("mounts", bind("/home/ada", None, None), &["volumes: /home/ada:/x"]),
        ("mounts", bind("/opt", None, None), &["volumes: /opt:/x"]),
        ("mounts", bind("/etc/ssh", None, None), &["volumes: /etc/ssh:/x"]),
        (
            "mounts",
            bind("/srv/data/a", Some("rshared"), Some("Z")),
            &["volumes: /srv/data/a:/x:rshared", "volumes: /srv/data/a:/x:Z"],
        ),
        ("mounts", tmpfs("noexec"), &[]),
        ("mounts", tmpfs("dev"), &["tmpfs: dev"]),
    ]
}

fn said(spec: &ContainerSpec, runtimes: &[&RuntimeFacts]) -> Vec<String> {
    spec.privileges(runtimes).iter().map(ToString::to_string).collect()
}

#[test]
fn every_field_needs_the_role_that_its_value_reaches_for() {
    for (field, value, expected) in rows() {
        let spec = spec(&[(field, value.clone())]);
        assert_eq!(said(&spec, &[&docker()]), expected, "{field}: {value}");
    }
}

#[test]
fn every_field_of_the_list_is_refused_by_some_row() {
    let mut named: Vec<Field> = Vec::new();
    for (field, value, _) in rows() {
        named.extend(spec(&[(field, value)]).privileges(&[&docker()]).iter().map(|it| it.field));
    }
    let root = spec(&[("group_add", json!(["docker"]))]);
    named.extend(root.privileges(&[&process()]).iter().map(|it| it.field));
    for field in Field::ALL {
        assert!(named.contains(&field), "{field:?}");
    }
}

#[test]
fn on_the_process_runtime_a_service_has_a_user_other_than_root() {
    for (user, groups, expected) in [
        (json!(null), json!([]), &["user: (not set: root)"][..]),
        (json!("root"), json!([]), &["user: root"]),
        (json!("0"), json!([]), &["user: 0"]),
        (json!("+0"), json!([]), &["user: +0"]),
        (json!(":docker"), json!([]), &["user: :docker"]),
        (json!("ann:docker"), json!([]), &["user: ann:docker"]),
        (json!("ann"), json!(["docker"]), &["group_add: docker"]),
        (json!("ann"), json!([]), &[]),
        (json!("1000"), json!([]), &[]),
    ] {
        let spec = spec(&[("user", user.clone()), ("group_add", groups)]);
        assert_eq!(said(&spec, &[&process()]), expected, "{user}");
        assert!(said(&spec, &[&docker(), &process()]).is_empty(), "placed on Docker: {user}");
    }
}

#[test]
fn without_a_bind_root_no_path_is_below_one() {
    let spec = spec(&[("mounts", bind("/srv/data/shop", None, None))]);
    assert_eq!(said(&spec, &[]), ["volumes: /srv/data/shop:/x"]);
    assert_eq!(said(&spec, &[&RuntimeFacts::default()]), ["volumes: /srv/data/shop:/x"]);
}

/// The ways from a container to its node or to other deployments, found in the spec as JSON and not by its fields: what
/// has one of these is never for `deploy`.
fn reaches_out(spec: &ContainerSpec) -> bool {
    let json = serde_json::to_value(spec).unwrap();
    let set = |field: &str| match &json[field] {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    let text = |field: &str| json[field].to_string();
    let paths = json["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["source"]["bind"]["path"].as_str());
    let modes = ["pid", "network_mode", "ipc", "uts", "cgroup", "userns_mode"];
    ["privileged", "devices", "device_cgroup_rules", "cgroup_parent", "runtime", "annotations"]
        .iter()
        .any(|field| set(field))
        || modes.iter().any(|mode| text(mode).contains("host") || text(mode).contains("container:"))
        || ["SYS_", "sys_", "ALL", "NET_ADMIN", "PERFMON", "BPF"]
            .iter()
            .any(|it| text("cap_add").contains(it))
        || ["unconfined", "label", "seccomp", "apparmor"]
            .iter()
            .any(|it| text("security_opt").contains(it))
        || ["device", "other_data", "nfs", "true"].iter().any(|it| text("volumes").contains(it))
        || ["\"name\":\"", "\"external\":true"].iter().any(|it| text("networks").contains(it))
        || text("logging").contains('/')
        || text("sysctls").contains("core_pattern")
        || paths
            .into_iter()
            .any(|path| !format!("{path}/").starts_with("/srv/data/") || path.contains(".."))
}

proptest! {
    #[test]
    fn what_deploy_may_have_has_no_way_out(mix in subsequence(rows(), 0..12)) {
        let fields: Vec<(&str, Value)> =
            mix.iter().map(|(field, value, _)| (*field, value.clone())).collect();
        let spec = spec(&fields);
        let privileges = spec.privileges(&[&docker()]);
        prop_assert!(!privileges.is_empty() || !reaches_out(&spec), "{:?}", fields);
    }
}
