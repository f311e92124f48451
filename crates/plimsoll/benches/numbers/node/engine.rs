//! The bare engine: the same containers, created and started straight at its API.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::models::{
    ContainerCreateBody, EndpointSettings, HostConfig, NetworkCreateRequest, NetworkingConfig,
};
use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptions};
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const NETWORK: &str = "plimsoll-bench";

/// As many calls at a time as a person with a script would make.
const AT_ONCE: usize = 6;

const SECONDS: u64 = 120;

/// Where the engine of the tests listens, if there is one.
pub(super) fn socket() -> Option<String> {
    std::env::var("PLIMSOLL_TEST_DOCKER").ok().filter(|socket| !socket.is_empty())
}

/// An image that the engine has.
pub(crate) fn image() -> String {
    std::env::var("PLIMSOLL_TEST_IMAGE").unwrap_or_else(|_| "plimsoll-test:1".to_owned())
}

pub(super) struct Bare(Docker);

impl Bare {
    pub(super) fn connect(socket: &str) -> Self {
        let connected = Docker::connect_with_unix(socket, SECONDS, API_DEFAULT_VERSION);
        Self(connected.expect("a socket has a path"))
    }

    /// How long so many containers take from the first call to the last answer. Then they are removed.
    pub(super) async fn run(&self, containers: usize) -> Duration {
        let request =
            NetworkCreateRequest { name: NETWORK.to_owned(), ..NetworkCreateRequest::default() };
        self.0.create_network(request).await.expect("a network is made");
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        let begun = Instant::now();
        for index in 0..containers {
            let (docker, turns) = (self.0.clone(), Arc::clone(&turns));
            tasks.spawn(async move {
                let _turn = turns.acquire().await.expect("it stays open");
                let name = format!("{NETWORK}-{index}");
                let options =
                    CreateContainerOptions { name: Some(name.clone()), ..Default::default() };
                docker.create_container(Some(options), body()).await.expect("it is created");
                docker.start_container(&name, None).await.expect("it is started");
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("the engine does its work");
        }
        let took = begun.elapsed();
        for index in 0..containers {
            let (docker, turns) = (self.0.clone(), Arc::clone(&turns));
            tasks.spawn(async move {
                let _turn = turns.acquire().await.expect("it stays open");
                let options = RemoveContainerOptions { force: true, ..Default::default() };
                let name = format!("{NETWORK}-{index}");
                docker.remove_container(&name, Some(options)).await.expect("it is removed");
            });
        }
        while tasks.join_next().await.is_some() {}
        self.0.remove_network(NETWORK).await.expect("the network is removed");
        took
    }
}

/// As ours are, in a network of their own.
fn body() -> ContainerCreateBody {
    let endpoint =
        EndpointSettings { aliases: Some(vec!["s".to_owned()]), ..EndpointSettings::default() };
    ContainerCreateBody {
        image: Some(image()),
        cmd: Some(vec!["sleep".to_owned(), "100000".to_owned()]),
        host_config: Some(HostConfig {
            network_mode: Some(NETWORK.to_owned()),
            ..HostConfig::default()
        }),
        networking_config: Some(NetworkingConfig {
            endpoints_config: Some(HashMap::from([(NETWORK.to_owned(), endpoint)])),
        }),
        ..ContainerCreateBody::default()
    }
}
