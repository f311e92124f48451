use std::sync::Arc;
use std::time::Duration;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptions};
use expect_test::expect;
use plimsoll_model::spec::NetworkAttachment;
use plimsoll_model::{CellId, ContainerSpec};
use plimsoll_runtime::docker::Settings;
use plimsoll_runtime::{
    ContainerStatus, DockerRuntime, Error, ExecOutcome, ExecRequest, Runtime, StartRequest,
};

use super::harness::{TestCell, container, done, idle, sh};

#[tokio::test]
async fn a_container_lives_from_start_to_removal() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.run("echo hello; exec sleep 600").await;
    cell.says(&tag, "hello").await;
    assert!(matches!(cell.status(&tag).await, Some(ContainerStatus::Running { .. })));
    let error = cell.runtime.remove(&tag).await.unwrap_err();
    let expected = format!("cannot remove {}-web-1 g1: still running; stop it first", cell.name);
    assert_eq!(error.to_string(), expected);
    cell.runtime.stop(&tag).await.unwrap();
    assert_eq!(cell.exit(&tag).await, done(137));
    let error = cell.runtime.exec(&tag, &ExecRequest::shell("true")).await.unwrap_err();
    assert!(matches!(error, Error::NotRunning { .. }), "{error}");
    cell.runtime.remove(&tag).await.unwrap();
    assert_eq!(cell.status(&tag).await, None);
    let error = cell.runtime.exec(&tag, &ExecRequest::shell("true")).await.unwrap_err();
    assert!(matches!(error, Error::Absent { .. }), "{error}");
}

#[tokio::test]
async fn what_is_done_already_is_done_again_without_harm() {
    let Some(cell) = TestCell::new() else { return };
    cell.runtime.stop(&cell.tag(9)).await.unwrap();
    cell.runtime.remove(&cell.tag(9)).await.unwrap();
    let tag = cell.start(1, idle()).await;
    let first = cell.inspect(&tag).await.id;
    cell.start(1, sh("exit 1")).await;
    assert_eq!(cell.inspect(&tag).await.id, first, "a second start leaves the first alone");
    for _ in 0..2 {
        cell.runtime.stop(&tag).await.unwrap();
    }
    for _ in 0..2 {
        cell.runtime.remove(&tag).await.unwrap();
    }
    assert_eq!(cell.belongings().await, [vec![], vec![], vec![]] as [Vec<String>; 3]);
}

#[tokio::test]
async fn what_exited_starts_again_with_its_logs_and_its_files() {
    let Some(cell) = TestCell::new() else { return };
    let script = "echo run >> /tmp/runs; echo seen $(wc -l < /tmp/runs)";
    for _ in 0..2 {
        let tag = cell.run(script).await;
        cell.exit(&tag).await;
    }
    let Some(ContainerStatus::Exited { since, at, .. }) = cell.status(&cell.tag(1)).await else {
        panic!("it ended")
    };
    assert!(since <= at);
    assert_eq!(cell.printed(&cell.tag(1)).await, ["seen 1", "seen 2"]);
}

#[tokio::test]
async fn four_starts_at_once_make_one_container() {
    let Some(cell) = TestCell::new() else { return };
    let order = cell.order(1, sh("echo up; exec sleep 600"));
    let start = || cell.runtime.start(&order);
    let (one, two, three, four) = tokio::join!(start(), start(), start(), start());
    for result in [one, two, three, four] {
        result.unwrap();
    }
    cell.says(&order.tag, "up").await;
    assert_eq!(cell.printed(&order.tag).await, ["up"]);
}

/// Two daemons, as when one was told to stop and is not gone yet: only the engine stands between them.
#[tokio::test]
async fn two_daemons_at_once_make_one_container() {
    let Some(cell) = TestCell::new() else { return };
    let other = DockerRuntime::open(cell.settings.clone());
    let spec = ContainerSpec { network_mode: None, ..sh("echo up; exec sleep 600") };
    let orders: Vec<StartRequest> =
        (1..=4).map(|generation| cell.order(generation, spec.clone())).collect();
    for order in &orders {
        let (one, two) = tokio::join!(cell.runtime.start(order), other.start(order));
        one.unwrap();
        two.unwrap();
    }
    let [containers, networks, _] = cell.belongings().await;
    assert_eq!((containers.len(), networks.len()), (4, 1));
    for order in &orders {
        cell.says(&order.tag, "up").await;
        assert_eq!(cell.printed(&order.tag).await, ["up"]);
    }
}

