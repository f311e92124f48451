//! A scenario as the text of a scenario file, for a person to keep and `plimsoll sim run` to read. The words are those of
//! `docs/reference/scenario-format.md`; that reading it gives the same scenario is tested where it is read.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use plimsoll_model::reschedule::RescheduleSettings;
use plimsoll_model::spec::{
    Dependency, Mode, MountSource, NetworkAttachment, OnFailure, PortMode, Reschedule, UpdateOrder,
    UpdatePolicy,
};
use plimsoll_model::{Capability, Millis, NodeFacts, NodeId, Resources, ServiceSpec};

use super::{Action, Dwell, RolloutRequest, Scenario, Services};
use crate::usage::Shape;

impl Scenario {
    /// The text of a file that says the same. What it says of services is what chaos can change of them.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes all that is written to it");
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "name: {}", quoted(&self.name))?;
        writeln!(out, "length: {}", time(self.length))?;
        writeln!(out, "lenient: true    # what cannot happen by then is passed over")?;
        if self.policy.sample_interval != plimsoll_kernel::Policy::default().sample_interval {
            writeln!(out, "cycle: {}", time(self.policy.sample_interval))?;
        }
        if self.policy.max_changes != plimsoll_kernel::Policy::default().max_changes {
            writeln!(out, "max_changes: {}", self.policy.max_changes)?;
        }
        writeln!(out, "nodes:")?;
        for (id, facts) in &self.nodes {
            writeln!(out, "  - {}", node(id, facts))?;
        }
        if !self.deployments.is_empty() {
            writeln!(out, "deployments:")?;
        }
        for (name, services) in &self.deployments {
            writeln!(out, "  - name: {name}\n    services:")?;
            for (service, spec) in services {
                writeln!(out, "      {service}: {}", service_text(spec))?;
            }
        }
        if !self.usage.is_empty() {
            writeln!(out, "usage:")?;
        }
        for (key, usage) in &self.usage {
            let (cpus, memory) =
                (shape(&usage.cpu, cpus), shape(&usage.memory, |it| it.to_string()));
            writeln!(out, "  {key}: {{cpus: {cpus}, memory: {memory}}}")?;
        }
        self.write_takes(out)?;
        if !self.script.is_empty() {
            writeln!(out, "events:")?;
        }
        for (at, action) in self.in_order() {
            writeln!(out, "  - {{at: {}, {}}}", time(*at), event(action))?;
        }
        Ok(())
    }

    fn write_takes(&self, out: &mut String) -> fmt::Result {
        if self.dwell == Dwell::default() {
            return Ok(());
        }
        let Dwell { pull, start, health, stop, network, commit, election } = self.dwell;
        writeln!(out, "takes:")?;
        for (word, (least, most)) in [
            ("pull", pull),
            ("start", start),
            ("health", health),
            ("stop", stop),
            ("network", network),
            ("commit", commit),
            ("election", election),
        ] {
            writeln!(out, "  {word}: {}..{}", time(least), time(most))?;
        }
        Ok(())
    }

    /// The script as it happens.
    fn in_order(&self) -> Vec<&(Millis, Action)> {
        let mut script: Vec<_> = self.script.iter().collect();
        script.sort_by_key(|(at, _)| *at);
        script
    }
}

/// To the millisecond: equal times are equal runs.
fn time(span: Millis) -> String {
    if span.0.is_multiple_of(60_000) && span.0 > 0 {
        format!("{}m", span.0 / 60_000)
    } else if span.0.is_multiple_of(1_000) {
        format!("{}s", span.0 / 1_000)
    } else {
        format!("{}ms", span.0)
    }
}

