//! What data keeps on a node: services that nobody moves unless their data is moved, and by what.

use std::collections::BTreeSet;

use super::{Mode, MountSource, ServiceSpec, VolumeGroup};
use crate::ids::{DeploymentName, ServiceName};

/// Services that their data keeps where they are, together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPin<'a> {
    pub services: BTreeSet<&'a ServiceName>,
    /// By the names they have on an engine.
    pub volumes: BTreeSet<String>,
    /// Paths of the node.
    pub binds: BTreeSet<&'a str>,
    /// What images declare, as far as is known: the paths inside of containers.
    pub declared: BTreeSet<&'a str>,
}

impl<'a> DataPin<'a> {
    /// All of a deployment, in the order of their services. One that is on every node is pinned to none.
    pub fn all(
        deployment: &DeploymentName,
        services: impl Iterator<Item = (&'a ServiceName, &'a ServiceSpec)>,
    ) -> Vec<Self> {
        let pinned = services.filter(|(_, spec)| spec.placement.mode != Mode::Global);
        let pinned: Vec<_> = pinned.filter(|(_, spec)| spec.is_stateful()).collect();
        let groups = VolumeGroup::all(deployment, pinned.iter().copied());
        let is_in_none = |name: &ServiceName| {
            !groups.iter().flat_map(|group| &group.services).any(|(other, _)| *other == name)
        };
        let alone = pinned.iter().filter(|(name, _)| is_in_none(name));
        let alone = alone.map(|it| VolumeGroup { services: vec![*it], volumes: BTreeSet::new() });
        let mut pins: Vec<Self> = alone.chain(groups.iter().cloned()).map(Self::of).collect();
        pins.sort_by(|a, b| a.services.cmp(&b.services));
        pins
    }

    fn of(group: VolumeGroup<'a>) -> Self {
        let VolumeGroup { services, volumes } = group;
        let mounts = services.iter().flat_map(|(_, spec)| &spec.container.mounts);
        let binds = mounts.filter_map(|mount| match &mount.source {
            MountSource::Bind { path, .. } => Some(path.as_str()),
            _ => None,
        });
        let binds = binds.collect();
        let declared = services.iter().flat_map(|(_, spec)| &spec.declared.paths);
        let declared = declared.map(String::as_str).collect();
        Self {
            services: services.iter().map(|(name, _)| *name).collect(),
            volumes,
            binds,
            declared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Mount, VolumeScope};
    use crate::testkit::{global, spread};

    fn bound(mut spec: ServiceSpec, path: &str) -> ServiceSpec {
        let path = path.to_owned();
        let source =
            MountSource::Bind { path, propagation: None, create_host_path: true, selinux: None };
        let target = "/bound".to_owned();
        spec.container.mounts.push(Mount { source, target, read_only: true, consistency: None });
        spec
    }

    #[test]
    fn services_are_pinned_together_by_what_they_share_and_with_all_that_they_mount() {
        let mut elsewhere = spread(1).volume("far");
        elsewhere.container.volumes.get_mut("far").unwrap().scope = Some(VolumeScope::Global);
        let mut image = spread(1);
        image.declared.paths.insert("/var/lib/db".to_owned());
        let services = [
            ("agent", global().volume("cache")),
            ("app", bound(spread(2).volume("html"), "/srv/app")),
            ("cron", spread(1).volume("html").volume("jobs")),
            ("db", image),
            ("files", elsewhere),
            ("proxy", bound(spread(1), "/etc/proxy")),
            ("web", spread(3)),
        ]
        .map(|(name, spec)| (ServiceName::new(name).unwrap(), spec));
        let deployment = DeploymentName::new("shop").unwrap();
        let pins = DataPin::all(&deployment, services.iter().map(|(name, spec)| (name, spec)));
        let said: Vec<String> = pins
            .iter()
            .map(|pin| {
                let names: Vec<&str> = pin.services.iter().map(|it| it.as_str()).collect();
                format!("{names:?} {:?} {:?} {:?}", pin.volumes, pin.binds, pin.declared)
            })
            .collect();
        assert_eq!(
            said,
            [
                r#"["app", "cron"] {"shop_html", "shop_jobs"} {"/srv/app"} {}"#,
                r#"["db"] {} {} {"/var/lib/db"}"#,
                r#"["proxy"] {} {"/etc/proxy"} {}"#,
            ]
        );
    }
}
