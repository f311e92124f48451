//! What is here: containers of this cell, and how each is.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bollard::Docker;
use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum as State, ContainerSummary,
    NetworkSettings,
};
use bollard::query_parameters::ListContainersOptions;
use futures_util::{StreamExt, stream};
use plimsoll_model::Timestamp;
use tokio::time::{Instant, sleep};

use super::engine_error::EngineError;
use super::{DockerInner, labels};
use crate::process::table::ProcessIdentity;
use crate::runtime::{ContainerInfo, ContainerStatus, Exit, Tag};

/// How many containers are looked at at a time: enough to hide the way to the engine, few enough to leave it room for
/// others.
pub(super) const AT_ONCE: usize = 8;

/// How often a list is asked for again that failed because something on it went meanwhile: where containers come and go all the
/// time, as often as one may.
const LISTS: u32 = 5;

/// What the name of a tag leads to.
pub(super) enum NameLookup {
    Free,
    Here(Box<ContainerInspectResponse>),
    /// A container that is not of this tag.
    Held {
        id: String,
    },
}

impl NameLookup {
    pub(super) fn here(self) -> Option<Box<ContainerInspectResponse>> {
        match self {
            Self::Here(container) => Some(container),
            Self::Free | Self::Held { .. } => None,
        }
    }
}

impl DockerInner {
    pub(super) async fn find(&self, tag: &Tag) -> Result<NameLookup, EngineError> {
        let docker = self.engine.client().await?;
        let found = match docker.inspect_container(&labels::name(tag), None).await {
            Ok(found) => found,
            Err(error) => {
                let fault = EngineError::from(error);
                return if fault.is_absent() { Ok(NameLookup::Free) } else { Err(fault) };
            }
        };
        Ok(if tag_of(&found).as_ref() == Some(tag) {
            NameLookup::Here(Box::new(found))
        } else {
            NameLookup::Held { id: found.id.unwrap_or_default().chars().take(12).collect() }
        })
    }

    /// The ids of this cell's containers with their tags.
    pub(super) async fn own(&self, all: bool) -> Result<Vec<(String, Tag)>, EngineError> {
        let docker = self.engine.client().await?;
        let filters = Some(labels::filter(&self.settings.cell_id, None));
        let options = ListContainersOptions { all, filters, ..Default::default() };
        let found = containers(&docker, options).await?;
        let own = found.into_iter().filter_map(|container| {
            Some((container.id?, labels::tag(&container.labels.unwrap_or_default())?))
        });
        Ok(own.collect())
    }

    pub(super) async fn list(&self) -> Result<Vec<ContainerInfo>, EngineError> {
        let docker = &self.engine.client().await?;
        let looks = self.own(true).await?.into_iter().map(|(id, tag)| async move {
            match docker.inspect_container(&id, None).await.map_err(EngineError::from) {
                Ok(container) => found(&container, tag).map(Some),
                // It went while we looked.
                Err(fault) if fault.is_absent() || fault.has_vanished() => Ok(None),
                Err(fault) => Err(fault),
            }
        });
        let looks: Vec<Result<Option<ContainerInfo>, EngineError>> =
            stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        let mut all = Vec::new();
        for look in looks {
            all.extend(look?);
        }
        all.sort_unstable_by(|one: &ContainerInfo, other| one.tag.cmp(&other.tag));
        Ok(all)
    }
}

/// How long a container may take from its end until its engine has noted it. Podman has a process of its own for that.
const BETWEEN: Duration = Duration::from_secs(5);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What the engine lists. Podman looks at each container in turn, and fails altogether when one is removed meanwhile or
/// just ends: such an engine is there, and is asked again.
pub(super) async fn containers(
    docker: &Docker,
    options: ListContainersOptions,
) -> Result<Vec<ContainerSummary>, EngineError> {
    let (mut left, begun) = (LISTS, Instant::now());
    loop {
        left -= 1;
        match docker.list_containers(Some(options.clone())).await.map_err(EngineError::from) {
            Err(fault) if left > 0 && fault.has_vanished() => {}
            Err(fault) if fault.is_between() && begun.elapsed() < BETWEEN => {
                left = LISTS;
                sleep(LOOK_AGAIN).await;
            }
            listed => return listed,
        }
    }
}

pub(super) fn tag_of(container: &ContainerInspectResponse) -> Option<Tag> {
    labels::tag(container.config.as_ref()?.labels.as_ref()?)
}

pub(super) fn is_running(container: &ContainerInspectResponse) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.running == Some(true))
}

fn found(container: &ContainerInspectResponse, tag: Tag) -> Result<ContainerInfo, EngineError> {
    let state =
        container.state.as_ref().ok_or_else(|| EngineError::Odd(format!("{tag} has no state")))?;
    let status = status(state)?;
    let is_running = status.is_running();
    let address = if is_running { address(container) } else { None };
    let process = state.pid.filter(|_| is_running).and_then(ProcessIdentity::of_number);
    Ok(ContainerInfo { tag, status, address, process })
}

