//! What happens in the demo, an act a method. Each returns what it has shown, as a sentence, or says which claim did not
//! hold.

use std::collections::BTreeMap;
use std::time::Instant;

use plimsoll_api::client::{Client, LogsOf};
use plimsoll_api::view::{AuditEvent, AuditQuery, LogPiece, LogQuery, Progress, Replica, Time};
use plimsoll_model::Millis;
use tokio::time::sleep;

use super::look::{Look, Looker, PACE, PATIENCE};
use super::process::Process;
use super::stack::{DemoRevision, NAME, ORDER, WEB};
use super::stage::Stage;
use super::tell::{Teller, since};
use super::{hold, not_so};
use crate::age::took;
use crate::error::CliError;
use crate::output::count;

pub(super) struct Play<'s> {
    stage: &'s mut Stage,
    teller: &'s mut Teller,
    client: Client,
    looker: Looker,
}

impl<'s> Play<'s> {
    pub(super) fn new(stage: &'s mut Stage, teller: &'s mut Teller) -> Self {
        let client = stage.client();
        Self { stage, teller, looker: Looker::new(client.clone()), client }
    }

    pub(super) async fn comes_up(&mut self) -> Result<String, CliError> {
        self.teller
            .act("A stack comes up: api waits for a healthy store, and web for a healthy api")?;
        let begun = Instant::now();
        let revision = self.apply(DemoRevision::First).await?;
        let mut waiting = ORDER.map(|(name, _)| name).to_vec();
        let teller = &self.teller;
        let each = |look: &Look| {
            let is_ready =
                |name: &str| matches!(look.count(name), (n, wanted) if n == wanted && n > 0);
            while let Some(name) = waiting.first().copied().filter(|name| is_ready(name)) {
                waiting.remove(0);
                let replicas = count(look.count(name).1, "replica");
                teller.now(&format!("{name} is healthy: {replicas}"))?;
            }
            Ok(())
        };
        let steady = |look: &Look| look.deployment.revision == revision && look.is_steady();
        let look = self.looker.until("the stack is steady", each, steady).await?;
        let after = took(since(begun));
        self.check_order(&look).await?;
        let replicas = count(look.running.len(), "replica");
        self.teller.now(&format!("steady after {after}: {replicas}, a process each"))?;
        Ok(format!("a stack came up in the order of its depends_on, and was steady after {after}"))
    }

    /// No process of a service printed anything before a replica of what it waits for was healthy.
    async fn check_order(&self, look: &Look) -> Result<(), CliError> {
        for (name, before) in ORDER {
            let Some(before) = before.and_then(|before| look.service(before)) else { continue };
            // One healthy replica is enough to go on with.
            let healthy =
                before.replicas.iter().filter_map(|it| Some(it.now.as_ref()?.since)).min();
            let service = look.service(name).map(|service| service.replicas.as_slice());
            for replica in service.unwrap_or_default() {
                let first = self.first_line(&replica.id).await?;
                hold(first >= healthy && healthy.is_some(), || {
                    let before = &before.name;
                    format!("{} waits for a healthy {before}", short(&replica.id))
                })?;
            }
        }
        Ok(())
    }

    /// When the replica said its first word.
    async fn first_line(&self, replica: &str) -> Result<Option<Time>, CliError> {
        let of = LogsOf::Replica(replica.to_owned());
        let mut lines = self.client.logs(&of, &LogQuery::default()).await?;
        Ok(match lines.next().await.transpose()? {
            Some(LogPiece::Line(line)) => Some(line.at),
            Some(LogPiece::Missing(_)) | None => None,
        })
    }

