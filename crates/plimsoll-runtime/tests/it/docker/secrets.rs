//! Secrets of containers: in memory, for the service's user, and there again after a reboot.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_model::ContainerSpec;
use plimsoll_model::spec::{FileContent, FileMount};
use plimsoll_runtime::{ExecRequest, Runtime, Tag};

use super::harness::{TestCell, sh};

fn with_secret(content: &str) -> ContainerSpec {
    let secret = FileMount {
        name: "key".into(),
        target: "/run/secrets/key".into(),
        content: FileContent::Inline(content.into()),
        uid: None,
        gid: None,
        mode: None,
    };
    ContainerSpec { user: Some("1000:2000".into()), secrets: vec![secret], ..sh("exec sleep 600") }
}

/// What is in the container, and who may read it.
async fn read(cell: &TestCell, tag: &Tag) -> String {
    let script = "cat /run/secrets/key; stat -c ' %a %u %g' /run/secrets/key; \
        (echo no > /run/secrets/key) 2>/dev/null || echo kept";
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let output = cell.exec(tag, &ExecRequest::new(command)).await;
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where the container's secret lies on this host.
async fn source(cell: &TestCell, tag: &Tag) -> PathBuf {
    let mounts = cell.inspect(tag).await.host_config.and_then(|host| host.mounts);
    let mount = mounts.unwrap_or_default().into_iter().next().expect("it has a mount");
    mount.source.expect("it comes from somewhere").into()
}

fn file_system(path: &Path) -> String {
    let said = Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output();
    let said = said.expect("stat runs");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

#[tokio::test]
async fn a_secret_is_in_memory_and_written_again_before_its_container_starts_anew() {
    let Some(mut cell) = TestCell::new() else { return };
    let order = cell.order(1, with_secret("s3cret"));
    cell.launch(&order).await;
    let tag = order.tag.clone();
    let whole = "s3cret 400 1000 2000\nkept\n";
    assert_eq!(read(&cell, &tag).await, whole);
    let lies = source(&cell, &tag).await;
    assert_eq!(file_system(&lies), "tmpfs", "{}", lies.display());
    assert!(!lies.starts_with(cell.path("")), "{}", lies.display());

    // As after a reboot: the container is there and does not run, and nothing is left in memory.
    let id = cell.inspect(&tag).await.id;
    cell.runtime.stop(&tag).await.unwrap();
    std::fs::remove_dir_all(lies.parent().and_then(Path::parent).unwrap()).unwrap();
    cell.reopen();
    cell.launch(&order).await;
    assert_eq!(read(&cell, &tag).await, whole);
    assert_eq!(cell.inspect(&tag).await.id, id, "it is the same container");

    cell.runtime.stop(&tag).await.unwrap();
    cell.runtime.remove(&tag).await.unwrap();
    assert!(!lies.exists(), "it goes with its container");
    let _ = std::fs::remove_dir(lies.parent().and_then(Path::parent).unwrap());
}

#[tokio::test]
async fn without_its_secret_a_container_does_not_start() {
    let Some(cell) = TestCell::new() else { return };
    let mut spec = with_secret("");
    let name = plimsoll_model::FileName::new("key").unwrap();
    spec.secrets[0].content = FileContent::Kept { name, version: 2 };
    let said = cell.complaint(&cell.order(1, spec)).await;
    assert!(
        said.ends_with("cannot write its file key: its content did not come with it"),
        "{said}"
    );
}