fn status(state: &ContainerState) -> Result<ContainerStatus, EngineError> {
    let since = time(state.started_at.as_deref())?;
    if state.running == Some(true) {
        return Ok(ContainerStatus::Running { since });
    }
    // What never ran has no end, whatever its last start came to.
    if state.status == Some(State::CREATED) || since == Timestamp(0) {
        return Ok(ContainerStatus::Created);
    }
    // A run of a moment may have ended, by the kernel's time, before the engine noted that it began.
    let at = time(state.finished_at.as_deref())?.max(since);
    Ok(ContainerStatus::Exited { since, at, exit: exit(state) })
}

pub(super) fn exit(state: &ContainerState) -> Exit {
    let status = state.exit_code.and_then(|code| i32::try_from(code).ok());
    Exit { status, oom: state.oom_killed == Some(true) }
}

/// The engine's times; one that lies before our era, as Go's zero does, is none.
pub(super) fn time(text: Option<&str>) -> Result<Timestamp, EngineError> {
    let text = text.unwrap_or("");
    if text.is_empty() {
        return Ok(Timestamp(0));
    }
    let time: jiff::Timestamp =
        text.parse().map_err(|_| EngineError::Odd(format!("{text:?} is not a time")))?;
    Ok(Timestamp(u64::try_from(time.as_millisecond()).unwrap_or(0)))
}

/// Where this node reaches it: its address on a bridge, or the node itself where it shares the node's network.
fn address(container: &ContainerInspectResponse) -> Option<IpAddr> {
    let mode = container.host_config.as_ref()?.network_mode.as_deref()?;
    if mode == "host" {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let NetworkSettings { networks, .. } = container.network_settings.as_ref()?;
    let mut networks: Vec<_> = networks.as_ref()?.iter().collect();
    // The one it was created in first, then by name, so that every look gives the same.
    networks.sort_by_key(|(name, _)| (name.as_str() != mode, name.as_str()));
    networks.into_iter().find_map(|(_, network)| {
        let addresses = [&network.ip_address, &network.global_ipv6_address];
        addresses.into_iter().flatten().find_map(|text| text.parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::super::engine::EngineClient;
    use super::*;

    /// An engine that gives these answers to questions for its containers, one after another.
    async fn answer(listener: UnixListener, answers: Vec<(u16, &'static str)>) {
        let mut answers = answers.into_iter();
        loop {
            let (mut stream, _) = listener.accept().await.expect("somebody connects");
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.expect("a whole request"));
            }
            let asked = String::from_utf8(asked).expect("a request is text");
            let (status, body) = if asked.contains("/containers/json") {
                answers.next().expect("not asked more often")
            } else {
                (200, r#"{"ApiVersion": "1.41"}"#)
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n");
            let text = format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
            stream.write_all(text.as_bytes()).await.expect("somebody listens");
        }
    }

    #[tokio::test]
    async fn a_container_that_goes_while_the_list_is_made_is_not_an_engine_that_does_not_answer() {
        let gone =
            (500, r#"{"message": "no container with name or ID \"a\" found: no such container"}"#);
        let one = (200, r#"[{"Id": "b"}]"#);
        let broken = (500, r#"{"message": "database is locked"}"#);
        for (case, answers, expected) in [
            ("it went", vec![gone, gone, one], Ok(1)),
            ("one goes at every look", vec![gone; 5], Err("no such container")),
            ("something else is wrong", vec![broken], Err("database is locked")),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("engine.sock");
            let engine = tokio::spawn(answer(UnixListener::bind(&socket).unwrap(), answers));
            let docker = EngineClient::new(socket).client().await.unwrap();
            let listed = containers(&docker, ListContainersOptions::default()).await;
            match (listed, expected) {
                (Ok(listed), Ok(count)) => assert_eq!(listed.len(), count, "{case}"),
                (Err(fault), Err(text)) => assert!(fault.to_string().contains(text), "{fault}"),
                (listed, _) => panic!("{case}: {listed:?}"),
            }
            engine.abort();
        }
    }

    #[test]
    fn a_state_is_read_as_the_engine_means_it() {
        let begun = "2026-11-16T00:00:01.5Z";
        let (since, at) = (Timestamp(1_794_787_201_500), Timestamp(1_794_787_203_000));
        let exited =
            |status, oom| ContainerStatus::Exited { since, at, exit: Exit { status, oom } };
        for (case, state, started, code, oom, expected) in [
            (
                "never started",
                State::CREATED,
                "0001-01-01T00:00:00Z",
                0,
                false,
                ContainerStatus::Created,
            ),
            (
                "its start failed",
                State::CREATED,
                "0001-01-01T00:00:00Z",
                127,
                false,
                ContainerStatus::Created,
            ),
            ("running", State::RUNNING, begun, 0, false, ContainerStatus::Running { since }),
            ("ended", State::EXITED, begun, 3, false, exited(Some(3), false)),
            ("killed for memory", State::EXITED, begun, 137, true, exited(Some(137), true)),
        ] {
            let state = ContainerState {
                status: Some(state),
                running: Some(state == State::RUNNING),
                started_at: Some(started.to_owned()),
                finished_at: Some("2026-11-16T00:00:03Z".to_owned()),
                exit_code: Some(code),
                oom_killed: Some(oom),
                ..ContainerState::default()
            };
            assert_eq!(status(&state).unwrap(), expected, "{case}");
        }
    }
}
