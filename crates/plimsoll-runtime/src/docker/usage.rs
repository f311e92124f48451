//! What containers use, from the kernel's own files: the engine's statistics take a second a container to say the same.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use bollard::Docker;
use bollard::models::ContainerStatsResponse;
use bollard::query_parameters::StatsOptions;
use futures_util::{StreamExt, stream};
use plimsoll_model::Bytes;

use super::engine_error::EngineError;
use super::list::AT_ONCE;
use super::{DockerInner, locked};
use crate::process::cgroup;
use crate::runtime::Tag;
use crate::usage::{CpuTime, Usage};

const ROOT: &str = "/sys/fs/cgroup";

/// Where each container's cgroups are; a container keeps them for life.
pub(super) type Cgroups = HashMap<String, Vec<PathBuf>>;

impl DockerInner {
    pub(super) async fn usage(&self) -> Result<BTreeMap<Tag, Usage>, EngineError> {
        let docker = &self.engine.client().await?;
        let running = self.own(false).await?;
        let known = locked(&self.cgroups).clone();
        let looks = running.into_iter().map(|(id, tag)| {
            let known = known.get(&id).cloned();
            async move {
                let dirs = match known {
                    Some(dirs) => dirs,
                    None => find(docker, &id).await,
                };
                let usage = match cgroup::usage(&dirs) {
                    Some(usage) => Some(usage),
                    None => ask(docker, &id).await,
                };
                (id, dirs, tag, usage)
            }
        });
        let looks: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        let mut usages = BTreeMap::new();
        let mut cgroups = Cgroups::new();
        for (id, dirs, tag, usage) in looks {
            // A container that just ended has used nothing that matters any more.
            usages.extend(usage.map(|usage| (tag, usage)));
            if !dirs.is_empty() {
                cgroups.insert(id, dirs);
            }
        }
        // Only what runs is remembered, so that this stays as small as the node.
        *locked(&self.cgroups) = cgroups;
        Ok(usages)
    }
}

/// The container's cgroups, as its first process sees them from outside.
async fn find(docker: &Docker, id: &str) -> Vec<PathBuf> {
    let Ok(container) = docker.inspect_container(id, None).await else { return Vec::new() };
    let pid = container.state.and_then(|state| state.pid).filter(|pid| *pid > 0);
    let text = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
    text.map_or_else(Vec::new, |text| dirs(Path::new(ROOT), &text, id))
}

/// The directories that `/proc/<pid>/cgroup` speaks of: one in version 2, one a controller in version 1, whatever the
/// engine's driver calls them. Below the container's own there may be more, which a service manager in it made.
fn dirs(root: &Path, text: &str, id: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let Some(path) = own(path, id) else { continue };
        let hierarchies = std::iter::once(controllers).chain(controllers.split(','));
        let place = hierarchies.map(|hierarchy| root.join(hierarchy).join(&path));
        found.extend(place.into_iter().find(|dir| dir.is_dir()));
    }
    found
}

/// The path down to what is named after the container. None if nothing is: it would be a cgroup of others, too.
fn own(path: &str, id: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let end = parts.iter().position(|part| part.contains(id))?;
    Some(parts[..=end].iter().collect())
}

async fn ask(docker: &Docker, id: &str) -> Option<Usage> {
    let options = StatsOptions { stream: false, one_shot: true };
    let mut answers = Box::pin(docker.stats(id, Some(options)));
    let ContainerStatsResponse { cpu_stats, memory_stats, .. } = answers.next().await?.ok()?;
    let cpu = cpu_stats?.cpu_usage?.total_usage?;
    let memory = memory_stats?;
    let idle = memory.stats.as_ref().and_then(|stats| {
        stats.get("total_inactive_file").or_else(|| stats.get("inactive_file")).copied()
    });
    let memory = memory.usage?.saturating_sub(idle.unwrap_or(0));
    Some(Usage { cpu: CpuTime(cpu / 1_000), memory: Bytes(memory) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_found_however_the_engine_lays_them_out() {
        for (case, made, text, expected) in [
            (
                "version 1",
                &["cpu,cpuacct/docker/abc", "memory/docker/abc"][..],
                "3:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
                &["memory/docker/abc", "cpu,cpuacct/docker/abc"][..],
            ),
            (
                "version 1, a controller under its own name only",
                &["cpuacct/docker/abc"],
                "2:cpu,cpuacct:/docker/abc\n",
                &["cpuacct/docker/abc"],
            ),
            ("version 2", &["docker/abc"], "0::/docker/abc\n", &["docker/abc"]),
            (
                "version 2 under systemd, with a service manager inside",
                &["system.slice/docker-abc.scope/init.scope"],
                "0::/system.slice/docker-abc.scope/init.scope\n",
                &["system.slice/docker-abc.scope"],
            ),
            ("the cgroup of everybody is not the container's", &["memory"], "0::/\n", &[]),
        ] {
            let root = tempfile::tempdir().unwrap();
            for dir in made {
                fs::create_dir_all(root.path().join(dir)).unwrap();
            }
            let expected: Vec<PathBuf> = expected.iter().map(|dir| root.path().join(dir)).collect();
            assert_eq!(dirs(root.path(), text, "abc"), expected, "{case}");
        }
    }
}
