//! A runtime that runs nothing, for tests: it dwells, fails and exits as it is told per image, and records every call.
//! All its time is tokio's, so a paused clock drives it.

mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use plimsoll_model::{Bytes, CellId, ContainerSpec, DeploymentName, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::attach::{AttachInput, AttachRequest, AttachStreams, WindowSize};
use crate::error::{Error, Operation, PullError, Reason, Result};
use crate::logs::{LogLine, LogQuery, Logs, Output};
use crate::process::table::ProcessIdentity;
use crate::runtime::{
    BoxFuture, Bus, ContainerInfo, ContainerStatus, DEFAULT_STOP_GRACE, Description, Events,
    ExecOutcome, ExecOutput, ExecRequest, Exit, ImageResolution, Pull, Runtime, RuntimeEvent,
    StartRequest, Tag, VolumeRef,
};
use crate::usage::{CpuTime, Usage};
pub use script::{Call, Script, Wellness};

/// What a container says that was killed.
const KILLED: i32 = 137;

#[derive(Debug)]
pub struct FakeRuntime {
    cell_id: CellId,
    began: Instant,
    bus: Bus,
    world: Arc<Mutex<FakeWorld>>,
    hangs: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct FakeWorld {
    scripts: BTreeMap<String, Script>,
    containers: BTreeMap<Tag, Container>,
    calls: Vec<Call>,
    is_down: bool,
    /// Those that are unwell whatever their image's script says, and when that was first found.
    ill: BTreeMap<Tag, Option<Instant>>,
}

#[derive(Debug)]
struct Container {
    spec: Arc<ContainerSpec>,
    declared: BTreeMap<String, String>,
    status: ContainerStatus,
    started: Instant,
    /// Which run of the tag this is: a planned exit of an earlier one does not end it.
    run: u64,
    usage: Option<Usage>,
    lines: Vec<LogLine>,
    process: Option<ProcessIdentity>,
}

impl FakeRuntime {
    pub fn new(cell_id: CellId) -> Self {
        let world = Arc::new(Mutex::new(FakeWorld::default()));
        let hangs = watch::Sender::new(false);
        Self { cell_id, began: Instant::now(), bus: Bus::new(), world, hangs }
    }

    /// What happens with this image from now on. Without a script all goes well, at once.
    pub fn on(&self, image: &str, script: Script) {
        self.world().scripts.insert(image.to_owned(), script);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.world().calls.clone()
    }

    /// While it is down nothing is answered; what runs, runs on.
    pub fn set_down(&self, is_down: bool) {
        self.world().is_down = is_down;
    }

    /// While it hangs, whoever asks what it is, what it runs or what that uses gets neither an answer nor an error.
    pub fn set_hung(&self, is_hung: bool) {
        self.hangs.send_replace(is_hung);
    }

    async fn unhung(&self) {
        let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
    }

    /// Ends a run from within.
    pub fn crash(&self, tag: &Tag, exit: Exit) {
        end(&self.world, &self.bus, tag, None, exit, self.now());
    }

    /// Takes a container away behind everyone's back. With `quietly` there is not even an event.
    pub fn vanish(&self, tag: &Tag, quietly: bool) {
        self.world().containers.remove(tag);
        if !quietly {
            self.bus.tell(RuntimeEvent::Removed { tag: tag.clone() });
        }
    }

    /// The volumes that its image declares, as it was started with them.
    pub fn declared(&self, tag: &Tag) -> BTreeMap<String, String> {
        self.world().containers.get(tag).map(|it| it.declared.clone()).unwrap_or_default()
    }

    /// From now on commands beside this container find it unwell.
    pub fn fall_ill(&self, tag: &Tag) {
        self.world().ill.insert(tag.clone(), None);
    }

    /// When a command first found that.
    pub fn found_ill(&self, tag: &Tag) -> Option<Instant> {
        self.world().ill.get(tag).copied().flatten()
    }

    /// From now on the container is this process of the host.
    pub fn run_as(&self, tag: &Tag, pid: u32) {
        if let Some(container) = self.world().containers.get_mut(tag) {
            container.process = ProcessIdentity::of_number(pid.into());
        }
    }

    pub fn set_usage(&self, tag: &Tag, usage: Usage) {
        if let Some(container) = self.world().containers.get_mut(tag) {
            container.usage = Some(usage);
        }
    }

    pub fn print(&self, tag: &Tag, line: LogLine) {
        if let Some(container) = self.world().containers.get_mut(tag) {
            container.lines.push(line);
        }
    }

    fn world(&self) -> MutexGuard<'_, FakeWorld> {
        self.world.lock().expect("no test panics while it holds the fake")
    }

    /// Milliseconds since this fake was made: a paused clock has no other time to tell.
    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Notes the call; an error while the fake is down.
    fn enter(&self, call: Call) -> Result<MutexGuard<'_, FakeWorld>> {
        let mut world = self.world();
        world.calls.push(call);
        if world.is_down {
            return Err(Error::Unavailable { runtime: "fake", source: "it was told so".into() });
        }
        Ok(world)
    }

    fn own(&self, operation: Operation, tag: &Tag) -> Result<()> {
        if tag.cell_id == self.cell_id {
            return Ok(());
        }
        Err(Error::Foreign { operation, tag: tag.clone(), cell_id: self.cell_id.clone() })
    }

    fn begin(&self, order: &StartRequest) {
        let mut world = self.world();
        let script = world.script(&order.spec.image);
        let earlier = world.containers.remove(&order.tag);
        let run = earlier.as_ref().map_or(0, |container| container.run + 1);
        let container = Container {
            spec: Arc::clone(&order.spec),
            declared: order.declared.clone(),
            status: ContainerStatus::Running { since: self.now() },
            started: Instant::now(),
            run,
            usage: None,
            lines: earlier.map_or_else(Vec::new, |container| container.lines),
            process: None,
        };
        world.containers.insert(order.tag.clone(), container);
        drop(world);
        self.bus.tell(RuntimeEvent::Started { tag: order.tag.clone() });
        if let Some((after, status)) = script.exits {
            let (shared, bus, tag) = (Arc::clone(&self.world), self.bus.clone(), order.tag.clone());
            let at = self.now().0 + u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            tokio::spawn(async move {
                sleep(after).await;
                let exit = Exit { status: Some(status), oom: false };
                end(&shared, &bus, &tag, Some(run), exit, Timestamp(at));
            });
        }
    }
}

