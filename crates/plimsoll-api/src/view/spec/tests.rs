use plimsoll_model as model;
use plimsoll_model::spec;
use plimsoll_model::testkit::spread;
use serde_json::{Value, json};

use super::*;

/// A service in which every field is said, as the API has it.
fn full() -> Value {
    let mut service = serde_json::to_value(spread(3)).unwrap();
    let constraint = json!({"on": {"label": "disk"}, "equal": true, "value": "ssd"});
    let role = json!({"on": "role", "equal": true, "value": "manager"});
    service["placement"] = json!({
        "mode": {"hosts": {"replicas": 2, "hosts": ["ash", "birch"]}},
        "constraints": [{"on": "zone", "equal": false, "value": "north"}, constraint, role],
        "preferences": [{"constraint": constraint, "weight": 3}],
        "max_per_node": 2,
    });
    service["depends_on"] = json!({"db": "healthy"});
    service["reschedule"] = json!({"above": 500});
    service["replay"] = json!("off");
    service["labels"] = json!({"team": "web"});
    service["unpinned"] = json!("unreachable");
    service["declared"] = json!({"paths": ["/data"], "is_told": true});
    let container = service["container"].as_object_mut().unwrap();
    container.insert("asked_by".into(), json!("deploy"));
    for field in
        ["platform", "working_dir", "user", "hostname", "domainname", "network_mode", "digest"]
    {
        container.insert(field.into(), json!("x"));
    }
    for field in ["stop_signal", "cpuset", "ipc", "pid", "uts", "userns_mode", "cgroup", "runtime"]
    {
        container.insert(field.into(), json!("x"));
    }
    for field in ["init", "read_only", "privileged", "tty", "stdin_open", "oom_kill_disable"] {
        container.insert(field.into(), json!(true));
    }
    for field in ["pids_limit", "stop_grace", "shm_size", "oom_score_adj", "memory_swap"] {
        container.insert(field.into(), json!(7));
    }
    let maps = ["labels", "sysctls", "storage_opt", "annotations", "environment"];
    for field in maps {
        container.insert(field.into(), json!({"a": "b"}));
    }
    let lists = ["group_add", "expose", "cap_add", "cap_drop", "security_opt", "dns", "dns_opt"];
    for field in
        lists.into_iter().chain(["dns_search", "device_cgroup_rules", "entrypoint", "command"])
    {
        container.insert(field.into(), json!(["x"]));
    }
    let file = json!({"name": "key", "target": "/key", "content": {"inline": [1, 255]}, "uid": "1", "gid": "1", "mode": 256});
    let mut kept = file.clone();
    kept["content"] = json!({"external": "key"});
    for (field, value) in [
        ("memory_swappiness", json!(1)),
        ("cpu_shares", json!(512)),
        ("cgroup_parent", json!("x")),
        ("pull", json!("missing")),
        ("extra_hosts", json!({"a": ["10.0.0.1"]})),
        (
            "ports",
            json!([{"target": 80, "published": 8080, "host_ip": "::", "protocol": "tcp", "mode": "routed", "proxy_protocol": "v2"}]),
        ),
        (
            "mounts",
            json!([
                {"source": {"bind": {"path": "/a", "propagation": "shared", "create_host_path": true, "selinux": "z"}},
                 "target": "/a", "read_only": true, "consistency": "cached"},
                {"source": {"volume": {"name": "v", "subpath": "s", "nocopy": true}},
                 "target": "/v", "read_only": false, "consistency": null},
                {"source": "anonymous", "target": "/n", "read_only": false, "consistency": null},
                {"source": {"tmpfs": {"size": 1, "mode": 1, "options": ["noexec"]}},
                 "target": "/t", "read_only": false, "consistency": null},
            ]),
        ),
        (
            "volumes",
            json!({"v": {"name": "v", "external": true, "driver": "local", "driver_opts": {"a": "b"}, "labels": {"a": "b"},
            "scope": "global"}}),
        ),
        ("configs", json!([file])),
        ("secrets", json!([kept])),
        (
            "networks",
            json!({"n": {"name": "n", "external": true, "internal": true, "aliases": ["a"],
            "ipv4_address": "10.0.0.1", "ipv6_address": "::1"}}),
        ),
        (
            "healthcheck",
            json!({"test": {"command": ["true"]}, "interval": 1, "timeout": 1, "start_period": 1,
            "start_interval": 1, "retries": 1}),
        ),
        (
            "gpu_requests",
            json!([{"driver": "d", "count": 1, "device_ids": ["0"], "capabilities": ["gpu"], "options": {"a": "b"}}]),
        ),
        ("devices", json!([{"source": "/a", "target": "/b", "permissions": "rw"}])),
        ("ulimits", json!({"nofile": {"soft": 1, "hard": 2}})),
        ("logging", json!({"driver": "journald", "options": {"a": "b"}})),
    ] {
        container.insert(field.to_owned(), value);
    }
    service
}

#[test]
fn the_form_of_a_service_is_the_models() {
    let full = full();
    let unsaid: Vec<&String> = full["container"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, value)| value.is_null())
        .map(|(field, _)| field)
        .collect();
    assert!(unsaid.is_empty(), "a new field of the model is said here too: {unsaid:?}");
    for service in [full, serde_json::to_value(spread(1)).unwrap()] {
        let ours: ServiceSpec = serde_json::from_value(service.clone()).unwrap();
        let theirs: model::ServiceSpec = serde_json::from_value(service.clone()).unwrap();
        assert_eq!(serde_json::to_value(&ours).unwrap(), service);
        assert_eq!(serde_json::to_value(&theirs).unwrap(), service);
    }
    for (tls, word) in [
        (spec::Tls::Off, TlsSpec::Off),
        (spec::Tls::Internal, TlsSpec::Internal),
        (spec::Tls::Files, TlsSpec::Files),
    ] {
        assert_eq!(json!(tls), json!(word));
    }
}
