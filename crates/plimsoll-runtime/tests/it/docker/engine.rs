//! What happens when the engine itself comes and goes. It has an engine of its own, which it may stop.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use plimsoll_model::CellId;
use plimsoll_runtime::docker::Settings;
use plimsoll_runtime::{DockerRuntime, Error, Runtime, RuntimeEvent};

use super::harness::{PATIENCE, TestCell, heard, idle, lab, unique};

/// A private engine, started and stopped by `lab/engine`; it is gone when the test is.
struct Private(String);

impl Private {
    fn lab(&self, verb: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/engine");
        let output = Command::new(script).args([verb, &self.0]).output().expect("the lab is there");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "lab/engine {verb}: {complaint}");
    }

    fn socket(&self) -> PathBuf {
        let lab = std::env::var("PLIMSOLL_LAB").unwrap_or("/var/tmp/plimsoll-lab".into());
        Path::new(&lab).join(&self.0).join("docker.sock")
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.lab("stop");
    }
}

#[tokio::test]
async fn an_engine_that_goes_away_is_waited_for() {
    if lab("DOCKER").is_none() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can start an engine");
        return;
    }
    let private = Private(unique());
    let files = tempfile::tempdir().unwrap();
    let cell_id = CellId::new(unique()).unwrap();
    let early = DockerRuntime::open(Settings::new(cell_id, private.socket(), files.path()));
    let mut news = early.events();
    assert!(matches!(early.list().await, Err(Error::Unavailable { .. })));
    private.lab("start");
    assert_eq!(
        heard(&mut news).await,
        RuntimeEvent::Missed,
        "it was not there before, and now it is"
    );
    assert_eq!(early.list().await.unwrap(), []);

    let cell = TestCell::at(&private.socket());
    let mut events = cell.runtime.events();
    let tag = cell.start(1, idle()).await;
    assert_eq!(heard(&mut events).await, RuntimeEvent::Started { tag: tag.clone() });

    private.lab("kill");
    while heard(&mut events).await != RuntimeEvent::Missed {}
    let error = cell.runtime.list().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = cell.runtime.start(&cell.order(2, idle())).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");

    private.lab("start");
    while heard(&mut events).await != RuntimeEvent::Missed {}
    let begin = Instant::now();
    while let Err(error) = cell.runtime.list().await {
        assert!(begin.elapsed() < PATIENCE, "{error}");
    }
    // An engine that died takes its containers along, or finds them again; either way a start makes it run.
    cell.start(1, idle()).await;
    assert!(cell.status(&tag).await.is_some_and(|status| status.is_running()));
    cell.runtime.stop(&tag).await.unwrap();
    cell.runtime.remove(&tag).await.unwrap();
    while heard(&mut events).await != (RuntimeEvent::Removed { tag: tag.clone() }) {}
}