#[tokio::test]
async fn a_new_runtime_adopts_what_runs() {
    let Some(mut cell) = TestCell::new() else { return };
    let script = "trap 'exit 5' USR1; echo ready; while :; do sleep 0.05; done";
    let spec = ContainerSpec { stop_signal: Some("SIGUSR1".into()), ..sh(script) };
    let tag = cell.start(1, spec).await;
    cell.says(&tag, "ready").await;
    let before = (cell.status(&tag).await, cell.inspect(&tag).await.id);
    cell.reopen();
    cell.start(1, sh("exit 1")).await;
    assert_eq!((cell.status(&tag).await, cell.inspect(&tag).await.id), before);
    cell.runtime.stop(&tag).await.unwrap();
    assert_eq!(cell.exit(&tag).await, done(5), "its own signal, which only the container knew");
}

/// A daemon that died between creating and starting leaves one that lacks a network and has not run.
#[tokio::test]
async fn what_was_created_and_never_started_is_finished() {
    let Some(cell) = TestCell::new() else { return };
    let networks = ["back", "front"].map(|name| (name.to_owned(), NetworkAttachment::default()));
    let spec = ContainerSpec { network_mode: None, networks: networks.into(), ..idle() };
    let tag = cell.start(1, spec.clone()).await;
    let whole = cell.inspect(&tag).await;
    let (config, host) = (whole.config.unwrap(), whole.host_config.unwrap());
    let networks = whole.network_settings.unwrap().networks.unwrap();
    cell.runtime.stop(&tag).await.unwrap();
    let removal = RemoveContainerOptions { force: true, ..Default::default() };
    cell.docker.remove_container(&container(&tag), Some(removal)).await.unwrap();

    let options = CreateContainerOptions { name: Some(container(&tag)), ..Default::default() };
    let body = ContainerCreateBody {
        image: config.image,
        cmd: config.cmd,
        labels: config.labels,
        host_config: Some(host),
        ..Default::default()
    };
    let half = cell.docker.create_container(Some(options), body).await.unwrap().id;
    assert_eq!(cell.status(&tag).await, Some(ContainerStatus::Created));
    cell.start(1, spec).await;
    let finished = cell.inspect(&tag).await;
    assert_eq!(finished.id, Some(half));
    let joined = finished.network_settings.unwrap().networks.unwrap();
    assert_eq!(joined.len(), networks.len());
    assert!(cell.status(&tag).await.is_some_and(|status| status.is_running()));
}

#[tokio::test]
async fn a_name_that_a_stranger_holds_is_not_taken() {
    let Some(cell) = TestCell::new() else { return };
    let tag = cell.tag(1);
    let options = CreateContainerOptions { name: Some(container(&tag)), ..Default::default() };
    let body = ContainerCreateBody { image: Some(idle().image), ..Default::default() };
    let stranger = cell.docker.create_container(Some(options), body).await.unwrap().id;
    let complaint = cell.complaint(&cell.order(1, idle())).await;
    cell.runtime.stop(&tag).await.unwrap();
    cell.runtime.remove(&tag).await.unwrap();
    assert_eq!(cell.runtime.list().await.unwrap(), []);
    let exec = cell.runtime.exec(&tag, &ExecRequest::shell("true")).await;
    let is_there = cell.docker.inspect_container(&stranger, None).await.is_ok();
    cell.docker.remove_container(&stranger, None).await.unwrap();
    assert!(is_there, "what is not ours is left alone");
    assert!(matches!(exec, Err(Error::Absent { .. })), "{exec:?}");
    let expected = format!(
        "cannot start {name}-web-1 g1: its name {name}-web-1.g1.{name} is held by container {id}, \
         which is not ours; remove or rename that one",
        name = cell.name,
        id = &stranger[..12],
    );
    assert_eq!(complaint, expected);
}