fn cpus(thousandths: u64) -> String {
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn shape(shape: &Shape, amount: impl Fn(u64) -> String) -> String {
    match shape {
        Shape::Constant(value) => amount(*value),
        Shape::Wave { low, high, period } => {
            let (low, high) = (amount(*low), amount(*high));
            format!("{{low: {low}, high: {high}, period: {}}}", time(*period))
        }
        Shape::Trace { step, values } => {
            let values: Vec<String> = values.iter().map(|value| amount(*value)).collect();
            format!("{{step: {}, values: [{}]}}", time(*step), values.join(", "))
        }
    }
}

fn node(id: &NodeId, facts: &NodeFacts) -> String {
    let capacity = facts.capacity;
    let (cpus, memory) = (cpus(capacity.cpu.0), capacity.memory.0);
    let mut text = format!("{{name: {id}, cpus: {cpus}, memory: {memory}");
    if capacity.gpus > 0 {
        let _ = write!(text, ", gpus: {}", capacity.gpus);
    }
    if let Some(zone) = &facts.zone {
        let _ = write!(text, ", zone: {zone}");
    }
    if !facts.labels.is_empty() {
        let labels = facts.labels.iter().map(|(key, value)| format!("{key}: {}", quoted(value)));
        let _ = write!(text, ", labels: {{{}}}", labels.collect::<Vec<_>>().join(", "));
    }
    if !facts.runtime.lacks.is_empty() {
        let _ = write!(text, ", lacks: [{}]", words(&facts.runtime.lacks));
    }
    text + "}"
}

fn services(services: &Services) -> String {
    let each = services.iter().map(|(name, spec)| format!("{name}: {}", service_text(spec)));
    format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
}

fn service_text(spec: &ServiceSpec) -> String {
    let container = &spec.container;
    let mut fields = vec![format!("image: {}", quoted(&container.image))];
    let placement = &spec.placement;
    fields.push(format!("placement: {}", placement.mode.word()));
    if let Some(replicas) = placement.mode.replicas() {
        fields.push(format!("replicas: {replicas}"));
    }
    if let Mode::Hosts { hosts, .. } = &placement.mode {
        fields.push(format!("hosts: {}", list(hosts)));
    }
    let reserved = spec.request();
    if reserved != Resources::NONE {
        let (cpus, memory) = (cpus(reserved.cpu.0), reserved.memory.0);
        let gpus = match reserved {
            Resources { all_gpus: 1, .. } => ", all_gpus: true".to_owned(),
            Resources { gpus: 0, .. } => String::new(),
            Resources { gpus, .. } => format!(", gpus: {gpus}"),
        };
        fields.push(format!("reserve: {{cpus: {cpus}, memory: {memory}{gpus}}}"));
    }
    let needs = Capability::ALL.into_iter().filter(|need| container.needs(*need));
    let needs: BTreeSet<Capability> = needs.collect();
    if needs != BTreeSet::from([Capability::ImageCommand]) {
        fields.push(format!("needs: [{}]", words(&needs)));
    }
    if !placement.constraints.is_empty() {
        fields.push(format!("constraints: {}", list(&placement.constraints)));
    }
    if !placement.preferences.is_empty() {
        let preferred = placement.preferences.iter().map(|preference| &preference.constraint);
        fields.push(format!("prefer: {}", list(preferred)));
    }
    if let Some(max) = placement.max_per_node {
        fields.push(format!("max_per_node: {max}"));
    }
    for (word, mode) in [("host_ports", PortMode::Host), ("publish", PortMode::Routed)] {
        let ports = container.ports.iter().filter(|port| port.mode == mode);
        let ports = ports.filter_map(|port| Some(format!("{}/{}", port.published?, port.protocol)));
        let ports: Vec<String> = ports.collect();
        if !ports.is_empty() {
            fields.push(format!("{word}: {}", list(&ports)));
        }
    }
    let sources = container.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Bind { path, .. } => Some(path),
        MountSource::Volume { name, .. } => Some(name),
        MountSource::Anonymous | MountSource::Tmpfs { .. } => None,
    });
    let sources: Vec<&String> = sources.collect();
    if !sources.is_empty() {
        fields.push(format!("volumes: {}", list(&sources)));
    }
    if !container.secrets.is_empty() {
        let names = container.secrets.iter().map(|secret| &secret.name);
        fields.push(format!("secrets: {}", list(names)));
    }
    // What a file that says nothing of networks has goes without saying.
    if container.networks != [("default".to_owned(), NetworkAttachment::default())].into() {
        let each = container.networks.iter().map(|(key, how)| format!("{key}: {}", network(how)));
        fields.push(format!("networks: {{{}}}", each.collect::<Vec<_>>().join(", ")));
    }
    if let Some(start_period) = container.healthcheck.as_ref().and_then(|it| it.start_period) {
        fields.push(format!("start_period: {}", time(start_period)));
    }
    if !spec.depends_on.is_empty() {
        let each = spec.depends_on.iter();
        let each = each.map(|(on, until)| format!("{on}: {}", condition(*until)));
        fields.push(format!("depends_on: {{{}}}", each.collect::<Vec<_>>().join(", ")));
    }
    if let Some(retries) = spec.retries() {
        fields.push(format!("lifecycle: {}", spec.lifecycle.word()));
        fields.extend(retries.limit.map(|limit| format!("retries: {limit}")));
        fields.extend(retries.delay.map(|delay| format!("retry_delay: {}", time(delay))));
    }
    if let Some(schedule) = &spec.schedule {
        fields.push(format!("schedule: \"{}\"", schedule.cron));
    }
    if spec.priority != 0 {
        fields.push(format!("priority: {}", spec.priority));
    }
    if spec.interruption_penalty != 0 {
        fields.push(format!("interruption_penalty: {}", spec.interruption_penalty));
    }
    match spec.reschedule {
        Reschedule::Default => {}
        Reschedule::Never => fields.push("reschedule: never".to_owned()),
        Reschedule::Above(gain) => fields.push(format!("reschedule: {gain}")),
    }
    fields.extend(update(&spec.update));
    format!("{{{}}}", fields.join(", "))
}

