//! Our own daemons on the three engines, by our own command line.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_lab::NAMES;

use super::{CHECK, Contender, INTERVAL, REPLICAS, script};
use crate::cell::daemons::Cell;
use crate::node::engine::image;
use crate::node::{command, threads};

pub(super) struct Ours {
    cell: Cell,
    version: AtomicU32,
}

impl Ours {
    pub(super) fn new(cell: Cell) -> Self {
        Self { cell, version: AtomicU32::new(0) }
    }

    /// What Swarm is told, in our words. Its containers are on the engine's own bridge, and so are these.
    fn file(&self) -> String {
        let version = self.version.fetch_add(1, Ordering::Relaxed);
        let (check, interval) = (CHECK.join(", "), INTERVAL.as_millis());
        let command = serde_json::Value::from(script());
        format!(
            "name: bench\nservices:\n  web:\n    image: {}\n    command: [sh, -c, {command}]\n    \
             network_mode: bridge\n    environment: {{VERSION: '{version}'}}\n    \
             healthcheck: {{test: [CMD, {check}], interval: {interval}ms}}\n    \
             deploy: {{replicas: {REPLICAS}}}\n",
            image(),
        )
    }

    fn apply(&self, words: &[&str]) {
        let path = self.cell.path(0).join("bench.yaml");
        std::fs::write(&path, self.file()).expect("a file can be written");
        let path = path.to_string_lossy();
        self.ask(&[&["apply", "-f", &path], words].concat());
    }

    /// A command, which must succeed. It is given to the node that Swarm's commands are given to.
    fn ask(&self, words: &[&str]) {
        let mut ask: Command = command();
        ask.args(words).env("PLIMSOLL_HOST", self.cell.path(0).join("plimsoll.sock"));
        let output = ask.output().expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "plimsoll {words:?}: {said}");
    }
}

impl Contender for Ours {
    const LABEL: &'static str = "plimsoll.replica";

    fn create(&self) {
        self.apply(&[]);
    }

    fn update(&self) {
        self.apply(&["-d"]);
    }

    fn drain(&self, at: usize) {
        self.ask(&["node", "drain", "-d", NAMES[at]]);
    }

    fn activate(&self, at: usize) {
        self.ask(&["node", "uncordon", NAMES[at]]);
    }

    fn remove(&self) {
        self.ask(&["delete", "bench"]);
    }

    fn follower(&self) -> usize {
        let leader = threads().block_on(self.cell.until_whole());
        (1..3).find(|at| *at != leader).expect("there are two")
    }
}
