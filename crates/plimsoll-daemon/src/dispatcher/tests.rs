use plimsoll_kernel::Policy;
use plimsoll_model::cell_files::CellFileKind;
use plimsoll_model::registries::{RegistryHost, RegistryPassword};
use plimsoll_model::spec::{FileContent, FileMount};
use plimsoll_model::testkit::{cpus, node_id, replica_id, spread};
use plimsoll_model::{
    CellId, Change, DeploymentName, FileName, MoveCause, Revision, ServiceName, ServiceSpec, Writer,
};
use plimsoll_runtime::FakeRuntime;
use plimsoll_store::Embedded;
use plimsoll_store::embedded::EmbeddedConfig;
use tempfile::TempDir;

use super::*;
use crate::context::NodeContext;

async fn cell() -> (NodeContext, TempDir) {
    let (dir, cell_id) = (TempDir::new().unwrap(), CellId::new("test").unwrap());
    let engine = Embedded::start(EmbeddedConfig::alone(dir.path(), cell_id.clone())).await.unwrap();
    let runtime = Arc::new(FakeRuntime::new(cell_id));
    let cell = NodeContext::new(engine, runtime, node_id("ash"), Arc::default(), Policy::default());
    for node in ["ash", "birch"] {
        write(&cell, Change::PutNode { node: node_id(node), facts: cpus(4) }).await;
    }
    (cell, dir)
}

async fn write(cell: &NodeContext, change: Change) {
    cell.write(Writer::Scheduler, "test", vec![change.free()]).await.unwrap();
}

fn deploy(services: &[(&str, ServiceSpec)]) -> Change {
    let services = services.iter();
    let services =
        services.map(|(name, spec)| (ServiceName::new(name).unwrap(), spec.clone().into()));
    Change::Deploy {
        deployment: DeploymentName::new("shop").unwrap(),
        services: services.collect(),
        routes: Vec::new(),
    }
}

/// Which generations are asked for of each replica that was told of.
fn told(update: &AssignmentUpdate) -> Vec<(String, Vec<u64>)> {
    let generations = |brief: &Assignments| brief.wanted.iter().map(|w| w.generation.0).collect();
    match update {
        AssignmentUpdate::All(all) => {
            all.iter().map(|(id, b)| (id.to_string(), generations(b))).collect()
        }
        AssignmentUpdate::Some(some) => some
            .iter()
            .map(|(id, b)| (id.to_string(), b.as_ref().map(generations).unwrap_or_default()))
            .collect(),
        AssignmentUpdate::Volumes(_) => panic!("no volumes are to go"),
    }
}

#[tokio::test]
async fn a_node_is_told_everything_once_and_then_only_what_is_its_own() {
    let (cell, _dir) = cell().await;
    write(&cell, deploy(&[("web", spread(2))])).await;
    let place = |index: u32, node: &str| Change::Place {
        replica: replica_id(&format!("shop/web/{index}")),
        node: node_id(node),
        spec: spread(1).hash,
    };
    write(&cell, place(1, "ash")).await;
    let dispatch = Dispatch::start(Arc::clone(cell.engine.machine()));
    let (mut ash, mut birch) = (dispatch.listen(node_id("ash")), dispatch.listen(node_id("birch")));
    assert_eq!(told(&ash.next().await), [("shop-web-1".to_owned(), vec![1])]);
    assert_eq!(told(&birch.next().await), []);

    write(&cell, place(2, "birch")).await;
    assert_eq!(told(&birch.next().await), [("shop-web-2".to_owned(), vec![2])]);
    let replica = replica_id("shop/web/2");
    let (node, spec, cause) = (node_id("ash"), spread(1).hash, MoveCause::NodeLost);
    write(&cell, Change::Succeed { replica: replica.clone(), node, spec, cause }).await;
    assert_eq!(
        told(&ash.next().await),
        [("shop-web-2".to_owned(), vec![3])],
        "nothing of web-2 before"
    );
    write(&cell, Change::Promote { replica }).await;
    loop {
        let update = birch.next().await;
        if told(&update) == [("shop-web-2".to_owned(), vec![])] {
            let AssignmentUpdate::Some(some) = update else { panic!("{update:?}") };
            assert_eq!(some[0].1.as_ref().unwrap().leaving, [Generation(2)], "it is to stop");
            break;
        }
    }
}

