//! What the engine is asked to create, worked out from an order. Nothing is done here.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{
    ContainerCreateBody, DeviceMapping, DeviceRequest, HealthConfig, HostConfig,
    HostConfigCgroupnsModeEnum, HostConfigLogConfig, NetworkingConfig, PortBinding, PortMap,
    ResourcesUlimits,
};
use plimsoll_model::spec::{GpuRequest, Ulimit};
use plimsoll_model::{ContainerSpec, Millis};

use super::files::FileDirs;
use super::networks::NetworkEndpoint;
use super::volumes::Names;
use super::{labels, mounts};
use crate::runtime::{Binding, DEFAULT_STOP_GRACE, StartRequest};

/// How a container's output is kept where the compose file does not say: at most 30 MB, the oldest dropped first.
const LOG_DRIVER: &str = "json-file";
const LOG_OPTIONS: [(&str, &str); 2] = [("max-size", "10m"), ("max-file", "3")];

/// Where a container is among others.
pub(super) struct NetworkContext<'a> {
    /// The network it is created in.
    pub(super) endpoint: Option<&'a NetworkEndpoint>,
    pub(super) resolvers: Vec<String>,
}

/// `security` are the spec's options with their profiles read; `volumes` are the names of its volumes.
pub(super) fn body(
    order: &StartRequest,
    files: &FileDirs,
    security: Vec<String>,
    place: NetworkContext<'_>,
    volumes: &Names,
) -> ContainerCreateBody {
    let (spec, endpoint) = (&*order.spec, place.endpoint);
    let mut labels: HashMap<String, String> = spec.labels.clone().into_iter().collect();
    labels.extend(labels::of(&order.tag));
    let environment = spec.environment.iter().map(|(key, value)| format!("{key}={value}"));
    let networking_config = endpoint.map(|endpoint| NetworkingConfig {
        endpoints_config: Some([(endpoint.network.clone(), endpoint.settings.clone())].into()),
    });
    ContainerCreateBody {
        image: Some(spec.pinned_image().into_owned()),
        // An empty word is how the engine is told to forget the image's own.
        entrypoint: spec
            .entrypoint
            .clone()
            .map(|words| if words.is_empty() { vec![String::new()] } else { words }),
        cmd: spec.command.clone(),
        env: Some(environment.collect()),
        working_dir: spec.working_dir.clone(),
        user: spec.user.clone(),
        hostname: spec.hostname.clone(),
        domainname: spec.domainname.clone(),
        labels: Some(labels),
        exposed_ports: Some(exposed(order)),
        tty: spec.tty,
        open_stdin: spec.stdin_open,
        stop_signal: spec.stop_signal.clone(),
        // Kept with the container: whoever stops it, and be it an orphan, knows its grace.
        stop_timeout: Some(seconds(spec.stop_grace.unwrap_or(DEFAULT_STOP_GRACE))),
        // Checks are run by plimsoll, so that one judge speaks for every runtime.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        host_config: Some(host(order, files, security, place, volumes)),
        networking_config,
        ..ContainerCreateBody::default()
    }
}

/// What the compose file says; else the engine's usual files, but bounded: by default they grow until the disk is full.
fn log_config(spec: &ContainerSpec) -> HostConfigLogConfig {
    let (typ, options) = match &spec.logging {
        Some(logging) => (logging.driver.clone(), logging.options.clone()),
        None => (
            Some(LOG_DRIVER.to_owned()),
            LOG_OPTIONS.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ),
    };
    HostConfigLogConfig { typ, config: Some(options.into_iter().collect()) }
}

/// The engine counts in seconds; a grace is never cut short.
fn seconds(grace: Millis) -> i64 {
    i64::try_from(grace.0.div_ceil(1_000)).unwrap_or(i64::MAX)
}

fn host(
    order: &StartRequest,
    files: &FileDirs,
    security: Vec<String>,
    place: NetworkContext<'_>,
    volumes: &Names,
) -> HostConfig {
    let NetworkContext { endpoint, resolvers } = place;
    let spec = &*order.spec;
    let network_mode = match &spec.network_mode {
        Some(mode) => Some(mode.clone()),
        None => endpoint.map(|endpoint| endpoint.network.clone()),
    };
    HostConfig {
        network_mode,
        port_bindings: Some(ports(&order.bindings)),
        binds: some(mounts::binds(spec)),
        mounts: some(mounts::mounts(order, files, volumes)),
        tmpfs: map(mounts::tmpfs(spec)),
        log_config: Some(log_config(spec)),
        init: spec.init,
        privileged: spec.privileged,
        readonly_rootfs: spec.read_only,
        cap_add: some(spec.cap_add.iter().cloned().collect()),
        cap_drop: some(spec.cap_drop.iter().cloned().collect()),
        security_opt: some(security),
        group_add: some(spec.group_add.clone()),
        sysctls: map(spec.sysctls.clone()),
        storage_opt: map(spec.storage_opt.clone()),
        annotations: map(spec.annotations.clone()),
        runtime: spec.runtime.clone(),
        dns: some(resolvers),
        dns_options: some(spec.dns_opt.clone()),
        dns_search: some(spec.dns_search.clone()),
        extra_hosts: some(extra_hosts(spec)),
        ipc_mode: spec.ipc.clone(),
        pid_mode: spec.pid.clone(),
        uts_mode: spec.uts.clone(),
        userns_mode: spec.userns_mode.clone(),
        cgroupns_mode: match spec.cgroup.as_deref() {
            Some("host") => Some(HostConfigCgroupnsModeEnum::HOST),
            Some("private") => Some(HostConfigCgroupnsModeEnum::PRIVATE),
            _ => None,
        },
        ..resources(spec)
    }
}

