//! A service in short form is the compose service it stands for: it is written out as one and read by the same
//! reader, so that the two can never differ in meaning.

use std::io;

use plimsoll_compose::{Files, Options, Source};
use plimsoll_model::{DeploymentName, ServiceName, ServiceSpec};
use serde_json::{Map, Value, json};
use serde_saphyr::Spanned;

use super::deployment::ServiceEntry;
use crate::snippet::Mistake;

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
    let written = written_out(name, &entry.value);
    let source = Source { name: "service".to_owned(), text: written.to_string().into_bytes() };
    let options = Options { name: Some(deployment.to_string()), ..Options::default() };
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
    services.remove(name).ok_or_else(|| Mistake::new(entry.referenced, "this is not a service"))
}

fn written_out(name: &ServiceName, entry: &ServiceEntry) -> Value {
    let text = |text: &String| Value::from(text.replace('$', "$$"));
    let texts = |list: &Vec<String>| list.iter().map(text).collect::<Vec<Value>>();

    let mut reservations = Map::new();
    let reserve = &entry.reserve;
    for (key, amount) in [("cpus", &reserve.cpus), ("memory", &reserve.memory)] {
        reservations.extend(amount.as_ref().map(|amount| (key.to_owned(), text(amount))));
    }
    if reserve.gpus > 0 {
        let device = json!({"capabilities": ["gpu"], "count": reserve.gpus});
        reservations.insert("devices".to_owned(), json!([device]));
    }
    let mut placement = json!({"constraints": texts(&entry.constraints)});
    if let Some(max) = entry.max_per_node {
        placement["max_replicas_per_node"] = max.into();
    }
    let resources = json!({"reservations": reservations});
    let mut deploy = json!({"resources": resources, "placement": placement});
    if let Some(replicas) = entry.replicas {
        deploy["replicas"] = replicas.into();
    }
    let mut extension = json!({"priority": entry.priority});
    if let Some(placement) = &entry.placement {
        extension["placement"] = text(placement);
    }
    if !entry.hosts.is_empty() {
        extension["hosts"] = texts(&entry.hosts).into();
    }

    let port = |port: &u16| json!({"target": port, "published": port, "mode": "host"});
    let mount = |source: &String| {
        let kind = if source.starts_with('/') { "bind" } else { "volume" };
        let target = format!("/{}", source.trim_start_matches('/').replace('$', "$$"));
        json!({"type": kind, "source": text(source), "target": target})
    };
    let named = entry.volumes.iter().filter(|source| !source.starts_with('/'));
    let volumes: Map<String, Value> = named.map(|name| (name.clone(), json!({}))).collect();
    let image = entry.image.as_ref().map_or_else(|| Value::from(name.as_str()), text);
    let service = json!({
        "image": image,
        "deploy": deploy,
        "ports": entry.host_ports.iter().map(port).collect::<Vec<Value>>(),
        "volumes": entry.volumes.iter().map(mount).collect::<Vec<Value>>(),
        "x-plimsoll": extension,
    });
    json!({"services": {name.as_str(): service}, "volumes": volumes})
}
