//! Looks at the stack: what the daemon says of it, checked against the processes that the kernel has.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_api::client::Client;
use plimsoll_api::view::{Assignment, Deployment, Exec, Progress, Replica, Service};
use tokio::time::sleep;

use super::not_so;
use super::process::Process;
use super::stack::NAME;
use super::tell::since;
use crate::age::took;
use crate::error::CliError;

/// How often the stack is looked at.
pub(super) const PACE: Duration = Duration::from_millis(25);

/// How long any one thing may take. It takes a second or two; a busy machine is given more.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The stack at one moment.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) deployment: Deployment,
    /// The process of every replica that is said to run and does.
    pub(super) running: BTreeMap<String, Process>,
}

impl Look {
    pub(super) fn is_steady(&self) -> bool {
        self.deployment.progress == Progress::Steady
    }

    pub(super) fn service(&self, name: &str) -> Option<&Service> {
        self.deployment.services.iter().find(|service| service.name == name)
    }

    /// How many replicas of the service run, and how many should.
    pub(super) fn count(&self, name: &str) -> (usize, usize) {
        let Some(service) = self.service(name) else { return (0, 0) };
        let runs = |replica: &&Replica| self.running.contains_key(&replica.id);
        (service.replicas.iter().filter(runs).count(), service.wanted as usize)
    }
}

#[derive(Debug)]
pub(super) struct Looker {
    client: Client,
    /// By replica and generation, so that each is asked for its process once.
    known: BTreeMap<(String, u64), Process>,
}

impl Looker {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: BTreeMap::new() }
    }

    /// Forgets which process is whose, and asks again.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    pub(super) async fn look(&mut self) -> Result<Look, CliError> {
        let mut look = self.look_once().await?;
        // A replica may be replaced between the daemon's word and the kernel's; then it is another moment.
        for _ in 0..3 {
            let said = |replica: &Replica| replica.now.as_ref().is_some_and(is_running);
            let mut replicas = look.deployment.services.iter().flat_map(|it| &it.replicas);
            let is_torn = replicas.any(|it| said(it) && !look.running.contains_key(&it.id));
            if !is_torn {
                break;
            }
            look = self.look_once().await?;
        }
        Ok(look)
    }

    async fn look_once(&mut self) -> Result<Look, CliError> {
        let deployment = self.client.deployment(NAME).await?;
        let mut running = BTreeMap::new();
        for replica in deployment.services.iter().flat_map(|service| &service.replicas) {
            let Some(now) = replica.now.as_ref().filter(|now| is_running(now)) else { continue };
            let key = (replica.id.clone(), now.generation);
            let known = self.known.get(&key).copied().filter(|process| process.is_alive());
            let process = match known {
                Some(process) => Some(process),
                None => self.ask(&replica.id).await,
            };
            if let Some(process) = process {
                self.known.insert(key, process);
                running.insert(replica.id.clone(), process);
            }
        }
        Ok(Look { deployment, running })
    }

    /// The replica's process, as it wrote it down itself.
    async fn ask(&self, replica: &str) -> Option<Process> {
        let command = ["cat", "pid"].map(str::to_owned).to_vec();
        let exec = Exec { command, timeout_seconds: Some(5) };
        // One that does not run cannot be asked, which is an answer.
        let said = self.client.exec(replica, &exec).await.ok()?;
        let text = STANDARD.decode(said.stdout).ok()?;
        Process::of(std::str::from_utf8(&text).ok()?.trim().parse().ok()?)
    }

    /// Looks again and again until it is so; `each` sees every look on the way.
    pub(super) async fn until(
        &mut self,
        what: &str,
        mut each: impl FnMut(&Look) -> Result<(), CliError>,
        mut is_so: impl FnMut(&Look) -> bool,
    ) -> Result<Look, CliError> {
        let begun = Instant::now();
        loop {
            let look = self.look().await?;
            each(&look)?;
            if is_so(&look) {
                return Ok(look);
            }
            if begun.elapsed() > PATIENCE {
                let after = took(since(begun));
                return Err(not_so(&format!("{what}; {after} were not enough")));
            }
            sleep(PACE).await;
        }
    }
}

fn is_running(assignment: &Assignment) -> bool {
    assignment.state == "running"
}