    pub(super) async fn heals(&mut self) -> Result<String, CliError> {
        self.teller.act("A process is killed")?;
        let before = self.looker.look().await?;
        let web =
            before.service(WEB).map(|service| service.replicas.as_slice()).unwrap_or_default();
        let victim = web.get(1).map(|replica| replica.id.clone()).unwrap_or_default();
        let Some(process) = before.running.get(&victim).copied() else {
            return Err(not_so(&format!("{victim} runs")));
        };
        let name = short(&victim);
        process.kill();
        let begun = Instant::now();
        self.teller.now(&format!("kill -9 {}, which is {name}", process.pid))?;
        let is_back = |look: &Look| {
            look.is_steady() && look.running.get(&victim).is_some_and(|now| *now != process)
        };
        let look = self.looker.until("the killed replica runs again", |_| Ok(()), is_back).await?;
        let after = took(since(begun));
        let failures: u32 = replicas(&look).filter_map(|it| Some(it.now.as_ref()?.failures)).sum();
        hold(failures == 1, || format!("the kill counts as one failure, not {failures}"))?;
        let (old, new) = (&before.running, &look.running);
        let others = old.iter().filter(|(id, _)| **id != victim);
        let others = others.filter(|(id, process)| new.get(*id) == Some(process)).count();
        hold(others + 1 == old.len(), || "no other process was touched".to_owned())?;
        let pid = new.get(&victim).map_or(0, |process| process.pid);
        self.teller.now(&format!(
            "{name} is healthy again as {pid}; the other {others} were not touched"
        ))?;
        Ok(format!("a killed process was healed after {after}, and counted as one failure"))
    }

    pub(super) async fn refuses_a_bad_revision(&mut self) -> Result<String, CliError> {
        self.teller.act("A bad revision: its web ends as soon as it starts")?;
        let before = self.looker.look().await?;
        let begun = Instant::now();
        let revision = self.apply(DemoRevision::Bad).await?;
        let mut fewest = usize::MAX;
        let each = |look: &Look| {
            fewest = fewest.min(look.count(WEB).0);
            Ok(())
        };
        let is_given_up = |look: &Look| {
            let is_stuck = matches!(look.deployment.progress, Progress::Stuck { .. });
            look.deployment.revision == revision && is_stuck
        };
        let what = "the bad revision is given up";
        let look = self.looker.until(what, each, is_given_up).await?;
        let after = took(since(begun));
        let tried = self.told_since(revision, "move_started").await?;
        let failed = self.told_since(revision, "replica_failed").await?;
        let only = tried.first().filter(|_| tried.len() == 1);
        hold(only.is_some(), || {
            format!("it is given up at its first replica, not after {}", tried.len())
        })?;
        let why = failed.last().map_or_else(String::new, |event| short(&event.text).to_owned());
        self.teller.now(&format!("given up after its first replica: {why}"))?;
        hold(look.running == before.running, || "the old processes all run on".to_owned())?;
        let wanted = look.count(WEB).1;
        hold(fewest >= wanted, || format!("{wanted} web run all the while, not {fewest}"))?;
        let many = look.running.len();
        Teller::also(&format!("the {many} processes of before are the same ones, and serve on"))?;
        Ok(format!(
            "a bad revision was given up after {after} at its first replica; no old process ended"
        ))
    }

    pub(super) async fn rolls_a_good_revision(&mut self) -> Result<String, CliError> {
        self.teller.act("A good revision: web is replaced one replica at a time")?;
        let before = self.looker.look().await?;
        let begun = Instant::now();
        let revision = self.apply(DemoRevision::Good).await?;
        let (mut looks, mut fewest, mut most) = (0, usize::MAX, 0);
        let mut seen: BTreeMap<String, Process> = before.running.clone();
        let teller = &self.teller;
        let each = |look: &Look| {
            looks += 1;
            fewest = fewest.min(look.count(WEB).0);
            most = most.max(replicas(look).filter(|replica| replica.next.is_some()).count());
            for (id, process) in &look.running {
                if seen.insert(id.clone(), *process).is_some_and(|old| old != *process) {
                    teller.now(&format!("{} is new, as {}", short(id), process.pid))?;
                }
            }
            Ok(())
        };
        let steady = |look: &Look| look.deployment.revision == revision && look.is_steady();
        let look = self.looker.until("the good revision is steady", each, steady).await?;
        let after = took(since(begun));
        let wanted = look.count(WEB).1;
        let of_web = |id: &&String| {
            look.service(WEB).is_some_and(|web| web.replicas.iter().any(|it| it.id == **id))
        };
        let renewed = look.running.iter().filter(|(id, now)| before.running.get(*id) != Some(now));
        let (web, others): (Vec<&String>, Vec<&String>) =
            renewed.map(|(id, _)| id).partition(of_web);
        hold(web.len() == wanted, || format!("all {wanted} web are new, not {}", web.len()))?;
        hold(others.is_empty(), || "only web is replaced".to_owned())?;
        hold(most <= 1, || format!("one replica at a time is replaced, not {most}"))?;
        hold(fewest >= wanted, || format!("{wanted} web run at every look, not {fewest}"))?;
        self.teller.now(&format!(
            "steady; {looks} looks on the way, and at none fewer than {wanted} web ran"
        ))?;
        Ok(format!(
            "a good revision replaced {wanted} replicas in {after}, one at a time, never fewer than {wanted} running"
        ))
    }

