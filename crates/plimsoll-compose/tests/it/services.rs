//! The short and long forms of a service's keys.

use plimsoll_model::spec::{
    Device, FileContent, HealthTest, MountSource, NetworkAttachment, PortMode, PullPolicy, Ulimit,
};
use plimsoll_model::units::{Bytes, MilliCpus, Millis};

use crate::case::{file, service_web, web};

fn list(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_command_is_a_list_or_a_line() {
    for (keys, command) in [
        ("command: nginx -g 'daemon off;'", Some(list(&["nginx", "-g", "daemon off;"]))),
        ("command: [nginx, -g, daemon off;]", Some(list(&["nginx", "-g", "daemon off;"]))),
        ("command: [1, true]", Some(list(&["1", "true"]))),
        ("command: []", Some(list(&[]))),
        ("command: ''", Some(list(&[]))),
        ("command:", None),
        ("command: null", None),
        ("command: >\n  run\n  --fast\n", Some(list(&["run", "--fast"]))),
    ] {
        assert_eq!(web(keys).container().command, command, "{keys}");
    }
    assert_eq!(web("entrypoint: sh -c x").container().entrypoint, Some(list(&["sh", "-c", "x"])));
    assert_eq!(web("command: echo 'open").errors(), ["`command`: a single quote is never closed"]);
}

#[test]
fn a_healthcheck_says_how_it_runs() {
    for (keys, test) in [
        ("test: curl -f localhost", HealthTest::Shell("curl -f localhost".to_owned())),
        ("test: [CMD, curl, localhost]", HealthTest::Command(list(&["curl", "localhost"]))),
        ("test: [CMD-SHELL, curl || exit 1]", HealthTest::Shell("curl || exit 1".to_owned())),
        ("test: [NONE]", HealthTest::Disabled),
        ("disable: true", HealthTest::Disabled),
        ("interval: 5s", HealthTest::Image),
    ] {
        let check = web(&format!("healthcheck:\n  {keys}")).container().healthcheck.unwrap();
        assert_eq!(check.test, test, "{keys}");
    }
    let keys = "\
healthcheck:
  interval: 1m30s
  timeout: 500ms
  retries: '5'
  start_period: 40s
  start_interval: 1s";
    let check = web(keys).container().healthcheck.unwrap();
    assert_eq!(check.interval, Some(Millis(90_000)));
    assert_eq!(check.timeout, Some(Millis(500)));
    assert_eq!(check.retries, Some(5));
    assert_eq!(check.start_period, Some(Millis(40_000)));
    assert_eq!(check.start_interval, Some(Millis(1_000)));
}

#[test]
fn ports_have_a_long_form() {
    let keys = "\
ports:
  - {target: 80, published: 8080, protocol: udp, mode: host, host_ip: 127.0.0.1}
  - {target: 443, name: web}
  - 3000
  - '6000-6001:7000-7001'";
    let ports = web(keys).container().ports;
    assert_eq!(ports.len(), 5);
    assert_eq!((ports[0].target, ports[0].mode), (80, PortMode::Host));
    assert_eq!(ports[0].host_ip.as_deref(), Some("127.0.0.1"));
    assert_eq!((ports[1].target, ports[1].published, ports[1].mode), (443, None, PortMode::Routed));
    assert_eq!((ports[4].target, ports[4].published), (7001, Some(6001)));
    assert_eq!(web("ports: [{published: 80}]").errors(), ["an entry of `ports` needs `target`"]);
}

#[test]
fn mounts_have_a_short_form() {
    let volumes = "volumes: {data: {driver: nfs, driver_opts: {share: a}}}\n";
    let mounts = |keys: &str| file(format!("{volumes}{}", service_web(keys))).container().mounts;
    let bind = |path: &str| MountSource::Bind {
        path: path.to_owned(),
        propagation: None,
        create_host_path: true,
        selinux: None,
    };
    let volume = MountSource::Volume { name: "data".to_owned(), subpath: None, nocopy: false };
    for (text, source, target, read_only) in [
        ("/cache", MountSource::Anonymous, "/cache", false),
        ("data:/data/", volume.clone(), "/data", false),
        ("data:/data:ro", volume, "/data", true),
        ("/srv/a:/a", bind("/srv/a"), "/a", false),
        ("./a:/a:rw", bind("./a"), "/a", false),
        ("../a:/a", bind("../a"), "/a", false),
        ("~/a:/a", bind("~/a"), "/a", false),
    ] {
        let mounts = mounts(&format!("volumes: ['{text}']"));
        assert_eq!(mounts[0].source, source, "{text}");
        assert_eq!((mounts[0].target.as_str(), mounts[0].read_only), (target, read_only), "{text}");
    }
    let shared = mounts("volumes: ['/a:/a:ro,z,rshared,cached']").remove(0);
    assert_eq!(shared.consistency.as_deref(), Some("cached"));
    let MountSource::Bind { propagation, selinux, .. } = shared.source else { panic!("a bind") };
    assert_eq!((propagation.as_deref(), selinux.as_deref()), (Some("rshared"), Some("z")));

    let case = file(format!("{volumes}{}", service_web("volumes: ['data:/data']")));
    assert_eq!(case.container().volumes["data"].driver.as_deref(), Some("nfs"));
    assert!(case.service("web").is_stateful());
}

#[test]
fn relative_binds_are_below_the_project_and_said_to_be() {
    let case = web("volumes: ['./conf/../site:/site', '~/x:/x']").directory("/srv/shop");
    let case = case.env("HOME", "/home/me");
    let paths: Vec<_> = case
        .container()
        .mounts
        .into_iter()
        .map(|mount| match mount.source {
            MountSource::Bind { path, .. } => path,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(paths, ["/srv/shop/site", "/home/me/x"]);
    let warning = "/srv/shop/site must exist on every node that may run this service";
    assert_eq!(case.warnings(), [warning]);
}

#[test]
fn mounts_have_a_long_form() {
    let keys = "\
volumes:
  - {type: bind, source: /a, target: /a, read_only: true, bind: {propagation: rslave, create_host_path: false, selinux: Z}}
  - {type: volume, source: data, target: /b, volume: {nocopy: true, subpath: sub}}
  - {type: volume, target: /c}
  - {type: tmpfs, target: /d, tmpfs: {size: 64m, mode: 01777}}
tmpfs: ['/e:size=1m,mode=700,noexec', /f]";
    let mounts = file(format!("volumes: {{data: }}\n{}", service_web(keys))).container().mounts;
    let sources: Vec<_> = mounts.iter().map(|mount| mount.source.clone()).collect();
    let tmpfs = |size: Option<u64>, mode, options: &[&str]| MountSource::Tmpfs {
        size: size.map(Bytes),
        mode,
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    };
    assert_eq!(
        sources,
        [
            MountSource::Bind {
                path: "/a".to_owned(),
                propagation: Some("rslave".to_owned()),
                create_host_path: false,
                selinux: Some("Z".to_owned()),
            },
            MountSource::Volume {
                name: "data".to_owned(),
                subpath: Some("sub".to_owned()),
                nocopy: true
            },
            MountSource::Anonymous,
            tmpfs(Some(64 << 20), Some(0o1777), &[]),
            tmpfs(Some(1 << 20), Some(0o700), &["noexec"]),
            tmpfs(None, None, &[]),
        ]
    );
    assert!(mounts[0].read_only);
}

#[test]
fn mounts_that_cannot_be_are_refused() {
    for (keys, error) in [
        ("volumes: [data:/data]", "volume \"data\" is not declared"),
        ("volumes: ['/a:b']", "a mount needs an absolute path in the container, found \"b\""),
        ("volumes: ['/a:/b:fast']", "\"fast\" is not an option of this mount"),
        ("volumes: ['/a:/b:ro:x']", "\"/a:/b:ro:x\" is not source:target:options"),
        ("volumes: ['/a:/x', '/b:/x/']", "two mounts at /x"),
        ("volumes: [{target: /a}]", "an entry of `volumes` needs `type`: bind, volume or tmpfs"),
        ("volumes: [{type: npipe, source: a, target: /a}]", "this type of mount is not supported"),
        (
            "volumes: [{type: cluster, source: a, target: /a}]",
            "this type of mount is not supported",
        ),
        ("volumes: [{type: bind, target: /a}]", "a bind mount needs `source`"),
        ("tmpfs: ['/a:colour=red']", "\"colour=red\" is not an option of `tmpfs`"),
        (
            "tmpfs: ['/a:size=-1']",
            "`tmpfs`: \"-1\" is not a size; write 512m, 2gb or a number of bytes",
        ),
    ] {
        assert_eq!(web(keys).errors(), [error], "{keys}");
    }
}

#[test]
fn networks_are_a_list_or_a_mapping() {
    let text = "\
services:
  list: {image: x, networks: [front, outer]}
  map: {image: x, networks: {front: {aliases: [www], ipv4_address: 10.0.0.5}, default: }}
  none: {image: x}
  host: {image: x, network_mode: host}
networks:
  front: {internal: true}
  outer: {external: true, name: shared}
";
    let networks = |service: &str| file(text).service(service).container.networks;
    let front = NetworkAttachment { internal: true, ..NetworkAttachment::default() };
    assert_eq!(networks("list")["front"], front);
    let outer = &networks("list")["outer"];
    assert_eq!((outer.name.as_deref(), outer.external), (Some("shared"), true));
    assert!(networks("map")["front"].aliases.contains("www"));
    assert_eq!(networks("map").len(), 2);
    assert_eq!(networks("none").into_keys().collect::<Vec<_>>(), ["default"]);
    assert!(networks("host").is_empty());
    for (keys, error) in [
        ("networks: [front]", "network \"front\" is not declared"),
        ("network_mode: service:db", "`network_mode: service:db` is not supported"),
        (
            "network_mode: host\nnetworks: [default]",
            "a service has `network_mode` or `networks`, not both",
        ),
        ("pid: container:x", "`pid: container:x` is not supported"),
        ("ipc: shared", "`ipc` must be host, private, shareable or none, found \"shared\""),
    ] {
        assert_eq!(web(keys).errors(), [error], "{keys}");
    }
}

#[test]
fn configs_and_secrets_travel_with_the_spec() {
    let text = "\
services:
  web:
    image: x
    configs: [site, {source: inline, target: etc/inline, uid: 5, mode: 0440}]
    secrets: [key, {source: shell, target: /abs, mode: '400'}, far]
configs:
  site: {file: ./site.conf}
  inline: {content: \"hello $NAME\"}
secrets:
  key: {file: key.pem}
  shell: {environment: TOKEN}
  far: {external: true, name: vault-key}
";
    let case = file(text).with("./site.conf", "a").with("key.pem", "b");
    let container = case.env("TOKEN", "c").env("NAME", "you").container();
    let shown = |mounts: &[plimsoll_model::spec::FileMount]| -> Vec<String> {
        let show = |mount: &plimsoll_model::spec::FileMount| {
            let content = match &mount.content {
                FileContent::Inline(bytes) => String::from_utf8(bytes.clone()).unwrap(),
                FileContent::External(name) => format!("<{name}>"),
                FileContent::Kept { .. } => unreachable!("a file has no versions"),
            };
            format!("{} {:?} {content}", mount.target, mount.mode)
        };
        mounts.iter().map(show).collect()
    };
    assert_eq!(shown(&container.configs), ["/etc/inline Some(288) hello you", "/site None a"]);
    assert_eq!(
        shown(&container.secrets),
        ["/abs Some(256) c", "/run/secrets/far None <vault-key>", "/run/secrets/key None b"]
    );
    assert!(!format!("{container:?}").contains("hello you"), "content stays out of debug prints");
}

#[test]
fn configs_and_secrets_that_cannot_be_had_are_refused() {
    for (top, error) in [
        ("{file: none}", "cannot read none: entity not found"),
        ("{environment: NONE}", "the variable NONE is not set"),
        ("{}", "nothing says where `key` comes from"),
        ("{file: a, environment: B}", "more than one key says where `key` comes from"),
        ("{driver: vault, external: true}", "`driver` is not supported"),
    ] {
        let text = format!("{}secrets: {{key: {top}}}\n", service_web("secrets: [key]"));
        assert_eq!(file(&text).errors(), [error], "{top}");
    }
    assert_eq!(web("secrets: [key]").errors(), ["secret \"key\" is not declared"]);
    let unused = format!("{}secrets: {{key: {{file: none}}}}\n", service_web(""));
    assert_eq!(file(&unused).errors(), [] as [&str; 0], "what nothing uses is not read");
}

#[test]
fn resources_have_old_and_new_keys() {
    let new = "\
deploy:
  resources:
    limits: {cpus: '1.5', memory: 512M, pids: 100}
    reservations: {cpus: 0.25, memory: 128mb}";
    let container = web(new).container();
    assert_eq!(
        (container.limits.cpu, container.limits.memory),
        (MilliCpus(1_500), Bytes(512 << 20))
    );
    assert_eq!(container.reservations.cpu, MilliCpus(250));
    assert_eq!(container.pids_limit, Some(100));
    let old = web("cpus: 1.5\nmem_limit: 512m\npids_limit: 100\nmem_reservation: 128m").container();
    assert_eq!((old.limits, old.pids_limit), (container.limits, container.pids_limit));
    assert_eq!(old.reservations.memory, container.reservations.memory);
    assert_eq!(web("cpu_quota: 50000").container().limits.cpu, MilliCpus(500));
    assert_eq!(web("cpu_quota: 50000\ncpu_period: 25000").container().limits.cpu, MilliCpus(2_000));
    assert_eq!(web("memswap_limit: -1").container().memory_swap, Some(-1));
    for (keys, error) in [
        (
            "mem_limit: 1g\ndeploy: {resources: {limits: {memory: 2g}}}",
            "`mem_limit` and `memory` of `deploy` conflict",
        ),
        (
            "deploy: {resources: {limits: {cpus: 1}, reservations: {cpus: 2}}}",
            "2 cpus are reserved, the limit is 1",
        ),
        ("mem_limit: 1g\nmem_reservation: 2g", "2 GiB are reserved, the limit is 1 GiB"),
        ("cpus: lots", "`cpus`: \"lots\" is not a number of cpus; write 0.5 or 2"),
        ("cpu_quota: -1", "`cpu_quota` must be a number of microseconds, found \"-1\""),
    ] {
        assert_eq!(web(keys).errors(), [error], "{keys}");
    }
}

#[test]
fn gpus_are_counted_for_placement() {
    for (keys, count) in [
        ("gpus: all", None),
        ("gpus: [{driver: nvidia, count: 2}]", Some(2)),
        ("gpus: [{device_ids: ['0', '3']}]", Some(2)),
        (
            "deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: 3}]}}}",
            Some(3),
        ),
        (
            "deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: all}]}}}",
            None,
        ),
    ] {
        let service = web(keys).service("web");
        let (request, all) = (service.request(), u32::from(count.is_none()));
        assert_eq!((request.gpus, request.all_gpus), (count.unwrap_or(0), all), "{keys}");
        assert_eq!(service.container.gpus, count.unwrap_or(1), "{keys}");
        assert_eq!(service.container.gpu_requests.len(), 1, "{keys}");
    }
    for keys in [
        "gpus: some",
        "gpus: [{count: 1, device_ids: ['0']}]",
        "gpus: [{count: 0}]",
        "deploy: {resources: {reservations: {devices: [{count: 1}]}}}",
        "deploy: {resources: {reservations: {devices: [{capabilities: [tpu]}]}}}",
    ] {
        assert_eq!(web(keys).errors().len(), 1, "{keys}");
    }
}

#[test]
fn kernel_limits_and_devices_have_two_forms() {
    let keys = "\
ulimits: {nproc: 65535, nofile: {soft: 20000, hard: '40000'}, core: -1}
devices: ['/dev/a', '/dev/b:/dev/c', '/dev/d:/dev/e:r', {source: /dev/f, permissions: rw}]
sysctls: [net.core.somaxconn=1024]
extra_hosts: ['a:10.0.0.1', 'b=::1']";
    let container = web(keys).container();
    assert_eq!(container.ulimits["nproc"], Ulimit { soft: 65_535, hard: 65_535 });
    assert_eq!(container.ulimits["nofile"], Ulimit { soft: 20_000, hard: 40_000 });
    assert_eq!(container.ulimits["core"], Ulimit { soft: -1, hard: -1 });
    let device = |source: &str, target: &str, permissions: &str| Device {
        source: source.to_owned(),
        target: target.to_owned(),
        permissions: permissions.to_owned(),
    };
    assert_eq!(
        container.devices,
        [
            device("/dev/a", "/dev/a", "rwm"),
            device("/dev/b", "/dev/c", "rwm"),
            device("/dev/d", "/dev/e", "r"),
            device("/dev/f", "/dev/f", "rw"),
        ]
    );
    assert_eq!(container.sysctls["net.core.somaxconn"], "1024");
    assert_eq!(container.extra_hosts["b"], ["::1"]);
    let mapped = web("extra_hosts: {a: [10.0.0.1, 10.0.0.2]}").container();
    assert_eq!(mapped.extra_hosts["a"].len(), 2);
    assert_eq!(
        web("ulimits: {nofile: {soft: 2, hard: 1}}").errors(),
        ["`nofile` has a soft limit above its hard one"]
    );
}

#[test]
fn truth_has_several_spellings() {
    for (text, value) in [
        ("true", true),
        ("yes", true),
        ("'on'", true),
        ("False", false),
        ("no", false),
        ("off", false),
    ] {
        assert_eq!(web(&format!("tty: {text}")).container().tty, Some(value), "{text}");
    }
    assert_eq!(web("tty: maybe").errors(), ["`tty` must be true or false, found \"maybe\""]);
}

#[test]
fn pull_policies_have_old_and_new_words() {
    for (word, policy) in [
        ("always", PullPolicy::Always),
        ("missing", PullPolicy::Missing),
        ("if_not_present", PullPolicy::Missing),
        ("never", PullPolicy::Never),
        ("daily", PullPolicy::Always),
        ("every_12h", PullPolicy::Always),
    ] {
        assert_eq!(web(&format!("pull_policy: {word}")).container().pull, Some(policy), "{word}");
    }
    assert_eq!(web("pull_policy: build").errors().len(), 1);
}

#[test]
fn a_build_beside_an_image_is_ignored_and_said_to_be() {
    assert_eq!(
        web("build: .").warnings(),
        ["`build` is ignored: nginx is used as it is in the registry"]
    );
    let errors = file("services: {web: {command: x}}").errors();
    assert_eq!(errors, ["service \"web\" has no image"]);
}

#[test]
fn a_file_mode_in_decimal_is_read_as_compose_reads_it_with_a_warning() {
    let text = |mode: &str| {
        format!(
            "configs: {{c: {{content: x}}}}\n{}",
            service_web(&format!("configs: [{{source: c, mode: {mode}}}]"))
        )
    };
    let mode = |written: &str| file(text(written)).container().configs[0].mode;
    for (written, read) in
        [("0440", 0o440), ("0o440", 0o440), ("'440'", 0o440), ("288", 0o440), ("440", 440)]
    {
        assert_eq!(mode(written), Some(read), "{written}");
    }
    assert_eq!(file(text("440")).warnings(), ["440 is read as a decimal number: file mode 0670"]);
    assert_eq!(file(text("rw")).errors(), ["`mode` must be a file mode, found rw"]);
}

#[test]
fn anchors_aliases_and_merge_keys_are_resolved() {
    let text = "\
x-env: &env {A: '1', B: '2'}
x-base: &base
  image: nginx
  user: nobody
  environment: &more {<<: *env, C: '3'}
x-second: &second {user: root, working_dir: /srv}
services:
  web:
    <<: [*base, *second]
    environment:
      <<: *more
      B: mine
";
    let container = file(text).container();
    assert_eq!(container.image, "nginx");
    assert_eq!(container.user.as_deref(), Some("nobody"), "an earlier mapping wins");
    assert_eq!(container.working_dir.as_deref(), Some("/srv"));
    let values: Vec<_> = container.environment.into_values().collect();
    assert_eq!(values, ["1", "mine", "3"], "a key of the mapping itself wins");
    let errors = web("<<: nothing").errors();
    assert_eq!(errors, ["`<<` merges mappings, found a single value"]);
}

#[test]
fn a_container_is_reached_by_its_name_and_by_what_links_call_it() {
    let text = "\
services:
  web: {image: x, container_name: shop-web, networks: [front, theirs], links: ['db:database', 'cache']}
  db: {image: x, networks: {front: , back: {aliases: [pg]}}}
  cache: {image: x, networks: [back]}
networks: {front: , back: , theirs: {external: true}}
";
    let services = file(text).load().deployment.services;
    let names = |service: &str, network: &str| -> Vec<String> {
        services[service].container.networks[network].aliases.iter().cloned().collect()
    };
    assert_eq!(names("web", "front"), ["shop-web"]);
    assert_eq!(
        names("web", "theirs"),
        [] as [&str; 0],
        "names on networks of others are not ours to give"
    );
    assert_eq!(names("db", "front"), ["database"]);
    assert_eq!(names("db", "back"), ["pg"], "the linking service is not in this one");
    assert_eq!(services["web"].depends_on.len(), 2);
    let unlinked = file(text.replace("db:database", "db")).load().deployment.services;
    assert_ne!(services["db"].hash, unlinked["db"].hash, "a new name takes a new container");
}

#[test]
fn links_give_no_name_that_another_has() {
    let text = "\
services:
  web: {image: x, links: ['one:two', 'one:three']}
  one: {image: x}
  two: {image: x}
  lonely: {image: x, network_mode: none, links: ['one:four']}
";
    let errors = file(text).try_load().unwrap_err();
    let said: Vec<_> =
        errors.list.iter().map(|it| (it.message.as_str(), it.hint.as_deref())).collect();
    assert_eq!(
        said,
        [
            (
                "`links` calls one by a name that is taken",
                Some("two is two here: use the name one, or another alias")
            ),
            (
                "`links` calls one by the name four, and they share no network",
                Some("attach lonely and one to one network")
            ),
        ]
    );
}

#[test]
fn the_network_of_the_node_is_a_mode() {
    for (declared, mode) in [
        ("networks: {host: {external: true}}", Some("host")),
        ("networks: {host: {external: true, name: none}}", Some("none")),
        ("networks: {host: {name: host, external: false}}", None),
        ("networks: {host: }", None),
    ] {
        let container =
            file(format!("services: {{web: {{image: x, networks: [host]}}}}\n{declared}\n"))
                .container();
        assert_eq!(container.network_mode.as_deref(), mode, "{declared}");
        assert_eq!(container.networks.is_empty(), mode.is_some(), "{declared}");
    }
}

#[test]
fn an_address_is_kept_on_networks_that_somebody_else_made() {
    let text = "\
services:
  web: {image: x, networks: {own: {ipv4_address: 172.20.0.5}, theirs: {ipv4_address: 172.21.0.5}}}
networks: {own: {ipam: {config: [{subnet: 172.20.0.0/16}]}}, theirs: {external: true}}
";
    let networks = file(text).container().networks;
    assert_eq!(networks["own"].ipv4_address, None);
    assert_eq!(networks["theirs"].ipv4_address.as_deref(), Some("172.21.0.5"));
    assert_eq!(
        file(text).warnings(),
        [
            "`ipv4_address` is ignored: plimsoll chooses the addresses of its networks",
            "`ipam` is ignored: plimsoll chooses the addresses",
        ]
    );
}

#[test]
fn a_merge_key_may_say_that_it_is_one() {
    let text = "x-base: &base {user: nobody}\nservices:\n  web: {!!merge <<: *base, image: x}\n";
    assert_eq!(file(text).container().user.as_deref(), Some("nobody"));
}
