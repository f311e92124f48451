use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CellFileKind, FileBytes, MAX_CELL_FILES_BYTES};
use crate::ceilings::MAX_FILE_BYTES;
use crate::command::{Change, Refusal};
use crate::ids::{DeploymentName, FileName, ServiceName};
use crate::rollout::{RolloutHalt, RolloutPhase};
use crate::spec::{FileContent, ServiceSpec};
use crate::testkit::{Cell, cell, cpus, service_key, spread};
use crate::transition::Writer;
use crate::units::Revision;

const SECRET: CellFileKind = CellFileKind::Secret;

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

fn content(text: &str) -> FileBytes {
    FileBytes::from(text.as_bytes().to_vec())
}

impl Cell {
    fn try_change(&mut self, change: Change) -> Result<(), Refusal> {
        let done = self.apply(Writer::Operator, vec![change.free()]);
        done.map(drop).map_err(|rejection| rejection.reason)
    }

    fn create(&mut self, file: &str, text: &str) -> Result<(), Refusal> {
        let (kind, name, content) = (SECRET, name(file), content(text));
        self.try_change(Change::CreateFile { kind, name, content })
    }

    fn rotate(&mut self, file: &str, text: &str) -> Result<(), Refusal> {
        let (kind, name, content) = (SECRET, name(file), content(text));
        self.try_change(Change::RotateFile { kind, name, content })
    }

    fn remove(&mut self, file: &str) -> Result<(), Refusal> {
        self.try_change(Change::RemoveFile { kind: SECRET, name: name(file) })
    }

    fn kept(&self, file: &str) -> Vec<u32> {
        self.state.files().get(SECRET, file).unwrap().versions.keys().copied().collect()
    }

    /// The version of the secret that the service should run with.
    fn desired(&self, service: &str) -> Option<u32> {
        let spec = self.state.service(&service_key(service)).unwrap().desired().unwrap();
        super::versions_in(spec, SECRET, &name("db")).next()
    }

    fn revision(&self, deployment: &str) -> u32 {
        self.state.deployments()[deployment].revision.0
    }

    /// What was deployed is gone, and its containers have stopped.
    fn stop_all(mut self) -> Self {
        let gone: Vec<_> = self.state.replicas().map(|(id, _)| id).collect();
        let is_retired = |cell: &Self, id: &crate::ReplicaId| {
            cell.state.service(&id.service).is_some_and(|it| it.desired().is_none())
        };
        for replica in gone {
            if is_retired(&self, &replica) {
                self.change(Writer::Scheduler, Change::Retire { replica });
            }
        }
        self.obey()
    }

    /// Every service has a replica.
    fn settle(&mut self) {
        for key in self.state.services().keys().cloned().collect::<Vec<_>>() {
            let service = self.state.service(&key).unwrap();
            let (spec, ids) = (service.desired().unwrap().hash, service.replicas.clone());
            if ids.is_empty() {
                let replica = crate::ReplicaId::indexed(&key, self.state.next_index(&key));
                let node = crate::testkit::node_id("ash");
                self.try_change(Change::Place { replica, node, spec }).unwrap();
            }
        }
    }
}

/// Two deployments, of which `web` and `blog` use the secret and `api` does not.
fn shop() -> Cell {
    let mut cell = cell().node("ash", cpus(8));
    cell.create("db", "one").unwrap();
    let cell = cell
        .deploy("shop", [("web", spread(1).secret("db", 1)), ("api", spread(1))])
        .deploy("blog", [("blog", spread(1).secret("db", 1))])
        .deploy("other", [("job", spread(1))]);
    let mut cell = cell;
    cell.settle();
    cell
}

#[test]
fn rotating_a_secret_changes_the_services_that_use_it_and_no_other() {
    let mut cell = shop();
    let api = cell.state.service(&service_key("shop/api")).unwrap().clone();
    cell.rotate("db", "two").unwrap();
    assert_eq!((cell.desired("shop/web"), cell.desired("blog/blog")), (Some(2), Some(2)));
    let rollout = |key: &str| cell.state.service(&service_key(key)).unwrap().row.rollout.clone();
    assert_eq!(rollout("shop/web").unwrap().phase, RolloutPhase::Rolling);
    assert_eq!(cell.state.service(&service_key("shop/api")), Some(&api), "it is untouched");
    assert_eq!(rollout("shop/api"), None);
    let revisions = ["shop", "blog", "other"].map(|it| cell.revision(it));
    assert_eq!(revisions, [2, 2, 1]);
    let told: Vec<String> =
        cell.state.audit().events().map(|event| event.what.to_string()).collect();
    let rotated = told.iter().position(|it| it == "secret db rotated to version 2").unwrap();
    assert_eq!(told[rotated + 1], "blog r2 applied");
    assert!(told[rotated..].contains(&"rollout of shop/web to r2 started".to_owned()));

    let before = cell.state.clone();
    cell.rotate("db", "two").unwrap();
    assert_eq!(cell.state, before, "the same value again changes nothing");
}