/// The content of each secret in what a node is told.
fn secrets(update: &AssignmentUpdate) -> Vec<String> {
    let AssignmentUpdate::All(all) = update else { panic!("{update:?}") };
    let specs = all.values().flat_map(|brief| &brief.wanted).map(|wanted| &wanted.spec);
    let files = specs.flat_map(|spec| &spec.container.secrets);
    let content = |file: &FileMount| match &file.content {
        FileContent::Inline(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        content => panic!("{content:?}"),
    };
    files.map(content).collect()
}

#[tokio::test]
async fn a_node_is_told_the_secrets_of_what_it_runs_and_no_others() {
    let (cell, _dir) = cell().await;
    for (name, content) in [("db", "first"), ("key", "second"), ("spare", "third")] {
        let (kind, name) = (CellFileKind::Secret, FileName::new(name).unwrap());
        let content = content.as_bytes().to_vec().into();
        write(&cell, Change::CreateFile { kind, name, content }).await;
    }
    let (web, api) = (spread(1).secret("db", 1), spread(1).secret("key", 1));
    write(&cell, deploy(&[("web", web.clone()), ("api", api.clone())])).await;
    for (replica, node, spec) in
        [("shop/web/1", "ash", web.hash), ("shop/api/1", "birch", api.hash)]
    {
        let (replica, node) = (replica_id(replica), node_id(node));
        write(&cell, Change::Place { replica, node, spec }).await;
    }
    let dispatch = Dispatch::start(Arc::clone(cell.engine.machine()));
    for (node, expected) in [("ash", "first"), ("birch", "second")] {
        let update = dispatch.listen(node_id(node)).next().await;
        assert_eq!(secrets(&update), [expected], "{node}");
        let AssignmentUpdate::All(all) = update else { unreachable!("it was one") };
        let hashes = all.values().flat_map(|brief| brief.wanted.iter().map(|it| it.spec.hash));
        let known = if node == "ash" { web.hash } else { api.hash };
        assert_eq!(hashes.collect::<Vec<_>>(), [known], "others know it by this");
    }
}

/// The user that each replica's image is pulled as.
fn users(update: &AssignmentUpdate) -> Vec<(String, Option<String>)> {
    let user = |brief: &Assignments| {
        let auths = brief.wanted.iter().filter_map(|wanted| wanted.registry_auth.as_ref());
        auths.map(|auth| auth.user.clone()).next()
    };
    match update {
        AssignmentUpdate::All(all) => {
            all.iter().map(|(id, brief)| (id.to_string(), user(brief))).collect()
        }
        AssignmentUpdate::Some(some) => {
            let told = some.iter();
            told.map(|(id, it)| (id.to_string(), it.as_ref().and_then(user))).collect()
        }
        AssignmentUpdate::Volumes(_) => panic!("no volumes are to go"),
    }
}

#[tokio::test]
async fn a_node_is_told_the_credentials_of_what_it_pulls_and_no_others() {
    let (cell, _dir) = cell().await;
    let registry = || RegistryHost::parse("r.example").unwrap();
    let login = |user: &str| Change::LoginRegistry {
        registry: registry(),
        user: user.to_owned(),
        password: RegistryPassword::new("hunter2"),
    };
    let processes = cpus(4).lacks(plimsoll_model::Capability::ImageCommand);
    write(&cell, Change::PutNode { node: node_id("cedar"), facts: processes }).await;
    let (web, api) = (spread(2).image("r.example/web:1"), spread(1).image("other.example/api:1"));
    write(&cell, deploy(&[("web", web.clone()), ("api", api.clone())])).await;
    for (replica, node, spec) in [
        ("shop/web/1", "ash", web.hash),
        ("shop/web/2", "cedar", web.hash),
        ("shop/api/1", "birch", api.hash),
    ] {
        let (replica, node) = (replica_id(replica), node_id(node));
        write(&cell, Change::Place { replica, node, spec }).await;
    }
    write(&cell, login("ci")).await;
    let dispatch = Dispatch::start(Arc::clone(cell.engine.machine()));
    let mut listeners = ["ash", "birch", "cedar"].map(|node| dispatch.listen(node_id(node)));
    for (listener, expected) in listeners.iter_mut().zip([
        ("shop-web-1", Some("ci".to_owned())),
        ("shop-api-1", None),
        // It runs processes, and has nothing to pull.
        ("shop-web-2", None),
    ]) {
        let (replica, user) = expected;
        let update = listener.next().await;
        assert_eq!(users(&update), [(replica.to_owned(), user)]);
        assert!(!format!("{update:?}").contains("hunter2"), "it is in no print");
    }
    let [ash, ..] = &mut listeners;
    write(&cell, login("other")).await;
    assert_eq!(users(&ash.next().await), [("shop-web-1".to_owned(), Some("other".to_owned()))]);
    write(&cell, Change::LogoutRegistry { registry: registry() }).await;
    assert_eq!(users(&ash.next().await), [("shop-web-1".to_owned(), None)]);
}

#[tokio::test]
async fn a_slow_node_finds_the_latest_and_no_queue() {
    let (cell, _dir) = cell().await;
    write(&cell, deploy(&[("web", spread(2))])).await;
    let dispatch = Dispatch::start(Arc::clone(cell.engine.machine()));
    let mut ash = dispatch.listen(node_id("ash"));
    assert_eq!(told(&ash.next().await), []);
    let replica = replica_id("shop/web/1");
    let (node, spec) = (node_id("ash"), spread(1).hash);
    write(&cell, Change::Place { replica: replica.clone(), node: node.clone(), spec }).await;
    for _ in 0..20 {
        let (replica, node, cause) = (replica.clone(), node.clone(), MoveCause::Outdated);
        write(&cell, Change::Succeed { replica: replica.clone(), node, spec, cause }).await;
        write(&cell, Change::Promote { replica }).await;
    }
    let mut tellings = 0;
    while told(&ash.next().await) != [("shop-web-1".to_owned(), vec![21])] {
        tellings += 1;
    }
    assert!(tellings <= 2, "{tellings}");
}

#[tokio::test]
async fn a_node_is_told_which_volumes_are_to_go_until_they_are_gone_or_wanted_again() {
    let (cell, _dir) = cell().await;
    let spec = spread(1).volume("data");
    let name = DeploymentName::new("shop").unwrap();
    write(&cell, deploy(&[("web", spec.clone())])).await;
    let (replica, node) = (replica_id("shop/web/1"), node_id("ash"));
    let place = Change::Place { replica: replica.clone(), node, spec: spec.hash };
    write(&cell, place).await;
    write(&cell, Change::Undeploy { deployment: name.clone() }).await;
    let dispatch = Dispatch::start(Arc::clone(cell.engine.machine()));
    let mut ash = dispatch.listen(node_id("ash"));
    assert!(matches!(ash.next().await, AssignmentUpdate::All(_)));

    write(&cell, Change::RemoveVolumes { deployment: name.clone() }).await;
    let doomed = |revision: u32| {
        let doomed = [(name.clone(), Revision(revision))].into();
        AssignmentUpdate::Volumes(VolumeOrders { doomed, ..VolumeOrders::default() })
    };
    assert_eq!(ash.next().await, doomed(1));
    let mut later = dispatch.listen(node_id("ash"));
    assert!(matches!(later.next().await, AssignmentUpdate::All(_)));
    assert_eq!(later.next().await, doomed(1), "also who comes later");

    write(&cell, deploy(&[("web", spec.clone())])).await;
    let mut tellings = Vec::new();
    while tellings.last() != Some(&AssignmentUpdate::Volumes(VolumeOrders::default())) {
        tellings.push(ash.next().await);
    }
    write(&cell, Change::Undeploy { deployment: name.clone() }).await;
    write(&cell, Change::RemoveVolumes { deployment: name.clone() }).await;
    while tellings.last() != Some(&doomed(2)) {
        tellings.push(ash.next().await);
    }
    let removed = |revision: u32| Change::VolumesRemoved {
        deployment: name.clone(),
        node: node_id("ash"),
        revision: Revision(revision),
    };
    write(&cell, removed(1)).await;
    assert!(cell.engine.machine().read(|state| state.volumes().contains_key(&name)), "stale word");
    write(&cell, removed(2)).await;
    while tellings.last() != Some(&AssignmentUpdate::Volumes(VolumeOrders::default())) {
        tellings.push(ash.next().await);
    }
    assert!(cell.engine.machine().read(|state| state.volumes().is_empty()));
}