impl FakeWorld {
    fn script(&self, image: &str) -> Script {
        self.scripts.get(image).cloned().unwrap_or_default()
    }

    /// Whether one more of `failures` is due.
    fn fails(&mut self, image: &str, failures: impl Fn(&mut Script) -> &mut u32) -> bool {
        let Some(script) = self.scripts.get_mut(image) else { return false };
        let left = failures(script);
        let fails = *left > 0;
        *left = left.saturating_sub(1);
        fails
    }
}

/// Ends the run, if it is still that one.
fn end(
    world: &Mutex<FakeWorld>,
    bus: &Bus,
    tag: &Tag,
    run: Option<u64>,
    exit: Exit,
    at: Timestamp,
) {
    let mut world = world.lock().expect("no test panics while it holds the fake");
    let Some(container) = world.containers.get_mut(tag) else { return };
    let ContainerStatus::Running { since } = container.status else { return };
    if run.is_some_and(|run| run != container.run) {
        return;
    }
    container.status = ContainerStatus::Exited { since, at, exit };
    drop(world);
    bus.tell(RuntimeEvent::Exited { tag: tag.clone(), exit });
}

impl Runtime for FakeRuntime {
    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        Box::pin(async {
            self.unhung().await;
            drop(self.enter(Call::Describe)?);
            let limits = vec!["nothing runs: this runtime is a fake".to_owned()];
            Ok(Description { name: "fake", version: "1".to_owned(), limits })
        })
    }

    fn refuses(&self, spec: &ContainerSpec) -> Vec<Reason> {
        self.world().script(&spec.image).refuses
    }

    fn pull<'a>(&'a self, pull: &'a Pull) -> BoxFuture<'a, Result<(), PullError>> {
        Box::pin(async {
            let image = pull.image.clone();
            let entered = self.enter(Call::Pull(image.clone())).map(|world| world.script(&image));
            let script = entered.map_err(|error| PullError::Unavailable {
                image: image.clone(),
                error: crate::error::chain(&error),
            })?;
            sleep(script.pull_dwell).await;
            if self.world().fails(&image, |script| &mut script.pull_failures) {
                let error = "manifest unknown".to_owned();
                return Err(PullError::NotFound { image, error });
            }
            Ok(())
        })
    }

    fn resolve<'a>(&'a self, pull: &'a Pull) -> BoxFuture<'a, Result<ImageResolution, PullError>> {
        Box::pin(async {
            let image = pull.image.clone();
            let script = self.world().script(&image);
            let Some(digest) = script.digest else { return Ok(ImageResolution::NoImages) };
            let unavailable = |error: Error| PullError::Unavailable {
                image: image.clone(),
                error: crate::error::chain(&error),
            };
            drop(self.enter(Call::Resolve(image.clone())).map_err(unavailable)?);
            if self.world().fails(&image, |script| &mut script.resolve_failures) {
                let error = "connection refused".to_owned();
                return Err(PullError::Unreachable { image, error });
            }
            Ok(ImageResolution::Registry { digest })
        })
    }

    fn declared_volumes<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<BTreeSet<String>>> {
        Box::pin(async { Ok(self.world().script(image).declared) })
    }

    fn start<'a>(&'a self, order: &'a StartRequest) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let image = &order.spec.image;
            self.own(Operation::Start, &order.tag)?;
            let script = self.enter(Call::Start(order.tag.clone()))?.script(image);
            if !script.refuses.is_empty() {
                return Err(Error::Refused { tag: order.tag.clone(), reasons: script.refuses });
            }
            sleep(script.start_dwell).await;
            if self.world().fails(image, |script| &mut script.subnet_failures) {
                let (object, source) = (order.tag.to_string(), "no subnet is left".into());
                return Err(Error::SubnetPoolExhausted { object, source });
            }
            if self.world().fails(image, |script| &mut script.start_failures) {
                return Err(Error::failed(Operation::Start, &order.tag, "it was told to fail"));
            }
            let runs = |container: &Container| container.status.is_running();
            if !self.world().containers.get(&order.tag).is_some_and(runs) {
                self.begin(order);
            }
            Ok(())
        })
    }

    fn stop<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.own(Operation::Stop, tag)?;
            let known = {
                let world = self.enter(Call::Stop(tag.clone()))?;
                world.containers.get(tag).map(|container| {
                    let grace = container.spec.stop_grace.unwrap_or(DEFAULT_STOP_GRACE);
                    (world.script(&container.spec.image), grace)
                })
            };
            let Some((script, grace)) = known else { return Ok(()) };
            let grace = Duration::from_millis(grace.0);
            let is_killed = script.stop_dwell > grace;
            sleep(script.stop_dwell.min(grace)).await;
            let exit = Exit { status: Some(if is_killed { KILLED } else { 0 }), oom: false };
            end(&self.world, &self.bus, tag, None, exit, self.now());
            Ok(())
        })
    }

    fn remove<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.own(Operation::Remove, tag)?;
            let mut world = self.enter(Call::Remove(tag.clone()))?;
            let Some(container) = world.containers.get(tag) else { return Ok(()) };
            if container.status.is_running() {
                return Err(Error::StillRunning { tag: tag.clone() });
            }
            world.containers.remove(tag);
            drop(world);
            self.bus.tell(RuntimeEvent::Removed { tag: tag.clone() });
            Ok(())
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ContainerInfo>>> {
        Box::pin(async {
            self.unhung().await;
            let world = self.enter(Call::List)?;
            let found = world.containers.iter().map(|(tag, container)| {
                let is_running = container.status.is_running();
                let address = is_running.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
                let (tag, status) = (tag.clone(), container.status.clone());
                let process = container.process.clone().filter(|_| is_running);
                ContainerInfo { tag, status, address, process }
            });
            Ok(found.collect())
        })
    }

    fn events(&self) -> Events {
        self.bus.listen()
    }

    fn usage(&self) -> BoxFuture<'_, Result<BTreeMap<Tag, Usage>>> {
        Box::pin(async {
            self.unhung().await;
            let world = self.enter(Call::Usage)?;
            let running = world.containers.iter().filter(|(_, c)| c.status.is_running());
            let usage = running.map(|(tag, container)| {
                let idle = Usage { cpu: CpuTime(0), memory: Bytes(0) };
                (tag.clone(), container.usage.unwrap_or(idle))
            });
            Ok(usage.collect())
        })
    }

    fn logs<'a>(&'a self, tag: &'a Tag, query: LogQuery) -> BoxFuture<'a, Result<Logs>> {
        Box::pin(async move {
            let world = self.enter(Call::Logs(tag.clone()))?;
            let Some(container) = world.containers.get(tag) else {
                return Err(Error::Absent { operation: Operation::Logs, tag: tag.clone() });
            };
            let since = query.since.unwrap_or_default();
            let lines: Vec<_> =
                container.lines.iter().filter(|line| line.at >= since).cloned().collect();
            drop(world);
            let skip = query.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
            let (sender, logs) = Logs::channel();
            tokio::spawn(async move {
                for line in lines.into_iter().skip(skip) {
                    if sender.send(Ok(line)).await.is_err() {
                        return;
                    }
                }
            });
            Ok(logs)
        })
    }

    fn exec<'a>(
        &'a self,
        tag: &'a Tag,
        exec: &'a ExecRequest,
    ) -> BoxFuture<'a, Result<ExecOutput>> {
        Box::pin(async move {
            let mut world = self.enter(Call::Exec(tag.clone(), exec.command.clone()))?;
            let container = world.containers.get(tag).filter(|c| c.status.is_running());
            let Some(container) = container else {
                return Err(Error::NotRunning { operation: Operation::Exec, tag: tag.clone() });
            };
            let (image, age) = (container.spec.image.clone(), container.started.elapsed());
            if world.fails(&image, |script| &mut script.exec_failures) {
                return Err(Error::failed(Operation::Exec, tag, "it was told to fail"));
            }
            let is_well = match world.script(&image).wellness {
                Wellness::Always => true,
                Wellness::Never => false,
                Wellness::After(healthy) => age >= healthy,
            };
            let illness = world.ill.get_mut(tag);
            let is_well = is_well && illness.is_none();
            if let Some(found) = illness {
                found.get_or_insert_with(Instant::now);
            }
            let outcome = ExecOutcome::Done { status: i32::from(!is_well) };
            Ok(ExecOutput { outcome, stdout: Vec::new(), stderr: Vec::new(), is_cut: false })
        })
    }

    /// What is sent in is printed, and a signal ends it as it would a program.
    fn attach<'a>(
        &'a self,
        tag: &'a Tag,
        request: &'a AttachRequest,
        mut streams: AttachStreams,
    ) -> BoxFuture<'a, Result<ExecOutcome>> {
        Box::pin(async move {
            let runs = {
                let world = self.enter(Call::Exec(tag.clone(), request.command.clone()))?;
                world.containers.get(tag).is_some_and(|it| it.status.is_running())
            };
            if !runs {
                return Err(Error::NotRunning { operation: Operation::Exec, tag: tag.clone() });
            }
            if let Some(WindowSize { rows, columns }) = request.terminal {
                streams.print(Output::Stdout, format!("{rows}x{columns}\n").into_bytes()).await;
            }
            if !request.has_input {
                return Ok(ExecOutcome::Done { status: 0 });
            }
            loop {
                match streams.input.recv().await {
                    Some(AttachInput::Bytes(bytes)) => {
                        streams.print(Output::Stdout, bytes).await;
                    }
                    Some(AttachInput::Resize(WindowSize { rows, columns })) => {
                        let text = format!("{rows}x{columns}\n").into_bytes();
                        streams.print(Output::Stderr, text).await;
                    }
                    Some(AttachInput::Signal(signal)) => {
                        return Ok(ExecOutcome::Done { status: 128 + signal.number() });
                    }
                    Some(AttachInput::End) => return Ok(ExecOutcome::Done { status: 0 }),
                    None => return Ok(ExecOutcome::Done { status: KILLED }),
                }
            }
        })
    }

    fn remove_volumes<'a>(
        &'a self,
        deployment: &'a DeploymentName,
    ) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async {
            drop(self.enter(Call::RemoveVolumes(deployment.clone()))?);
            Ok(Vec::new())
        })
    }

    fn volume_dir<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<Option<PathBuf>>> {
        Box::pin(async move {
            drop(self.enter(Call::FindVolume(volume.clone()))?);
            Ok(None)
        })
    }

    fn create_volume<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(async move {
            let source = "it keeps no data";
            Err(Error::failed(Operation::CreateVolume, volume, source))
        })
    }

    fn remove_volume<'a>(&'a self, volume: &'a VolumeRef) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            drop(self.enter(Call::RemoveVolume(volume.clone()))?);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
