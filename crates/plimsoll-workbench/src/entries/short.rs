//! A service in short form is the compose service it stands for: it is written out as one and read by the same
//! reader, so that the two can never differ in meaning.

use std::collections::BTreeMap;
use std::io;

use plimsoll_compose::{ComposeSource, Files, LoadOptions};
use plimsoll_model::spec::{Lifecycle, Preference};
use plimsoll_model::{DeploymentName, Placement, ServiceName, ServiceSpec, SpecHash};
use serde_json::{Map, Value, json};
use serde_saphyr::Spanned;

use super::deployment::{LifecycleEntry, NetworkEntry, ServiceEntry};
use super::values::{Parsed, PortText};
use crate::mistake::Mistake;

/// A service in short form names no files.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

pub(super) fn spec(
    deployment: &DeploymentName,
    name: &ServiceName,
    entry: &Spanned<ServiceEntry>,
) -> Result<ServiceSpec, Mistake> {
    let spec = read(deployment, name, entry, &entry.value.constraints)?;
    // A compose file has no word for preferences; what they look at is written as constraints are.
    let preferences = if entry.value.prefer.is_empty() {
        Vec::new()
    } else {
        let preferred = read(deployment, name, entry, &entry.value.prefer)?.placement.constraints;
        preferred.into_iter().map(|constraint| Preference { constraint, weight: 1 }).collect()
    };
    let placement = Placement { preferences, ..spec.placement };
    // The others of its deployment are not there to be found when one is read alone.
    let depends_on = entry.value.depends_on.iter().map(|(on, until)| (on.clone(), (*until).into()));
    let mut spec = ServiceSpec { placement, depends_on: depends_on.collect(), ..spec };
    spec.lifecycle = match (entry.value.lifecycle, spec.retries().unwrap_or_default()) {
        (None, _) => Lifecycle::Service,
        (Some(LifecycleEntry::Finite), retries) => Lifecycle::Finite(retries),
        (Some(LifecycleEntry::Job), retries) => Lifecycle::Job(retries),
    };
    if let Some(needs) = &entry.value.needs {
        spec.container.need_only(needs).map_err(|need| {
            let message = format!("service {name}: `needs` cannot say that it must {need}");
            Mistake::new(entry.referenced, message).hint("name a compose file with `compose:`")
        })?;
        spec.hash = SpecHash::of(&spec.container);
    }
    spec.hash = entry.value.spec.unwrap_or(spec.hash);
    Ok(spec)
}

fn read(
    deployment: &DeploymentName,
    name: &ServiceName,
    entry: &Spanned<ServiceEntry>,
    constraints: &[String],
) -> Result<ServiceSpec, Mistake> {
    let written = written_out(name, &entry.value, constraints);
    let source =
        ComposeSource { name: "service".to_owned(), text: written.to_string().into_bytes() };
    let options = LoadOptions { name: Some(deployment.to_string()), ..LoadOptions::default() };
    let loaded = plimsoll_compose::load(&[source], &options, &NoFiles);
    let mut services = match loaded {
        Ok(loaded) => loaded.deployment.services,
        Err(wrong) => {
            let first = wrong.list.into_iter().next();
            let message = first.as_ref().map_or("it cannot be read", |first| &first.message);
            let named = format!("service {name}: {message}");
            // Some messages name their service themselves.
            let message = if message.starts_with("service ") { message.to_owned() } else { named };
            let mistake = Mistake::new(entry.referenced, message);
            return Err(Mistake { hint: first.and_then(|first| first.hint), ..mistake });
        }
    };
    let spec = services.remove(name);
    spec.ok_or_else(|| Mistake::new(entry.referenced, "this is not a service"))
}