fn network(how: &NetworkAttachment) -> String {
    let mut fields = Vec::new();
    if let Some(name) = &how.name {
        fields.push(format!("name: {}", quoted(name)));
    }
    for (word, is_so) in [("external", how.external), ("internal", how.internal)] {
        fields.extend(is_so.then(|| format!("{word}: true")));
    }
    if !how.aliases.is_empty() {
        fields.push(format!("aliases: {}", list(&how.aliases)));
    }
    format!("{{{}}}", fields.join(", "))
}

/// As a compose file has it.
fn condition(until: Dependency) -> &'static str {
    match until {
        Dependency::Started => "service_started",
        Dependency::Healthy => "service_healthy",
        Dependency::Completed => "service_completed_successfully",
    }
}

/// What differs from the default.
fn update(update: &UpdatePolicy) -> Option<String> {
    let usual = UpdatePolicy::default();
    let mut fields = Vec::new();
    if update.parallelism != usual.parallelism {
        let all = update.parallelism == u32::MAX;
        fields.push(format!("parallelism: {}", if all { 0 } else { update.parallelism }));
    }
    if update.delay != usual.delay {
        fields.push(format!("delay: {}", time(update.delay)));
    }
    if update.order != usual.order {
        fields.push(match update.order {
            UpdateOrder::StartFirst => "order: start-first".to_owned(),
            UpdateOrder::StopFirst => "order: stop-first".to_owned(),
        });
    }
    if update.on_failure != usual.on_failure {
        fields.push(match update.on_failure {
            OnFailure::Rollback => "failure_action: rollback".to_owned(),
            OnFailure::Pause => "failure_action: pause".to_owned(),
            OnFailure::Continue => "failure_action: continue".to_owned(),
        });
    }
    if update.monitor != usual.monitor {
        fields.push(format!("monitor: {}", time(update.monitor)));
    }
    if update.max_failure_millionths != usual.max_failure_millionths {
        let millionths = update.max_failure_millionths;
        let (whole, part) = (millionths / 1_000_000, millionths % 1_000_000);
        fields.push(format!("max_failure_ratio: {whole}.{part:06}"));
    }
    (!fields.is_empty()).then(|| format!("update: {{{}}}", fields.join(", ")))
}

