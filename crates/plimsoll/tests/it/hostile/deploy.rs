//! Somebody with a token of role `deploy`, who speaks to the API without a compose file: no field of a spec leads out of a
//! container, no planted symlink out of a bind root, and a token that is bound to some deployments sees no others.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use plimsoll_model::{ContainerSpec, Mode, ServiceSpec, SpecHash};
use plimsoll_peer::pki::Login;
use serde_json::{Value, json};

use super::{Answer, say_tcp};
use crate::harness::{Cell, Site};

/// One daemon that runs processes as root and lets services bind below a directory of its own.
fn cell_with_root() -> (Cell, String) {
    let mut cell = Cell::idle(Site::Loopback);
    // Services run as somebody else, who must be able to pass.
    fs::set_permissions(cell.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let root = cell.dir.path().canonicalize().unwrap().join("srv");
    fs::create_dir_all(root.join("shop/data")).unwrap();
    let root = root.to_str().unwrap().to_owned();
    cell.setups[0].args = vec!["--bind-root".to_owned(), root.clone()];
    cell.form(1);
    (cell, root)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn token(cell: &Cell, args: &str) -> String {
    let made = cell.run(0, &format!("token create {args}"));
    assert_eq!(made.code(), 0, "{}", made.text());
    made.stdout().parse::<Login>().unwrap().token.to_string()
}

/// One request over TCP, with a token.
fn ask(cell: &Cell, at: usize, token: &str, line: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    say_tcp(cell, at, line, &headers, body.as_bytes()).unwrap()
}

/// A service that anybody may have, but for these fields of its container.
fn service(fields: &[(&str, Value)]) -> Value {
    let container = ContainerSpec {
        image: "any".to_owned(),
        command: Some(["sleep", "1000"].map(str::to_owned).into()),
        user: Some("nobody".to_owned()),
        ..ContainerSpec::default()
    };
    let hash = SpecHash::of(&container);
    let spec = ServiceSpec::new(container, hash, Mode::Spread { replicas: 1 });
    let mut spec = serde_json::to_value(spec).unwrap();
    for (field, value) in fields {
        spec["container"][*field] = value.clone();
    }
    spec
}

fn apply(fields: &[(&str, Value)]) -> Value {
    json!({"services": {"web": service(fields)}})
}

fn bind(path: &str) -> Value {
    let bind =
        json!({"path": path, "propagation": null, "create_host_path": true, "selinux": null});
    json!([{"source": {"bind": bind}, "target": "/x", "read_only": false, "consistency": null}])
}

/// A field, a value, and what the refusal says of it.
fn ways_out() -> Vec<(&'static str, Value, &'static str)> {
    let volume = |patch: &str| -> Value {
        let mut volume: Value = json!({"name": null, "external": false, "driver": null, "driver_opts": {}, "labels": {}});
        let patch: Value = serde_json::from_str(patch).unwrap();
        volume.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        json!({"data": volume})
    };
    let network = json!({"x": {"name": "host", "external": true, "internal": false, "aliases": [],
        "ipv4_address": null, "ipv6_address": null}});
    let device = json!([{"source": "/dev/mem", "target": "/dev/mem", "permissions": "rwm"}]);
    let setuid = json!([{"name": "sh", "target": "/sh", "content": {"inline": [1]}, "uid": "0", "gid": "0", "mode": 0o4755}]);
    vec![
        ("privileged", json!(true), "web: privileged: true"),
        ("pid", json!("host"), "web: pid: host"),
        ("pid", json!("container:db"), "web: pid: container:db"),
        ("ipc", json!("container:db"), "web: ipc: container:db"),
        ("network_mode", json!("host"), "web: network_mode: host"),
        ("network_mode", json!("container:db"), "web: network_mode: container:db"),
        ("uts", json!("host"), "web: uts: host"),
        ("userns_mode", json!("host"), "web: userns_mode: host"),
        ("cgroup", json!("host"), "web: cgroup: host"),
        ("cgroup_parent", json!("/"), "web: cgroup_parent: /"),
        ("runtime", json!("other"), "web: runtime: other"),
        ("cap_add", json!(["PERFMON"]), "web: cap_add: PERFMON"),
        ("cap_add", json!(["cap_sys_admin"]), "web: cap_add: cap_sys_admin"),
        ("security_opt", json!(["label=disable"]), "web: security_opt: label=disable"),
        ("security_opt", json!(["seccomp={}"]), "web: security_opt: seccomp={}"),
        ("security_opt", json!(["seccomp=/etc/shadow"]), "web: security_opt: seccomp=/etc/shadow"),
        ("devices", device, "web: devices: /dev/mem"),
        ("device_cgroup_rules", json!(["a *:* rwm"]), "web: device_cgroup_rules: a *:* rwm"),
        (
            "volumes",
            volume(r#"{"driver_opts": {"type": "none", "o": "bind", "device": "/"}}"#),
            "web: volumes: data with driver_opts.device",
        ),
        ("volumes", volume(r#"{"name": "other_data"}"#), "web: volumes: data with name other_data"),
        ("volumes", volume(r#"{"external": true}"#), "web: volumes: data with external"),
        ("mounts", bind("/"), "web: volumes: /:/x"),
        ("mounts", bind("/home"), "web: volumes: /home:/x"),
        ("mounts", bind("/opt"), "web: volumes: /opt:/x"),
        ("mounts", bind("/etc/ssh"), "web: volumes: /etc/ssh:/x"),
        ("networks", network, "web: networks: x with name host"),
        ("sysctls", json!({"kernel.core_pattern": "|/x"}), "web: sysctls: kernel.core_pattern"),
        ("oom_kill_disable", json!(true), "web: oom_kill_disable: true"),
        ("oom_score_adj", json!(-1000), "web: oom_score_adj: -1000"),
        ("annotations", json!({"run.oci.x": "y"}), "web: annotations: run.oci.x"),
        ("logging", json!({"driver": "syslog", "options": {}}), "web: logging: syslog"),
        ("configs", setuid, "web: configs: sh with mode 4755"),
        ("user", json!(null), "web: user: (not set: root)"),
        ("user", json!("root"), "web: user: root"),
        ("user", json!("nobody:0"), "web: user: nobody:0"),
        ("group_add", json!(["docker"]), "web: group_add: docker"),
    ]
}

#[test]
fn no_field_of_a_raw_spec_leads_out_of_its_container() {
    if !is_root() {
        return;
    }
    let (cell, _) = cell_with_root();
    let (ann, bob) = (token(&cell, "ann --role deploy"), token(&cell, "bob --role admin"));
    for (field, value, said) in ways_out() {
        let body = apply(&[(field, value.clone()), ("asked_by", json!(null))]);
        for line in ["PUT /v1/deployments/probe", "PUT /v1/deployments/probe?dry_run=true"] {
            let (status, text) = ask(&cell, 0, &ann, line, &body);
            let message =
                serde_json::from_str::<Value>(&text).unwrap_or_default()["message"].clone();
            let message = message.as_str().unwrap_or_default().to_owned();
            assert_eq!(status, 403, "{field}: {value}: {text}");
            assert!(message.contains(said) && message.contains("role admin"), "{field}: {message}");
        }
        let line = "PUT /v1/deployments/probe?dry_run=true";
        let (status, text) = ask(&cell, 0, &bob, line, &body);
        // A node may not be able to run it, and no file could ask for some; that it is not for bob's role nobody says.
        assert!(matches!(status, 200 | 422), "{field}: {value}: {status} {text}");
    }
    let all: Vec<(&str, Value)> = vec![("privileged", json!(true)), ("pid", json!("host"))];
    let (_, text) = ask(&cell, 0, &ann, "PUT /v1/deployments/probe", &apply(&all));
    assert!(text.contains("privileged: true") && text.contains("pid: host"), "all at once: {text}");
    let (status, text) = ask(&cell, 0, &ann, "GET /v1/deployments/probe", &Value::Null);
    assert_eq!(status, 404, "nothing was written: {text}");
}

#[test]
fn what_an_admin_asked_for_is_not_had_again_by_rolling_back_scaling_or_entering_it() {
    if !is_root() {
        return;
    }
    let (cell, root) = cell_with_root();
    let (ann, bob) = (token(&cell, "ann --role deploy"), token(&cell, "bob --role admin"));
    let put = "PUT /v1/deployments/shop";
    let strong = apply(&[("privileged", json!(true)), ("user", json!(null))]);
    assert_eq!(ask(&cell, 0, &bob, put, &strong).0, 200);
    // As it is, it is nobody's new wish.
    let (status, text) = ask(&cell, 0, &ann, put, &strong);
    assert_eq!(status, 200, "{text}");
    cell.until("it runs", |cell| {
        ask(cell, 0, &bob, "POST /v1/replicas/shop-web-1/exec", &json!({"command": ["true"]})).0
            == 200
    });
    for (line, body) in [
        ("POST /v1/replicas/shop-web-1/exec", json!({"command": ["true"]})),
        ("POST /v1/deployments/shop/scale", json!({"services": {"web": 2}})),
    ] {
        let (status, text) = ask(&cell, 0, &ann, line, &body);
        assert_eq!(status, 403, "{line}: {text}");
        assert!(
            text.contains("privileged: true") && text.contains("user: (not set: root)"),
            "{text}"
        );
    }
    assert_eq!(ask(&cell, 0, &ann, put, &apply(&[])).0, 200, "less than before is anybody's");
    let (status, text) =
        ask(&cell, 0, &ann, "POST /v1/deployments/shop/rollback", &json!({"to": 1}));
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("privileged: true"), "{text}");
    let (status, text) =
        ask(&cell, 0, &bob, "POST /v1/deployments/shop/rollback", &json!({"to": 1}));
    assert_eq!(status, 200, "{text}");

    // Where the symlinks of an admin's bind lead nobody looked, so that it is below a root by its name says nothing.
    let bound = apply(&[("mounts", bind(&format!("{root}/shop/data")))]);
    assert_eq!(ask(&cell, 0, &bob, "PUT /v1/deployments/bound", &bound).0, 200);
    let (enter, command) = ("POST /v1/replicas/bound-web-1/exec", json!({"command": ["true"]}));
    cell.until("it runs", |cell| ask(cell, 0, &bob, enter, &command).0 == 200);
    let (status, text) = ask(&cell, 0, &ann, enter, &command);
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("volumes: "), "{text}");
}

#[test]
fn a_symlink_below_a_bind_root_leads_nowhere_else() {
    if !is_root() {
        return;
    }
    let (cell, root) = cell_with_root();
    let ann = token(&cell, "ann --role deploy");
    symlink("/etc", Path::new(&root).join("shop/planted")).unwrap();
    for (name, path) in
        [("good", "shop/data"), ("bad", "shop/planted/ssh"), ("gone", "shop/absent")]
    {
        let body = apply(&[("mounts", bind(&format!("{root}/{path}")))]);
        let (status, text) = ask(&cell, 0, &ann, &format!("PUT /v1/deployments/{name}"), &body);
        assert_eq!(status, 200, "by its name it is below the root: {text}");
    }
    let says = |cell: &Cell, name: &str, what: &str| {
        ask(cell, 0, &ann, &format!("GET /v1/deployments/{name}"), &Value::Null).1.contains(what)
    };
    cell.until("the planted one is refused on the node", |cell| {
        says(cell, "bad", "leads out of the bind root")
    });
    cell.until("what is not there is not made", |cell| {
        says(cell, "gone", "No such file or directory")
    });
    cell.until("the directory is bound", |cell| says(cell, "good", "\"state\":\"running\""));
    assert!(!Path::new(&root).join("shop/absent").exists());
}

#[test]
fn a_token_that_is_bound_to_deployments_sees_no_others_whichever_node_is_asked() {
    let mut cell = Cell::idle(Site::Loopback);
    fs::set_permissions(cell.dir.path(), Permissions::from_mode(0o755)).unwrap();
    cell.form(3);
    for name in ["shop-eu", "blog"] {
        let file = format!(
            "name: {name}\nservices:\n  web: {{image: any, command: [sleep, '1000'], x-plimsoll: {{priority: 1}}}}\n"
        );
        fs::write(cell.dir.path().join("compose.yaml"), file).unwrap();
        let applied = cell.run(0, "apply -f compose.yaml");
        assert_eq!(applied.code(), 0, "{}", applied.text());
    }
    let ci = token(&cell, "ci --role deploy --deployments shop-*");
    let refused = cell.run(0, "token create boss --role admin --deployments shop-*");
    assert!(refused.code() == 1 && refused.stderr().contains("admin"), "{}", refused.text());
    for at in cell.nodes() {
        cell.until("the token is good everywhere", |cell| {
            ask(cell, at, &ci, "GET /v1/nodes", &Value::Null).0 == 200
        });
        for line in [
            "GET /v1/deployments/blog",
            "GET /v1/deployments/nothing-of-it",
            "GET /v1/deployments/%62log",
            "GET /v1/deployments/blog/history",
            "GET /v1/deployments/blog/logs",
            "GET /v1/status?deployment=blog",
            "GET /v1/replicas/blog-web-1",
            "GET /v1/replicas/blog-web-1/logs",
            "GET /v1/explain/blog-web-1",
            "GET /v1/watch?deployment=blog",
            "GET /v1/snapshot",
            "GET /v1/audit",
            "DELETE /v1/deployments/blog",
        ] {
            let (status, text) = ask(&cell, at, &ci, line, &Value::Null);
            assert_eq!(status, 403, "{line}: {text}");
        }
        for (line, body) in [
            ("PUT /v1/deployments/blog", apply(&[])),
            ("POST /v1/deployments/blog/scale", json!({"services": {"web": 0}})),
            ("POST /v1/deployments/blog/restart", json!({})),
            ("POST /v1/replicas/blog-web-1/exec", json!({"command": ["true"]})),
        ] {
            let (status, text) = ask(&cell, at, &ci, line, &body);
            assert_eq!(status, 403, "{line}: {text}");
        }
        for path in ["/v1/status", "/v1/deployments", "/v1/replicas", "/v1/deployments/shop-eu"] {
            let (status, text) = ask(&cell, at, &ci, &format!("GET {path}"), &Value::Null);
            assert_eq!(status, 200, "{path}: {text}");
            assert!(text.contains("shop-eu") && !text.contains("blog"), "{path}: {text}");
        }
        let restart = ask(&cell, at, &ci, "POST /v1/deployments/shop-eu/restart", &json!({}));
        assert_eq!(restart.0, 200, "its own: {}", restart.1);
    }
    let listed = cell.run(0, "token list");
    assert!(listed.stdout().contains("shop-*"), "{}", listed.text());
}
