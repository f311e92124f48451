use std::sync::Arc;

use plimsoll_model::spec::{Mount, MountSource, VolumeSpec};
use plimsoll_model::testkit::{cell, cpus, global, hosts, spread};
use plimsoll_model::{DeploymentName, Millis, ServiceName, ServiceSpec};

use super::diff::changes;
use super::{DeploymentContent, Revised, Services};

fn services<const N: usize>(services: [(&str, ServiceSpec); N]) -> Services {
    let named = services.map(|(name, spec)| (ServiceName::new(name).unwrap(), Arc::new(spec)));
    named.into()
}

/// How one spec becomes another, a line for each field.
fn shown(old: ServiceSpec, new: ServiceSpec) -> Vec<String> {
    let changes = changes(&services([("web", old)]), &services([("web", new)]));
    let word = |side: &Option<String>| side.clone().unwrap_or_else(|| "none".to_owned());
    let fields = changes[0].fields.iter();
    fields.map(|f| format!("{}: {} → {}", f.field, word(&f.before), word(&f.after))).collect()
}

#[test]
fn a_difference_is_told_in_the_words_of_the_file() {
    let with = |change: fn(&mut ServiceSpec)| {
        let mut spec = spread(2);
        change(&mut spec);
        spec
    };
    for (case, new, lines) in [
        ("nothing differs", spread(2), vec![]),
        ("a number", spread(3), vec!["replicas: 2 → 3"]),
        (
            "another placement",
            hosts(2, ["ash", "birch"]),
            vec!["placement: spread → hosts", "placement.hosts: none → ash, birch"],
        ),
        ("no number any more", global(), vec!["placement: spread → global", "replicas: 2 → none"]),
        (
            "a span of time",
            with(|spec| spec.container.stop_grace = Some(Millis::seconds(90))),
            vec!["stop_grace: none → 1m 30s"],
        ),
        (
            "an amount",
            spread(2).reserve(1_500, 256),
            vec!["reservations.cpu: none → 1.5", "reservations.memory: none → 256 MiB"],
        ),
        (
            "a command that is cleared",
            with(|spec| spec.container.command = Some(Vec::new())),
            vec!["command: none → []"],
        ),
        (
            "a key of the environment",
            with(|spec| drop(spec.container.environment.insert("A".to_owned(), "x".to_owned()))),
            vec!["environment.A: none → (hidden)"],
        ),
        ("a policy", with(|spec| spec.update.parallelism = 2), vec!["update.parallelism: 1 → 2"]),
    ] {
        assert_eq!(shown(spread(2), new), lines, "{case}");
    }
}

#[test]
fn one_more_in_front_leaves_the_others_as_they_were() {
    let mount = |target: &str| Mount {
        source: MountSource::Anonymous,
        target: target.to_owned(),
        read_only: false,
        consistency: None,
    };
    let with = |targets: &[&str]| {
        let mut spec = spread(1);
        spec.container.mounts = targets.iter().map(|target| mount(target)).collect();
        spec
    };
    let lines = shown(with(&["/b"]), with(&["/a", "/b"]));
    assert!(lines.iter().all(|line| line.starts_with("mounts./a.")), "{lines:?}");
}

#[test]
fn options_of_a_driver_may_hold_a_password_and_are_not_shown() {
    let with = |password: &str| {
        let mut spec = spread(1);
        let mut volume = VolumeSpec::default();
        volume.driver_opts.insert("o".to_owned(), format!("password={password}"));
        spec.container.volumes.insert("data".to_owned(), volume);
        spec
    };
    assert_eq!(
        shown(with("one"), with("two")),
        ["volumes.data.driver_opts.o: (hidden) → (hidden, changed)"]
    );
    let bare = crate::views::bare(&with("one")).to_string();
    assert!(!bare.contains("password"), "{bare}");
}

#[test]
fn services_come_go_and_stay() {
    let old = services([("db", spread(1)), ("web", spread(1))]);
    let new = services([("web", spread(1)), ("zoo", spread(1))]);
    let told = changes(&old, &new);
    let told: Vec<_> = told.iter().map(|c| (c.service.as_str(), c.what.as_str())).collect();
    assert_eq!(told, [("db", "removed"), ("web", "unchanged"), ("zoo", "added")]);
}

#[test]
fn a_change_is_told_its_own_revision_and_not_that_of_one_which_came_after() {
    let shop = DeploymentName::new("shop").unwrap();
    let content = |replicas| {
        let services = services([("web", spread(replicas))]);
        DeploymentContent { services, routes: Vec::new() }
    };
    let (one, two) = (content(1), content(2));
    let cell = cell().node("ash", cpus(4));
    let cell = cell.deploy("shop", [("web", spread(1))]).undeploy("shop");
    let cell = cell.deploy("shop", [("web", spread(1))]).deploy("shop", [("web", spread(2))]);
    let cell = cell.deploy("shop", [("web", spread(3))]);
    for (case, before, content, revision) in [
        ("the one that made it", None, one.clone(), 2),
        ("the next", Some((2, one.clone())), two.clone(), 3),
        ("the same again", Some((2, one.clone())), one, 2),
    ] {
        let revised = Revised { before, content };
        assert_eq!(revised.revision(&cell.state, &shop), revision, "{case}");
    }
}
