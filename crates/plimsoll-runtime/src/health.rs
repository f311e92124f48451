//! Watches one run of a replica: given its check, tells when it becomes healthy or unhealthy.
//!
//! The rules are a plain state machine in [`probe`]; here is only what runs the command and keeps the time. What is
//! done about an unhealthy replica is decided elsewhere, and so is a run that ended: its watcher is dropped.

pub mod probe;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::Millis;
use plimsoll_model::spec::{HealthTest, Healthcheck};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::Error;
use crate::runtime::{Exec, Executed, Outcome, Runtime, Tag};
use probe::{Health, Probe, Rules, Verdict};

/// What is kept of a probe's output; Docker keeps as much.
const MAX_OUTPUT: usize = 4_096;

/// Transitions that may wait. A watcher makes a handful in its life and waits for its listener beyond that.
const TRANSITIONS_AHEAD: usize = 16;

/// How a replica is known to be well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It has run for as long as [`probe::SETTLED`].
    Uptime,
    Command {
        command: Vec<String>,
        rules: Rules,
    },
}

impl Check {
    /// The check of a spec. `image` is the one its image brings along, which a spec may adjust, replace or turn off.
    pub fn of(spec: Option<&Healthcheck>, image: Option<&Healthcheck>) -> Self {
        let Some(check) = spec.or(image) else { return Self::Uptime };
        let test = match (&check.test, image) {
            (HealthTest::Image, Some(image)) => &image.test,
            (test, _) => test,
        };
        let command = match test {
            // An image that brings no check has nothing to run.
            HealthTest::Image | HealthTest::Disabled => return Self::Uptime,
            HealthTest::Command(command) => command.clone(),
            HealthTest::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        };
        let rules = match image {
            Some(image) => Rules::of(check).or(image),
            None => Rules::of(check),
        };
        Self::Command { command, rules: rules.complete() }
    }
}

/// Watches until dropped.
#[derive(Debug)]
pub struct Monitor {
    transitions: mpsc::Receiver<Health>,
    task: JoinHandle<()>,
}

impl Monitor {
    /// Begins to watch a run that is `age` old. One that was adopted is past its first probe, so it is probed at once.
    pub fn begin(runtime: Arc<dyn Runtime>, tag: Tag, check: Check, age: Duration) -> Self {
        let (sender, transitions) = mpsc::channel(TRANSITIONS_AHEAD);
        let began = Instant::now();
        let clock = move || millis(age.saturating_add(began.elapsed()));
        let task = tokio::spawn(async move {
            let mut probe = match &check {
                Check::Uptime => Probe::uptime(),
                Check::Command { rules, .. } => Probe::new(rules.clone()),
            };
            while let Some(due) = probe.due() {
                tokio::time::sleep(Duration::from_millis(due.0.saturating_sub(clock().0))).await;
                let began = clock();
                let verdict = match &check {
                    Check::Uptime => Verdict::Passed,
                    Check::Command { command, rules } => {
                        run(runtime.as_ref(), &tag, command, rules.timeout).await
                    }
                };
                if let Some(health) = probe.judge(began, clock(), verdict)
                    && sender.send(health).await.is_err()
                {
                    return;
                }
            }
            // Nothing more will be said; the channel stays open, since a closed one would look like an end.
            sender.closed().await;
        });
        Self { transitions, task }
    }

    /// The next change. Every run begins as [`Health::Starting`], which is not told.
    pub async fn next(&mut self) -> Option<Health> {
        self.transitions.recv().await
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(runtime: &dyn Runtime, tag: &Tag, command: &[String], timeout: Millis) -> Verdict {
    let exec = Exec {
        command: command.to_vec(),
        timeout: Some(Duration::from_millis(timeout.0)),
        max_output: MAX_OUTPUT,
    };
    match runtime.exec(tag, &exec).await {
        Ok(Executed { outcome: Outcome::Done { status: 0 }, .. }) => Verdict::Passed,
        Ok(Executed { outcome: Outcome::Done { status }, stdout, stderr, .. }) => {
            let output = [stdout, stderr].concat();
            let output = String::from_utf8_lossy(&output[..output.len().min(MAX_OUTPUT)]);
            let output = match output.trim() {
                "" => format!("exit status {status}"),
                output => output.to_owned(),
            };
            Verdict::Failed { output }
        }
        Ok(Executed { outcome: Outcome::TimedOut, .. }) => {
            Verdict::Failed { output: format!("no answer within {timeout}") }
        }
        // Silence is not data: a runtime that does not answer says nothing of the service, and a service that does not
        // run any more is told by its exit.
        Err(Error::Unavailable { .. } | Error::NotRunning { .. } | Error::Absent { .. }) => {
            Verdict::Unknown
        }
        Err(error) => Verdict::Failed { output: crate::error::chain(&error) },
    }
}

fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
