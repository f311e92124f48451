use plimsoll_model::spec::{
    FileContent, FileMount, GpuRequest, Logging, Mount, MountSource, Ulimit,
};
use plimsoll_model::{Bytes, ContainerSpec, MilliCpus, Millis, Resources};
use plimsoll_runtime::Runtime;

use super::harness::{TestCell, idle, sh};

fn file(name: &str, target: &str, content: &str, mode: Option<u32>) -> FileMount {
    FileMount {
        name: name.into(),
        target: target.into(),
        content: FileContent::Inline(content.into()),
        uid: Some("1000".into()),
        gid: None,
        mode,
    }
}

fn tmpfs(target: &str, size: Bytes, mode: u32) -> Mount {
    let options = ["noexec".to_owned()].into();
    let source = MountSource::Tmpfs { size: Some(size), mode: Some(mode), options };
    Mount { source, target: target.into(), read_only: false, consistency: None }
}

#[tokio::test]
async fn values_reach_the_container_letter_for_letter() {
    let Some(cell) = TestCell::new() else { return };
    let values = ["$HOME", "${X:-y}", "$$", "a b  c", "quote\"'", "back\\slash", "über", ""];
    let environment =
        values.iter().enumerate().map(|(i, value)| (format!("V{i}"), (*value).to_owned()));
    let script = "for i in 0 1 2 3 4 5 6 7; do eval \"printf '%s\\n' \\\"\\$V$i\\\"\"; done";
    let spec = ContainerSpec { environment: environment.collect(), ..sh(script) };
    assert_eq!(cell.output(spec).await, values);
}

#[tokio::test]
async fn a_container_is_who_and_where_its_spec_says() {
    let Some(cell) = TestCell::new() else { return };
    let script = "id -u; id -G; pwd; hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; \
        ulimit -n; touch /x 2>/dev/null || echo read-only; touch /scratch/x && echo writable; \
        mount | grep ' /scratch ' | grep -c noexec; df -k /scratch | tail -n 1 | awk '{print $2}'; \
        stat -c %a /scratch; grep CapEff /proc/self/status | cut -f 2; \
        cat /run/secrets/key; stat -c '%a %u' /run/secrets/key; cat /conf; stat -c %a /conf; \
        (echo no > /conf) 2>/dev/null || echo kept; grep ark /etc/hosts | cut -c 1-9; \
        grep -c nameserver.192.0.2.1 /etc/resolv.conf; df -k /dev/shm | tail -n 1 | awk '{print $2}'; \
        cat /proc/self/oom_score_adj; ls -l /dev/naught | cut -c 1";
    let spec = ContainerSpec {
        user: Some("1000:2000".into()),
        group_add: vec!["3000".into()],
        working_dir: Some("/tmp".into()),
        hostname: Some("deck".into()),
        sysctls: [("net.ipv4.ip_unprivileged_port_start".into(), "77".into())].into(),
        ulimits: [("nofile".into(), Ulimit { soft: 512, hard: 1_024 })].into(),
        read_only: Some(true),
        mounts: vec![tmpfs("/scratch", Bytes(2 << 20), 0o1777)],
        cap_drop: ["ALL".into()].into(),
        secrets: vec![file("key", "/run/secrets/key", "s3cret\n", Some(0o400))],
        configs: vec![file("conf", "/conf", "a=$b\n", None)],
        extra_hosts: [("ark".into(), vec!["192.0.2.7".into()])].into(),
        dns: vec!["192.0.2.1".into()],
        shm_size: Some(Bytes(4 << 20)),
        oom_score_adj: Some(321),
        devices: vec![plimsoll_model::spec::Device {
            source: "/dev/null".into(),
            target: "/dev/naught".into(),
            permissions: "rw".into(),
        }],
        init: Some(true),
        // On its own network the engine answers for the nameservers.
        network_mode: Some("bridge".into()),
        ..sh(script)
    };
    let said = cell.output(spec).await;
    let expected = [
        "1000",
        "2000 3000",
        "/tmp",
        "deck",
        "77",
        "512",
        "read-only",
        "writable",
        "1",
        "2048",
        "1777",
        "0000000000000000",
        "s3cret",
        "400 1000",
        "a=$b",
        "444",
        "kept",
        "192.0.2.7",
        "1",
        "4096",
        "321",
        "c",
    ];
    assert_eq!(said, expected);
    let files = cell.path(&format!("{}/files/g1", cell.name));
    assert!(files.is_dir());
    cell.runtime.remove(&cell.tag(1)).await.unwrap();
    assert!(!files.exists(), "what only it needed goes with it");
}