    /// How much has happened, but for the commands by which we look at replicas.
    async fn decided(&self) -> Result<usize, CliError> {
        let events = self.audit(&AuditQuery::default()).await?;
        Ok(events.iter().filter(|event| event.what != "command_run").count())
    }

    pub(super) async fn outlives_its_daemon(&mut self) -> Result<String, CliError> {
        self.teller.act("The daemon is stopped and started again")?;
        let before = self.looker.look().await?;
        let told = self.decided().await?;
        self.stage.down().await;
        hold(self.client.status().await.is_err(), || "the daemon is down".to_owned())?;
        let alive = before.running.values().filter(|process| process.is_alive()).count();
        hold(alive == before.running.len(), || "every process runs on without it".to_owned())?;
        self.teller.now(&format!("the daemon is down, and the {alive} processes run on"))?;
        let begun = Instant::now();
        self.stage.up().await?;
        self.looker.forget();
        let look =
            self.looker.until("the stack is steady again", |_| Ok(()), Look::is_steady).await?;
        let after = took(since(begun));
        hold(look.running == before.running, || "every process is the same as before".to_owned())?;
        let generations = |look: &Look| -> Vec<Option<u64>> {
            replicas(look).map(|replica| Some(replica.now.as_ref()?.generation)).collect()
        };
        hold(generations(&look) == generations(&before), || "nothing is started anew".to_owned())?;
        let told = self.decided().await? - told;
        hold(told == 0, || format!("nothing is decided anew, not {told} things"))?;
        self.teller.now(&format!(
            "it is up again after {after} and has taken over all {alive}; nothing was restarted"
        ))?;
        Ok(format!("{alive} processes outlived the daemon, and the next one took them over"))
    }

    pub(super) async fn goes(&mut self) -> Result<String, CliError> {
        self.teller.act("The stack is deleted")?;
        let before = self.looker.look().await?;
        let begun = Instant::now();
        self.client.delete(NAME, false).await?;
        while self.client.deployments().await?.iter().any(|it| it.name == NAME) {
            hold(begun.elapsed() < PATIENCE, || "the stack is gone".to_owned())?;
            sleep(PACE).await;
        }
        let is_left = before.running.values().any(|process| process.is_alive());
        hold(!is_left, || "its processes are gone".to_owned())?;
        // A healthcheck that was just being run ends a moment after what it checked.
        while !self.stage.processes().is_empty() {
            hold(begun.elapsed() < PATIENCE, || "nothing else of it runs".to_owned())?;
            sleep(PACE).await;
        }
        // Rounded up, since it is a bound.
        let after = took(Millis(since(begun).0 + 99));
        let many = before.running.len();
        self.teller
            .now(&format!("all {many} processes are gone, and their supervisors with them"))?;
        Ok(format!("deleting it ended every process within {after}"))
    }

    async fn apply(&self, revision: DemoRevision) -> Result<u64, CliError> {
        let applied = self.client.apply(NAME, &revision.load()?).await?;
        self.teller.now(&format!("applied as revision {}", applied.revision))?;
        Ok(applied.revision)
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEvent>, CliError> {
        Ok(self.client.audit(query).await?)
    }

    /// What the audit has of this kind since the revision was applied.
    async fn told_since(&self, revision: u64, what: &str) -> Result<Vec<AuditEvent>, CliError> {
        let events = self.audit(&AuditQuery::default()).await?;
        let applied = format!("{NAME} r{revision} applied");
        let events = events.into_iter().skip_while(|event| event.text != applied);
        Ok(events.filter(|event| event.what == what).collect())
    }
}

fn replicas(look: &Look) -> impl Iterator<Item = &Replica> {
    look.deployment.services.iter().flat_map(|service| &service.replicas)
}

/// `shop-web-2` is `web-2` here: there is only one deployment.
fn short(id: &str) -> &str {
    id.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('-')).unwrap_or(id)
}