/// As they are written in files.
fn words(capabilities: &BTreeSet<Capability>) -> String {
    capabilities.iter().map(|it| it.word()).collect::<Vec<_>>().join(", ")
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| quoted(&item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

fn event(action: &Action) -> String {
    match action {
        Action::Crash(node) => format!("crash: {node}"),
        Action::Cut(node) => format!("cut: {node}"),
        Action::Wipe(node) => format!("wipe: {node}"),
        Action::Return(node) => format!("return: {node}"),
        Action::Kill(node) => format!("kill: {node}"),
        Action::Sicken(node) => format!("unhealthy: {node}"),
        Action::StopEngine(node) => format!("stop_engine: {node}"),
        Action::LoseEngine(node) => format!("lose_engine: {node}"),
        Action::StartEngine(node) => format!("start_engine: {node}"),
        Action::Fail(service) => format!("fail: {service}"),
        Action::Poison(service) => format!("poison: {service}"),
        Action::Cure(service) => format!("cure: {service}"),
        Action::NewLeader => "new_leader: true".to_owned(),
        Action::Skew(off) => {
            let sign = if *off < 0 { "-" } else { "" };
            format!("clock: {sign}{}", time(Millis(off.unsigned_abs())))
        }
        Action::Break(image) => format!("break: {}", quoted(image)),
        Action::Mend(image) => format!("mend: {}", quoted(image)),
        Action::Withdraw(image) => format!("withdraw: {}", quoted(image)),
        Action::Restore(image) => format!("restore: {}", quoted(image)),
        Action::ExhaustSubnets(node) => format!("exhaust_subnets: {node}"),
        Action::FreeSubnets(node) => format!("free_subnets: {node}"),
        Action::Join(id, facts) => format!("join: {}", node(id, facts)),
        Action::Describe(id, facts) => format!("change_node: {}", node(id, facts)),
        Action::Cordon(node) => format!("cordon: {node}"),
        Action::Uncordon(node) => format!("uncordon: {node}"),
        Action::Drain { node, timeout, force } => {
            format!("drain: {{node: {node}, timeout: {}, force: {force}}}", time(*timeout))
        }
        Action::Remove(node) => format!("remove: {node}"),
        Action::Recover { node, lost } => {
            format!("recover: {{node: {node}, lost: {}}}", list(lost))
        }
        Action::Deploy(name, all) => {
            format!("deploy: {{name: {name}, services: {}}}", services(all))
        }
        Action::Undeploy { deployment, volumes } => {
            format!("undeploy: {{name: {deployment}, volumes: {volumes}}}")
        }
        Action::MoveVolume(name, node) => format!("move_volume: {{name: {name}, node: {node}}}"),
        Action::RemoveVolume(name, node) => {
            format!("remove_volume: {{name: {name}, node: {node}}}")
        }
        Action::BackUpVolume(name, node) => {
            format!("back_up_volume: {{name: {name}, node: {node}}}")
        }
        Action::RestoreVolume(name, node) => {
            format!("restore_volume: {{name: {name}, node: {node}}}")
        }
        Action::Scale(service, replicas) => {
            format!("scale: {{service: {service}, replicas: {replicas}}}")
        }
        Action::Rollback(name, Some(to)) => format!("rollback: {{name: {name}, to: {to}}}"),
        Action::Rollback(name, None) => format!("rollback: {name}"),
        Action::Restart(name, None) => format!("restart: {name}"),
        Action::Restart(name, Some(service)) => format!("restart: {name}/{service}"),
        Action::Rollout(name, RolloutRequest::Pause) => format!("pause: {name}"),
        Action::Rollout(name, RolloutRequest::Resume) => format!("resume: {name}"),
        Action::Rollout(name, RolloutRequest::Abort) => format!("abort: {name}"),
        Action::CreateJoinToken => "join_token: true".to_owned(),
        Action::RevokeJoinToken => "revoke_join_token: true".to_owned(),
        Action::AddOperator(name) => format!("add_operator: {name}"),
        Action::RevokeOperator(name) => format!("revoke_operator: {name}"),
        Action::Exec(node) => format!("exec: {node}"),
        Action::Backup => "backup: true".to_owned(),
        Action::RotateAuthority => "rotate_authority: true".to_owned(),
        Action::RotateWithoutDown => "rotate_without_down: true".to_owned(),
        Action::AbortRotation => "abort_rotation: true".to_owned(),
        Action::JoinFleet => "join_fleet: true".to_owned(),
        Action::LeaveFleet => "leave_fleet: true".to_owned(),
        Action::MistakeForCoordinator => "mistake_for_coordinator: true".to_owned(),
        Action::RotateBackupKey => "rotate_backup_key: true".to_owned(),
        Action::Reschedule(settings) => rescheduling(*settings),
        Action::Optimize => "optimize: true".to_owned(),
        Action::Machines(action) => format!("machines: {}", action.word()),
        Action::Raise => "raise: true".to_owned(),
        Action::CreateSecret(name) => format!("create_secret: {name}"),
        Action::RotateSecret(name) => format!("rotate_secret: {name}"),
        Action::RemoveSecret(name) => format!("remove_secret: {name}"),
        Action::Certify(answer) => format!("certify: {}", answer.word()),
        Action::LoginRegistry(registry) => format!("login_registry: {}", quoted(registry.as_str())),
        Action::LogoutRegistry(registry) => {
            format!("logout_registry: {}", quoted(registry.as_str()))
        }
    }
}

fn rescheduling(settings: RescheduleSettings) -> String {
    let paused = settings.is_paused;
    match settings.target {
        None => format!("rescheduling: {{paused: {paused}}}"),
        Some(target) => {
            let percent = target.millionths() / 10_000;
            format!("rescheduling: {{paused: {paused}, target: {percent}}}")
        }
    }
}