#[tokio::test]
async fn limits_and_settings_arrive_at_the_engine() {
    let Some(cell) = TestCell::new() else { return };
    let spec = ContainerSpec {
        limits: Resources { cpu: MilliCpus(1_500), memory: Bytes(64 << 20), ..Resources::NONE },
        reservations: Resources { cpu: MilliCpus(500), memory: Bytes(32 << 20), ..Resources::NONE },
        pids_limit: Some(50),
        cpu_shares: Some(512),
        cap_add: ["NET_ADMIN".into()].into(),
        security_opt: vec!["no-new-privileges:true".into()],
        device_cgroup_rules: vec!["c 1:3 mr".into()],
        stop_grace: Some(Millis(90_500)),
        labels: [("team".into(), "deck".into()), ("plimsoll.cell".into(), "x".into())].into(),
        expose: ["80".into(), "90-91/udp".into()].into(),
        init: Some(true),
        ipc: Some("private".into()),
        logging: Some(Logging {
            driver: Some("json-file".into()),
            options: [("max-size".into(), "1m".into())].into(),
        }),
        ..idle()
    };
    let tag = cell.start(1, spec).await;
    let container = cell.inspect(&tag).await;
    let (config, host) = (container.config.unwrap(), container.host_config.unwrap());
    assert_eq!(host.nano_cpus, Some(1_500_000_000));
    assert_eq!((host.memory, host.memory_reservation), (Some(64 << 20), Some(32 << 20)));
    assert_eq!((host.pids_limit, host.cpu_shares), (Some(50), Some(512)));
    assert_eq!(host.cap_add, Some(vec!["NET_ADMIN".into()]));
    assert_eq!(host.security_opt, Some(vec!["no-new-privileges:true".into()]));
    assert_eq!(host.device_cgroup_rules, Some(vec!["c 1:3 mr".into()]));
    assert_eq!((host.init, host.ipc_mode.as_deref()), (Some(true), Some("private")));
    assert_eq!(host.log_config.unwrap().config.unwrap()["max-size"], "1m");
    assert_eq!(config.stop_timeout, Some(91), "rounded up: a grace is never cut short");
    let mut exposed = config.exposed_ports.unwrap();
    exposed.sort_unstable();
    assert_eq!(exposed, ["80/tcp", "90/udp", "91/udp"]);
    let labels = config.labels.unwrap();
    for (key, value) in [
        ("team", "deck"),
        ("plimsoll.cell", &cell.name),
        ("plimsoll.replica", &format!("{}/web/1", cell.name)),
        ("plimsoll.generation", "1"),
        ("com.docker.compose.project", &cell.name),
        ("com.docker.compose.service", "web"),
    ] {
        assert_eq!(labels[key], value, "{key}");
    }
}

#[tokio::test]
async fn an_engine_without_gpus_says_what_is_missing() {
    let Some(cell) = TestCell::new() else { return };
    let request = GpuRequest {
        driver: None,
        count: Some(1),
        device_ids: Vec::new(),
        capabilities: ["gpu".into()].into(),
        options: [].into(),
    };
    for spec in [
        ContainerSpec { gpus: 1, ..idle() },
        ContainerSpec { gpus: 1, gpu_requests: vec![request], ..idle() },
    ] {
        let order = cell.order(1, spec);
        // On a node that has one, it starts.
        if let Err(error) = cell.runtime.start(&order).await {
            let complaint = plimsoll_runtime::chain(&error);
            assert!(complaint.contains("install the vendor's container toolkit"), "{complaint}");
        }
    }
}