/// As Compose does: limits are held, a reservation of memory is what is left alone when memory is short, and one of
/// cpus is a promise that placement keeps.
fn resources(spec: &ContainerSpec) -> HostConfig {
    HostConfig {
        nano_cpus: spec.cpu_limit().map(|cpu| number(cpu.0.saturating_mul(1_000_000))),
        memory: spec.memory_limit().map(|memory| number(memory.0)),
        memory_reservation: (spec.reservations.memory.0 > 0)
            .then(|| number(spec.reservations.memory.0)),
        memory_swap: spec.memory_swap,
        memory_swappiness: spec.memory_swappiness.map(i64::from),
        oom_kill_disable: spec.oom_kill_disable,
        oom_score_adj: spec.oom_score_adj.map(i64::from),
        pids_limit: spec.pids_limit,
        cpu_shares: spec.cpu_shares.map(number),
        cpuset_cpus: spec.cpuset.clone(),
        cgroup_parent: spec.cgroup_parent.clone(),
        shm_size: spec.shm_size.map(|size| number(size.0)),
        ulimits: some(spec.ulimits.iter().map(ulimit).collect()),
        devices: some(spec.devices.iter().map(device).collect()),
        device_cgroup_rules: some(spec.device_cgroup_rules.clone()),
        device_requests: some(gpus(spec)),
        ..HostConfig::default()
    }
}

fn ulimit((name, limit): (&String, &Ulimit)) -> ResourcesUlimits {
    let name = Some(name.clone());
    ResourcesUlimits { name, soft: Some(limit.soft), hard: Some(limit.hard) }
}

fn device(device: &plimsoll_model::spec::Device) -> DeviceMapping {
    DeviceMapping {
        path_on_host: Some(device.source.clone()),
        path_in_container: Some(device.target.clone()),
        cgroup_permissions: Some(device.permissions.clone()),
    }
}

/// A count that nothing more is said of is a request of its own.
fn gpus(spec: &ContainerSpec) -> Vec<DeviceRequest> {
    if spec.gpu_requests.is_empty() && spec.gpus > 0 {
        return vec![DeviceRequest {
            count: Some(i64::from(spec.gpus)),
            capabilities: Some(vec![vec!["gpu".to_owned()]]),
            ..DeviceRequest::default()
        }];
    }
    spec.gpu_requests.iter().map(gpu).collect()
}

fn gpu(request: &GpuRequest) -> DeviceRequest {
    let mut capabilities = request.capabilities.clone();
    capabilities.insert("gpu".to_owned());
    // Devices that are named are counted by their names; without a number all of them are meant.
    let count = request.device_ids.is_empty().then(|| request.count.map_or(-1, i64::from));
    DeviceRequest {
        driver: request.driver.clone(),
        count,
        device_ids: some(request.device_ids.clone()),
        capabilities: Some(vec![capabilities.into_iter().collect()]),
        options: map(request.options.clone()),
    }
}

fn extra_hosts(spec: &ContainerSpec) -> Vec<String> {
    let hosts = spec.extra_hosts.iter();
    hosts.flat_map(|(host, ips)| ips.iter().map(move |ip| format!("{host}:{ip}"))).collect()
}

/// Where its ports are bound, as the engine writes it. Also compared with what a container was made with.
pub(super) fn ports(bindings: &[Binding]) -> PortMap {
    let mut ports = PortMap::new();
    for binding in bindings {
        let port = format!("{}/{}", binding.target, binding.protocol);
        ports.entry(port).or_default().get_or_insert_default().push(PortBinding {
            host_ip: Some(binding.address.to_string()),
            host_port: Some(binding.port.to_string()),
        });
    }
    ports
}

