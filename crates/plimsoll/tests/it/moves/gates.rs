//! A shop whose replicas are held at a step of their move for as long as a test wants: by files that they look for, so that
//! nothing depends on how fast a machine is.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Cell, Site};

pub(super) const REPLICAS: usize = 6;

/// What holds replicas, while its file is there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Gate {
    /// Those that start do not get healthy.
    Health,
    /// Those that are told to go do not end.
    End,
}

/// Those that start fail, while this file is there.
const FAULT: &str = "fault";

impl Gate {
    fn file(self) -> &'static str {
        match self {
            Self::Health => "not-yet",
            Self::End => "stay",
        }
    }
}

pub(super) struct Shop {
    pub(super) cell: Cell,
}

impl Shop {
    /// So many nodes with six replicas of the first version.
    pub(super) fn on(nodes: usize) -> Self {
        let mut cell = Cell::idle(Site::Loopback);
        cell.form(nodes);
        let shop = Self { cell };
        shop.apply(0, 1);
        shop.until_all_run(1);
        shop
    }

    fn path(&self, file: &str) -> PathBuf {
        self.cell.dir.path().join(file)
    }

    pub(super) fn shut(&self, gate: Gate) {
        fs::write(self.path(gate.file()), "").unwrap();
    }

    pub(super) fn open(&self, gate: Gate) {
        fs::remove_file(self.path(gate.file())).unwrap();
    }

    pub(super) fn fail(&self) {
        fs::write(self.path(FAULT), "").unwrap();
    }

    /// Applies a version through a node, and waits for nothing.
    pub(super) fn apply(&self, at: usize, version: u32) {
        let dir = self.cell.dir.path().display().to_string();
        let [not_yet, stay] =
            [Gate::Health, Gate::End].map(|gate| format!("{dir}/{}", gate.file()));
        let script = format!(
            "trap 'while [ -e {stay} ]; do sleep 0.02; done; exit 0' TERM; \
             while [ -e {not_yet} ]; do [ ! -e {dir}/{FAULT} ] || exit 1; sleep 0.02; done; \
             touch $$PLIMSOLL_FILES/well; sleep 1000 & wait"
        );
        let text = format!(
            "name: shop\nservices:\n  web:\n    image: any\n    command: [sh, -c, {}]\n    \
             environment: {{VERSION: '{version}'}}\n    stop_grace_period: 60s\n    \
             healthcheck: {{test: [CMD-SHELL, 'test -e $$PLIMSOLL_FILES/well'], interval: 100ms, retries: 1000}}\n    \
             deploy: {{replicas: {REPLICAS}}}\n",
            Value::from(script),
        );
        fs::write(self.path("compose.yaml"), text).unwrap();
        let applied = self.cell.run(at, "apply -d -f compose.yaml");
        assert!(applied.code() == 0, "{}", applied.text());
    }

    /// The replicas as a node tells them, if it does.
    pub(super) fn replicas(&self, at: usize) -> Vec<Value> {
        let shop = self.cell.get(at, "/v1/deployments/shop").unwrap_or_default();
        shop["services"][0]["replicas"].as_array().cloned().unwrap_or_default()
    }

    /// Until some replica's successor is in this state.
    #[track_caller]
    pub(super) fn until_next_is(&self, at: usize, state: &str) {
        self.cell.until(&format!("a successor is {state}"), |_| {
            self.replicas(at).iter().any(|replica| replica["next"]["state"] == state)
        });
    }

    /// Until every replica runs this version once, nothing else does, and the cell knows.
    #[track_caller]
    pub(super) fn until_all_run(&self, version: u32) {
        let version = version.to_string();
        self.cell.until(&format!("all run version {version}, each once"), |cell| {
            let mut found = cell.found();
            let is_new = found.iter().all(|one| one.version == version);
            found.dedup_by(|one, other| one.replica == other.replica);
            is_new && found.len() == REPLICAS && cell.found().len() == REPLICAS && self.is_settled()
        });
    }

    /// Nothing moves, stops or waits.
    fn is_settled(&self) -> bool {
        self.cell.nodes().any(|at| {
            let shop = self.cell.get(at, "/v1/deployments/shop").unwrap_or_default();
            shop["progress"]["is"] == "steady"
        })
    }
}
