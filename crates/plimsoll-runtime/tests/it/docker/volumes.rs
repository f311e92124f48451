use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{ListVolumesOptions, RemoveVolumeOptions};
use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{Mount, MountSource, VolumeSpec};
use plimsoll_runtime::Runtime;

use super::harness::{TestCell, idle, sh};

fn mount(source: MountSource, target: &str) -> Mount {
    Mount { source, target: target.into(), read_only: false, consistency: None }
}

fn volume(name: &str, target: &str) -> Mount {
    let source = MountSource::Volume { name: name.into(), subpath: None, nocopy: false };
    mount(source, target)
}

fn bind(path: &std::path::Path, create_host_path: bool) -> Mount {
    let path = path.display().to_string();
    let source = MountSource::Bind { path, propagation: None, create_host_path, selinux: None };
    mount(source, "/bound")
}

async fn count(cell: &TestCell) -> usize {
    let found = cell.docker.list_volumes(None::<ListVolumesOptions>).await.expect("volumes");
    found.volumes.unwrap_or_default().len()
}

#[tokio::test]
async fn a_named_volume_outlives_its_containers() {
    let Some(cell) = TestCell::new() else { return };
    let name = format!("{}_data", cell.name);
    for expected in [["1"], ["2"]] {
        let script = "echo x >> /data/runs; wc -l < /data/runs";
        let spec = ContainerSpec { mounts: vec![volume("data", "/data")], ..sh(script) };
        assert_eq!(cell.output(spec).await, expected);
        cell.runtime.remove(&cell.tag(1)).await.unwrap();
        assert_eq!(cell.belongings().await[2], vec![name.clone()]);
    }
    let other = plimsoll_model::DeploymentName::new("another").unwrap();
    assert_eq!(cell.runtime.remove_volumes(&other).await.unwrap(), [""; 0]);
    let deployment = cell.tag(1).deployment().clone();
    assert_eq!(cell.runtime.remove_volumes(&deployment).await.unwrap(), [name]);
    assert_eq!(cell.belongings().await[2], [""; 0]);
}

#[tokio::test]
async fn an_external_volume_must_be_there_and_is_never_removed() {
    let Some(cell) = TestCell::new() else { return };
    let name = format!("{}-treasure", cell.name);
    let external = VolumeSpec { name: Some(name.clone()), external: true, ..VolumeSpec::default() };
    let spec = ContainerSpec {
        mounts: vec![volume("data", "/data")],
        volumes: [("data".into(), external)].into(),
        ..sh("touch /data/x")
    };
    let order = cell.order(1, spec);
    let complaint = cell.complaint(&order).await;
    let expected = format!(
        "volume {name} is external and not there; create it with: docker volume create {name}"
    );
    assert!(complaint.ends_with(&expected), "{complaint}");
    let request = VolumeCreateRequest { name: Some(name.clone()), ..Default::default() };
    cell.docker.create_volume(request).await.unwrap();
    cell.launch(&order).await;
    assert_eq!(cell.exit(&order.tag).await.status, Some(0));
    cell.runtime.remove(&order.tag).await.unwrap();
    let deployment = order.tag.deployment().clone();
    assert_eq!(cell.runtime.remove_volumes(&deployment).await.unwrap(), [""; 0]);
    let removed = cell.docker.remove_volume(&name, None::<RemoveVolumeOptions>).await;
    assert!(removed.is_ok(), "its owner still has it: {removed:?}");
}

#[tokio::test]
async fn a_volume_may_have_a_name_and_labels_of_its_own() {
    let Some(cell) = TestCell::new() else { return };
    let name = format!("{}-mine", cell.name);
    let labels = [("kind".into(), "precious".into())].into();
    let declared = VolumeSpec { name: Some(name.clone()), labels, ..VolumeSpec::default() };
    let spec = ContainerSpec {
        mounts: vec![volume("data", "/data")],
        volumes: [("data".into(), declared)].into(),
        ..idle()
    };
    let tag = cell.start(1, spec).await;
    let made = cell.docker.inspect_volume(&name).await.unwrap();
    assert_eq!(made.labels["kind"], "precious");
    let error = cell.runtime.remove_volumes(tag.deployment()).await.unwrap_err();
    assert!(plimsoll_runtime::chain(&error).contains("in use"), "{error}");
}

#[tokio::test]
async fn nameless_volumes_go_with_their_container() {
    let Some(cell) = TestCell::new() else { return };
    // The image brings one of its own, and the spec adds another.
    let spec = ContainerSpec {
        image: "plimsoll-test:checked".into(),
        mounts: vec![mount(MountSource::Anonymous, "/more")],
        ..idle()
    };
    let tag = cell.start(1, spec).await;
    let mounts = cell.inspect(&tag).await.mounts.unwrap();
    let names: Vec<String> = mounts.into_iter().filter_map(|mount| mount.name).collect();
    assert_eq!(names.len(), 2);
    assert!(count(&cell).await >= 2);
    cell.runtime.stop(&tag).await.unwrap();
    cell.runtime.remove(&tag).await.unwrap();
    for name in names {
        assert!(cell.docker.inspect_volume(&name).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_bind_leads_to_the_node() {
    let Some(cell) = TestCell::new() else { return };
    let path = cell.path("made");
    let spec = ContainerSpec { mounts: vec![bind(&path, false)], ..idle() };
    let complaint = cell.complaint(&cell.order(1, spec)).await;
    let expected = "create it on this node, or let create_host_path do so";
    assert!(complaint.contains(expected), "{complaint}");
    let spec = ContainerSpec { mounts: vec![bind(&path, true)], ..sh("echo hi > /bound/file") };
    assert_eq!(cell.output(spec).await, [""; 0]);
    assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "hi\n");
    let read_only = Mount { read_only: true, ..bind(&path, true) };
    let script = "(echo no > /bound/file) 2>/dev/null || cat /bound/file";
    let tag = cell.start(2, ContainerSpec { mounts: vec![read_only], ..sh(script) }).await;
    cell.exit(&tag).await;
    assert_eq!(cell.printed(&tag).await, ["hi"]);
}

#[tokio::test]
async fn a_volume_that_the_image_declares_outlives_its_containers_with_what_the_image_has_there() {
    let Some(cell) = TestCell::new() else { return };
    let image = "plimsoll-test:data";
    let declared = cell.runtime.declared_volumes(image).await.unwrap();
    assert_eq!(declared, ["/kept".to_owned()].into());
    assert!(cell.runtime.declared_volumes(&idle().image).await.unwrap().is_empty());
    let script = "cat /kept/seed; echo x >> /kept/runs; wc -l < /kept/runs";
    for (generation, runs) in [(1, "1"), (2, "2")] {
        let spec = ContainerSpec { image: image.into(), ..sh(script) };
        let declared = [("/kept".to_owned(), "web.1.x".to_owned())].into();
        let order = plimsoll_runtime::StartRequest { declared, ..cell.order(generation, spec) };
        cell.launch(&order).await;
        assert_eq!(cell.exit(&order.tag).await.status, Some(0));
        assert_eq!(cell.printed(&order.tag).await, ["seed", runs]);
        cell.runtime.remove(&order.tag).await.unwrap();
    }
    let name = format!("{}_web.1.x", cell.name);
    assert_eq!(cell.belongings().await[2], vec![name.clone()], "and there is no other");
    let deployment = cell.tag(1).deployment().clone();
    assert_eq!(cell.runtime.remove_volumes(&deployment).await.unwrap(), [name]);
}