fn exposed(order: &StartRequest) -> Vec<String> {
    let named = order.spec.expose.iter().flat_map(|text| expand(text));
    let mut ports: Vec<String> = named.chain(ports(&order.bindings).into_keys()).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// `80` is `80/tcp`, and `80-82/udp` three ports. What is no port is left for the engine to refuse.
fn expand(text: &str) -> Vec<String> {
    let (range, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let ends = range.split_once('-').unwrap_or((range, range));
    match (ends.0.parse::<u16>(), ends.1.parse::<u16>()) {
        (Ok(first), Ok(last)) if first <= last => {
            (first..=last).map(|port| format!("{port}/{protocol}")).collect()
        }
        _ => vec![text.to_owned()],
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What is empty is not said: the engine's own default stands.
fn some<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

fn map(values: BTreeMap<String, String>) -> Option<HashMap<String, String>> {
    (!values.is_empty()).then(|| values.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_model::spec::Logging;
    use plimsoll_model::testkit::replica_id;
    use plimsoll_model::{CellId, Generation};

    use super::*;
    use crate::runtime::Tag;

    fn made(spec: ContainerSpec) -> ContainerCreateBody {
        let cell_id = CellId::new("harbour").unwrap();
        let tag = Tag { cell_id, replica: replica_id("shop/web/1"), generation: Generation(1) };
        let place = NetworkContext { endpoint: None, resolvers: Vec::new() };
        body(
            &StartRequest::new(tag, Arc::new(spec)),
            &FileDirs { configs: "/files".into(), secrets: "/memory".into() },
            Vec::new(),
            place,
            &Names::default(),
        )
    }

    fn request(count: Option<u32>, device_ids: &[&str]) -> GpuRequest {
        GpuRequest {
            driver: None,
            count,
            device_ids: device_ids.iter().map(|id| (*id).to_owned()).collect(),
            capabilities: ["utility".to_owned()].into(),
            options: BTreeMap::new(),
        }
    }

    #[test]
    fn what_a_spec_does_not_say_is_left_to_the_engine() {
        let silent = made(ContainerSpec { image: "app:1".into(), ..ContainerSpec::default() });
        let host = silent.host_config.unwrap();
        assert_eq!((silent.entrypoint, silent.cmd, silent.stop_signal), (None, None, None));
        assert_eq!((host.memory, host.nano_cpus, host.binds), (None, None, None));
        assert_eq!(silent.stop_timeout, Some(10));
        assert_eq!(silent.healthcheck.unwrap().test, Some(vec!["NONE".to_owned()]));
        let cleared = ContainerSpec { entrypoint: Some(Vec::new()), ..ContainerSpec::default() };
        assert_eq!(made(cleared).entrypoint, Some(vec![String::new()]));
    }

    #[test]
    fn logs_are_bounded_unless_the_spec_says_otherwise() {
        let kept = |spec| {
            let config = made(spec).host_config.unwrap().log_config.unwrap();
            let options: BTreeMap<_, _> = config.config.unwrap().into_iter().collect();
            (config.typ, options)
        };
        let (driver, options) = kept(ContainerSpec::default());
        assert_eq!(driver.as_deref(), Some("json-file"));
        assert_eq!(options, BTreeMap::from(LOG_OPTIONS.map(|(k, v)| (k.into(), v.into()))));
        let logging = Logging { driver: Some("journald".into()), options: BTreeMap::new() };
        let spec = ContainerSpec { logging: Some(logging), ..ContainerSpec::default() };
        assert_eq!(kept(spec), (Some("journald".into()), BTreeMap::new()));
    }

    #[test]
    fn gpus_become_requests_for_devices() {
        let with = |requests: Vec<GpuRequest>| ContainerSpec {
            gpus: 2,
            gpu_requests: requests,
            ..ContainerSpec::default()
        };
        for (case, requests, count, ids, capabilities) in [
            ("a mere number", vec![], Some(2), None, vec!["gpu"]),
            ("so many", vec![request(Some(3), &[])], Some(3), None, vec!["gpu", "utility"]),
            ("all of them", vec![request(None, &[])], Some(-1), None, vec!["gpu", "utility"]),
            (
                "these",
                vec![request(None, &["7"])],
                None,
                Some(vec!["7".to_owned()]),
                vec!["gpu", "utility"],
            ),
        ] {
            let [made] = &gpus(&with(requests))[..] else { panic!("{case}: one request") };
            let wanted = Some(vec![capabilities.into_iter().map(str::to_owned).collect()]);
            assert_eq!(
                (made.count, &made.device_ids, &made.capabilities),
                (count, &ids, &wanted),
                "{case}"
            );
        }
        assert_eq!(gpus(&ContainerSpec::default()), []);
    }

    #[test]
    fn exposed_ports_are_spelled_out() {
        for (text, expected) in [
            ("80", &["80/tcp"][..]),
            ("80/udp", &["80/udp"]),
            ("80-82/tcp", &["80/tcp", "81/tcp", "82/tcp"]),
            ("nonsense", &["nonsense"]),
        ] {
            assert_eq!(expand(text), expected, "{text}");
        }
    }
}