#[expect(clippy::too_many_lines, reason = "a line for each key")]
fn written_out(name: &ServiceName, entry: &ServiceEntry, constraints: &[String]) -> Value {
    let text = |text: &String| Value::from(text.replace('$', "$$"));
    let texts = |list: &[String]| list.iter().map(text).collect::<Vec<Value>>();

    let amounts = |cpus: &Option<String>, memory: &Option<String>| -> Map<String, Value> {
        let both = [("cpus", cpus), ("memory", memory)];
        let given = both.iter().filter_map(|(key, amount)| Some((*key, amount.as_ref()?)));
        given.map(|(key, amount)| (key.to_owned(), text(amount))).collect()
    };
    let (reserve, limits) = (&entry.reserve, &entry.limits);
    let limits = amounts(&limits.cpus, &limits.memory);
    let mut reservations = amounts(&reserve.cpus, &reserve.memory);
    if reserve.gpus > 0 || reserve.all_gpus {
        let count = if reserve.all_gpus { json!("all") } else { json!(reserve.gpus) };
        let device = json!({"capabilities": ["gpu"], "count": count});
        reservations.insert("devices".to_owned(), json!([device]));
    }
    let mut placement = json!({"constraints": texts(constraints)});
    if let Some(max) = entry.max_per_node {
        placement["max_replicas_per_node"] = max.into();
    }
    let resources = json!({"reservations": reservations, "limits": limits});
    let written = &entry.update;
    let words = [
        ("order", &written.order),
        ("delay", &written.delay),
        ("monitor", &written.monitor),
        ("failure_action", &written.failure_action),
        ("max_failure_ratio", &written.max_failure_ratio),
    ];
    let words = words.into_iter().filter_map(|(key, word)| Some((key, word.as_ref()?)));
    let mut update: Map<String, Value> =
        words.map(|(key, word)| (key.to_owned(), text(word))).collect();
    let parallelism = entry.update.parallelism;
    update.extend(parallelism.map(|count| ("parallelism".to_owned(), count.into())));
    let mut deploy =
        json!({"resources": resources, "placement": placement, "update_config": update});
    if entry.lifecycle.is_some() {
        let condition = if entry.retries == Some(0) { "none" } else { "on-failure" };
        let mut policy = json!({"condition": condition});
        let delay = entry.retry_delay.as_ref().map(|delay| ("delay", text(delay)));
        let limit = entry.retries.map(|limit| ("max_attempts", limit.into()));
        for (key, value) in delay.into_iter().chain(limit) {
            policy[key] = value;
        }
        deploy["restart_policy"] = policy;
    }
    if let Some(replicas) = entry.replicas {
        deploy["replicas"] = replicas.into();
    }
    let mut extension = json!({
        "priority": entry.priority,
        "interruption_penalty": entry.interruption_penalty,
    });
    if let Some(placement) = &entry.placement {
        extension["placement"] = text(placement);
    }
    if !entry.hosts.is_empty() {
        extension["hosts"] = texts(&entry.hosts).into();
    }

    if let Some(schedule) = &entry.schedule {
        extension["schedule"] = text(schedule);
    }

    if let Some(reschedule) = &entry.reschedule {
        extension["reschedule"] = text(reschedule);
    }

    let port = |Parsed(PortText(port)): &Parsed<PortText>, mode: &str| {
        let (number, protocol) = (port.number, port.protocol.to_string());
        json!({"target": number, "published": number, "mode": mode, "protocol": protocol})
    };
    let ports = entry.host_ports.iter().map(|it| port(it, "host"));
    let ports = ports.chain(entry.publish.iter().map(|it| port(it, "ingress")));
    let mount = |source: &String| {
        let kind = if source.starts_with('/') { "bind" } else { "volume" };
        let target = format!("/{}", source.trim_start_matches('/').replace('$', "$$"));
        json!({"type": kind, "source": text(source), "target": target})
    };
    let named = entry.volumes.iter().filter(|source| !source.starts_with('/'));
    let volumes: Map<String, Value> = named.map(|name| (name.clone(), json!({}))).collect();
    let image = entry.image.as_ref().map_or_else(|| Value::from(name.as_str()), text);
    let mut service = json!({
        "image": image,
        "deploy": deploy,
        "ports": ports.collect::<Vec<Value>>(),
        "volumes": entry.volumes.iter().map(mount).collect::<Vec<Value>>(),
        "secrets": texts(&entry.secrets),
        "x-plimsoll": extension,
    });
    if let Some(start_period) = &entry.start_period {
        service["healthcheck"] =
            json!({"test": ["CMD-SHELL", "true"], "start_period": text(start_period)});
    }
    let secrets = entry.secrets.iter();
    let secrets: Map<String, Value> =
        secrets.map(|name| (name.clone(), json!({"external": true}))).collect();
    let mut whole = json!({"volumes": volumes, "secrets": secrets});
    if !entry.networks.is_empty() {
        let joined = entry.networks.iter();
        let joined: Map<String, Value> = joined
            .map(|(key, how)| (key.clone(), json!({"aliases": texts(&how.aliases)})))
            .collect();
        service["networks"] = joined.into();
        whole["networks"] = networks(&entry.networks).into();
    }
    whole["services"] = json!({name.as_str(): service});
    whole
}

fn networks(entries: &BTreeMap<String, NetworkEntry>) -> Map<String, Value> {
    let network = |how: &NetworkEntry| {
        let mut network = Map::new();
        for (word, is_so) in [("external", how.external), ("internal", how.internal)] {
            network.extend(is_so.then(|| (word.to_owned(), true.into())));
        }
        let name = how.name.as_ref().map(|name| name.replace('$', "$$").into());
        network.extend(name.map(|name| ("name".to_owned(), name)));
        Value::from(network)
    };
    entries.iter().map(|(key, how)| (key.clone(), network(how))).collect()
}
