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
use crate::runtime::{ExecOutcome, ExecOutput, ExecRequest, Runtime, Tag};
use probe::{HealthState, Probe, ProbeResult, ProbeTiming};

/// What is kept of a probe's output; Docker keeps as much.
const MAX_OUTPUT: usize = 4_096;

/// Reports that may wait. A watcher makes at most one a check and waits for its listener beyond that.
const REPORTS_AHEAD: usize = 16;

/// How a replica is known to be well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It has run for as long as [`probe::SETTLED`].
    Uptime,
    Command {
        command: Vec<String>,
        rules: ProbeTiming,
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
            Some(image) => ProbeTiming::of(check).or(image),
            None => ProbeTiming::of(check),
        };
        Self::Command { command, rules: rules.complete() }
    }
}

/// What a watcher tells of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthReport {
    /// Every run begins as [`HealthState::Starting`], which is not told.
    Changed(HealthState),
    /// It is starting still, and its check has failed so often in a row; with what the last one printed. Nothing comes of
    /// it yet, but whoever waits wants to know.
    FailedSoFar { checks: u32, output: String },
}

/// Watches until dropped.
#[derive(Debug)]
pub struct Monitor {
    reports: mpsc::Receiver<HealthReport>,
    task: JoinHandle<()>,
}

impl Monitor {
    /// Begins to watch a run that is `age` old. One that was adopted is past its first probe, so it is probed at once.
    pub fn begin(runtime: Arc<dyn Runtime>, tag: Tag, check: Check, age: Duration) -> Self {
        let (sender, reports) = mpsc::channel(REPORTS_AHEAD);
        let began = Instant::now();
        let clock = move || millis(age.saturating_add(began.elapsed()));
        let task = tokio::spawn(async move {
            let mut probe = match &check {
                Check::Uptime => Probe::uptime(),
                Check::Command { rules, .. } => Probe::new(rules.clone()),
            };
            let mut failed_checks = 0_u32;
            while let Some(due) = probe.due() {
                tokio::time::sleep(Duration::from_millis(due.0.saturating_sub(clock().0))).await;
                let began = clock();
                let verdict = match &check {
                    Check::Uptime => ProbeResult::Passed,
                    Check::Command { command, rules } => {
                        run(runtime.as_ref(), &tag, command, rules.timeout).await
                    }
                };
                let failed = match &verdict {
                    ProbeResult::Failed { output } => Some(output.clone()),
                    ProbeResult::Passed | ProbeResult::Unknown => None,
                };
                let changed = probe.judge(began, clock(), verdict).map(HealthReport::Changed);
                let is_starting = *probe.health() == HealthState::Starting;
                let report = changed.or_else(|| {
                    let output = failed.filter(|_| is_starting)?;
                    failed_checks = failed_checks.saturating_add(1);
                    Some(HealthReport::FailedSoFar { checks: failed_checks, output })
                });
                if let Some(report) = report
                    && sender.send(report).await.is_err()
                {
                    return;
                }
            }
            // Nothing more will be said; the channel stays open, since a closed one would look like an end.
            sender.closed().await;
        });
        Self { reports, task }
    }

    pub async fn next(&mut self) -> Option<HealthReport> {
        self.reports.recv().await
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(runtime: &dyn Runtime, tag: &Tag, command: &[String], timeout: Millis) -> ProbeResult {
    let exec = ExecRequest {
        command: command.to_vec(),
        timeout: Some(Duration::from_millis(timeout.0)),
        max_output: MAX_OUTPUT,
    };
    match runtime.exec(tag, &exec).await {
        Ok(ExecOutput { outcome: ExecOutcome::Done { status: 0 }, .. }) => ProbeResult::Passed,
        Ok(ExecOutput { outcome: ExecOutcome::Done { status }, stdout, stderr, .. }) => {
            let output = [stdout, stderr].concat();
            let output = String::from_utf8_lossy(&output[..output.len().min(MAX_OUTPUT)]);
            let output = match output.trim() {
                "" => format!("exit status {status}"),
                output => output.to_owned(),
            };
            ProbeResult::Failed { output }
        }
        Ok(ExecOutput { outcome: ExecOutcome::TimedOut, .. }) => {
            ProbeResult::Failed { output: format!("no answer within {timeout}") }
        }
        // Silence is not data: a runtime that does not answer says nothing of the service, and a service that does not
        // run any more is told by its exit.
        Err(Error::Unavailable { .. } | Error::NotRunning { .. } | Error::Absent { .. }) => {
            ProbeResult::Unknown
        }
        Err(error) => ProbeResult::Failed { output: crate::error::chain(&error) },
    }
}

fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