#[test]
fn an_old_version_is_kept_until_nothing_can_return_to_it() {
    let mut cell = shop();
    cell.rotate("db", "two").unwrap();
    assert_eq!(cell.kept("db"), [1, 2], "replicas run with it");
    let web = service_key("shop/web");
    cell.try_change(Change::AbortRollout { service: web.clone(), why: RolloutHalt::Operator })
        .unwrap();
    assert_eq!(cell.desired("shop/web"), Some(1), "it goes back to the value that worked");
    let spec = cell.state.service(&web).unwrap().desired().unwrap().clone();
    let FileContent::Inline(bytes) = &cell.state.with_contents(&spec).container.secrets[0].content
    else {
        panic!("the value is gone")
    };
    assert_eq!(bytes, b"one");

    cell.rotate("db", "three").unwrap();
    assert_eq!(cell.kept("db"), [1, 3], "nothing ever ran with the second");
    let mut cell = cell.undeploy("shop").undeploy("blog").stop_all();
    cell.rotate("db", "four").unwrap();
    assert_eq!(cell.kept("db"), [4]);
}

#[test]
fn a_rollout_that_is_over_takes_the_old_value_with_it() {
    let mut cell = shop();
    cell.rotate("db", "two").unwrap();
    for key in ["shop/web", "blog/blog"] {
        let service = service_key(key);
        let replica = crate::ReplicaId::indexed(&service, 1);
        let spec = cell.state.service(&service).unwrap().desired().unwrap().hash;
        let (node, cause) = (crate::testkit::node_id("ash"), crate::MoveCause::Outdated);
        cell.try_change(Change::Succeed { replica: replica.clone(), node, spec, cause }).unwrap();
        cell.change(Writer::Scheduler, Change::Promote { replica });
        cell.try_change(Change::EndRollout { service }).unwrap();
    }
    assert_eq!(cell.kept("db"), [2]);
}

#[test]
fn a_secret_in_use_is_not_removed_and_a_missing_one_not_deployed() {
    let mut cell = shop();
    let by = vec![service_key("blog/blog"), service_key("shop/web")];
    let refusal = cell.remove("db").unwrap_err();
    assert_eq!(refusal.to_string(), "secret db is used by blog/blog, shop/web");
    assert_eq!(refusal, Refusal::FileInUse { kind: SECRET, name: name("db"), by });
    let mut cell = cell.undeploy("shop").undeploy("blog").stop_all();
    cell.remove("db").unwrap();

    let deploy = |version| {
        let services: BTreeMap<ServiceName, Arc<ServiceSpec>> = BTreeMap::from([(
            ServiceName::new("web").unwrap(),
            Arc::new(spread(1).secret("db", version)),
        )]);
        let deployment = DeploymentName::new("shop").unwrap();
        Change::Deploy { deployment, services, routes: Vec::new() }
    };
    let missing = Refusal::NoSuchFile { kind: SECRET, name: name("db") };
    assert_eq!(cell.try_change(deploy(1)), Err(missing.clone()));
    assert_eq!(cell.rotate("db", "x"), Err(missing.clone()));
    assert_eq!(cell.remove("db"), Err(missing));
    cell.create("db", "one").unwrap();
    let exists = Refusal::FileExists { kind: SECRET, name: name("db") };
    assert_eq!(cell.create("db", "two"), Err(exists));
    cell.rotate("db", "two").unwrap();
    let stale = Refusal::FileRotated { kind: SECRET, name: name("db") };
    assert_eq!(cell.try_change(deploy(1)), Err(stale));
    cell.try_change(deploy(2)).unwrap();
    assert_eq!(cell.state.deployments()["shop"].revision, Revision(2));
}

#[test]
fn what_the_cell_keeps_is_bounded() {
    let mut cell = cell();
    let large = |byte: u8| FileBytes::from(vec![byte; MAX_FILE_BYTES + 1]);
    let create = Change::CreateFile { kind: SECRET, name: name("big"), content: large(1) };
    let refusal = cell.try_change(create).unwrap_err();
    assert_eq!(refusal.to_string(), "secret big takes 1024001 bytes, at most 1024000 are kept");
    let most = FileBytes::from(vec![7; MAX_FILE_BYTES]);
    let fit = MAX_CELL_FILES_BYTES / MAX_FILE_BYTES as u64;
    let create = |index: u64| {
        let name = name(&format!("big-{index}"));
        Change::CreateFile { kind: CellFileKind::Config, name, content: most.clone() }
    };
    for index in 0..fit {
        cell.try_change(create(index)).unwrap();
    }
    assert!(matches!(cell.try_change(create(fit)), Err(Refusal::Quota { .. })));
}

#[test]
fn references_become_the_current_versions_and_all_missing_ones_are_named() {
    let mut cell = cell();
    cell.create("db", "one").unwrap();
    cell.rotate("db", "two").unwrap();
    let external = |files: &[&str]| {
        let mut spec = spread(1);
        for file in files {
            spec = spec.secret("db", 9);
            spec.container.secrets.last_mut().unwrap().content =
                FileContent::External((*file).to_owned());
        }
        BTreeMap::from([(ServiceName::new("web").unwrap(), Arc::new(spec))])
    };
    let written = cell.state.with_current_files(external(&["db"])).unwrap();
    let spec = written.values().next().unwrap();
    let kept = FileContent::Kept { name: name("db"), version: 2 };
    assert_eq!(spec.container.secrets[0].content, kept);
    assert_eq!(spec.hash, crate::SpecHash::of(&spec.container));
    let again = cell.state.with_current_files(written.clone()).unwrap();
    assert!(Arc::ptr_eq(&written["web"], &again["web"]), "nothing to change copies nothing");
    let missing = cell.state.with_current_files(external(&["a", "db", "b c"])).unwrap_err();
    let names: Vec<&str> = missing.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a", "b c"]);
    let debug = format!("{:?}", cell.state.files());
    assert!(!debug.contains("[116") && debug.contains("3 bytes"), "{debug}");
}