#[tokio::test]
async fn a_cell_sees_and_touches_only_its_own() {
    let (Some(cell), Some(other)) = (TestCell::new(), TestCell::new()) else { return };
    let (ours, theirs) = (cell.start(1, idle()).await, other.start(1, idle()).await);
    let tags = |found: Vec<plimsoll_runtime::ContainerInfo>| {
        found.into_iter().map(|found| found.tag).collect::<Vec<_>>()
    };
    assert_eq!(tags(cell.runtime.list().await.unwrap()), vec![ours]);
    assert_eq!(tags(other.runtime.list().await.unwrap()), vec![theirs.clone()]);
    let error = cell.runtime.stop(&theirs).await.unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    assert!(other.status(&theirs).await.is_some_and(|status| status.is_running()));
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_still_comes_to_its_end() {
    let Some(cell) = TestCell::new() else { return };
    let order = cell.order(1, idle());
    let _ = tokio::time::timeout(Duration::from_millis(1), cell.runtime.start(&order)).await;
    // A stop takes its turn after the start.
    cell.runtime.stop(&order.tag).await.unwrap();
    assert_eq!(cell.exit(&order.tag).await, done(137));
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_said_to_be_so() {
    let files = tempfile::tempdir().unwrap();
    let socket = files.path().join("none.sock");
    let settings = Settings::new(CellId::new("test").unwrap(), &socket, files.path());
    let runtime = DockerRuntime::open(settings);
    let error = runtime.list().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let expected = format!(
        "docker does not answer: {}: there is no such socket; is the engine running?",
        socket.display()
    );
    assert_eq!(plimsoll_runtime::chain(&error), expected);
}

#[tokio::test]
async fn a_bad_command_is_told_and_leaves_nothing_behind() {
    let Some(cell) = TestCell::new() else { return };
    let command = Some(vec!["/bin/nothing".to_owned()]);
    let order = cell.order(1, ContainerSpec { command, network_mode: None, ..idle() });
    let complaint = cell.complaint(&order).await;
    assert!(complaint.contains("/bin/nothing"), "{complaint}");
    assert_eq!(cell.runtime.list().await.unwrap(), []);
    let missing = ContainerSpec { image: "plimsoll-test:none".into(), ..idle() };
    let complaint = cell.complaint(&cell.order(1, missing)).await;
    assert!(complaint.contains("its image is not here; pull it first"), "{complaint}");
}

#[tokio::test]
async fn a_refusal_names_every_reason() {
    let Some(cell) = TestCell::new() else { return };
    let spec =
        ContainerSpec { image: String::new(), network_mode: Some("service:db".into()), ..idle() };
    let order = StartRequest { spec: Arc::new(spec), ..cell.order(1, idle()) };
    let complaint = cell.complaint(&order).await.replace(&cell.name, "NAME");
    expect!["cannot start NAME-web-1 g1: network_mode is shared with service db, whose container may be on another node; run both as one service or on a network; no image is set"].assert_eq(&complaint);
}

#[tokio::test]
async fn the_engine_describes_itself() {
    let Some(cell) = TestCell::new() else { return };
    let described = cell.runtime.describe().await.unwrap();
    assert!(matches!(described.name, "docker" | "podman"));
    assert!(described.version.contains("(API 1."), "{described}");
    let image = "plimsoll-test:checked";
    let check = cell.runtime.image_check(image).await.unwrap().unwrap();
    expect![[r#"
        Healthcheck {
            test: Shell(
                "test -e /tmp/well",
            ),
            interval: Some(
                Millis(
                    7000,
                ),
            ),
            timeout: Some(
                Millis(
                    2000,
                ),
            ),
            start_period: None,
            start_interval: None,
            retries: Some(
                5,
            ),
        }
    "#]]
    .assert_debug_eq(&check);
    let tag = cell.start(1, ContainerSpec { image: image.into(), ..idle() }).await;
    assert_eq!(cell.inspect(&tag).await.state.unwrap().health, None, "the engine runs no check");
    let executed = cell.exec(&tag, &ExecRequest::shell("test -e /tmp/well")).await;
    assert_eq!(executed.outcome, ExecOutcome::Done { status: 1 });
    assert_eq!(cell.runtime.image_check(&idle().image).await.unwrap(), None);
}
