//! The networks a service joins, its names in them, and its names for others.

use std::collections::BTreeMap;

use plimsoll_model::shape::NETWORK_MODES;
use plimsoll_model::spec::{ContainerSpec, NetworkAttachment};

use super::ServiceContext;
use crate::declared::Network;
use crate::diagnostic::{Finding, SourceSpan};
use crate::fields::{Section, did_you_mean};
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::{Mapping, Value, YamlEntry};

/// The network of services that name none.
const DEFAULT: &str = "default";

pub(super) fn fill(
    context: &mut ServiceContext<'_>,
    service: &Mapping,
    container: &mut ContainerSpec,
) {
    let mut keys = KeyReader::of(context.report, service);
    container.dns = keys.one_or_many("dns");
    container.dns_opt = keys.one_or_many("dns_opt");
    container.dns_search = keys.one_or_many("dns_search");
    container.extra_hosts = extra_hosts(&mut keys);
    container.network_mode = mode(&mut keys, "network_mode", &NETWORK_MODES);
    let container_name = keys.text("container_name");
    let (mode, networks) = (service.get("network_mode"), service.get("networks"));
    match (mode, networks) {
        (Some(mode), Some(networks)) => {
            let message = "a service has `network_mode` or `networks`, not both";
            let problem = Finding::new(mode.key_span, message);
            context.report.push(problem.also(networks.key_span, "this", "and this"));
        }
        (Some(_), None) => {}
        (None, Some(networks)) => container.networks = attachments(context, networks),
        (None, None) => {
            let declared = context.declared.networks.get(DEFAULT).cloned().unwrap_or_default();
            let attachment = attachment(declared);
            container.networks = [(DEFAULT.to_owned(), attachment)].into();
        }
    }
    if container.network_mode.is_none() {
        container.network_mode = predefined(container);
    }
    // Compose reaches a container by its name too. On networks of others that name is not this deployment's to give.
    if let Some(name) = container_name.filter(|name| !name.is_empty()) {
        for network in container.networks.values_mut().filter(|network| !network.external) {
            network.aliases.insert(name.clone());
        }
    }
}

/// Stacks name the network of the node, which every engine has, as an external one. It is a mode, and nothing beside it.
fn predefined(container: &mut ContainerSpec) -> Option<String> {
    let mut networks = container.networks.iter();
    let (Some((key, network)), None) = (networks.next(), networks.next()) else { return None };
    let name = network.name.clone().unwrap_or_else(|| key.clone());
    let is_predefined = network.external && matches!(name.as_str(), "host" | "none");
    is_predefined.then(|| {
        container.networks.clear();
        name
    })
}

/// A namespace that may be the container's own or the node's, never another container's: that one may run
/// elsewhere, or be replaced.
pub(super) fn mode(keys: &mut KeyReader<'_, '_>, key: &str, known: &[&str]) -> Option<String> {
    let entry = keys.get(key)?;
    let text = keys.text(key)?;
    if known.contains(&text.as_str()) {
        return Some(text);
    }
    let problem = if text.starts_with("service:") || text.starts_with("container:") {
        let message = format!("`{key}: {text}` is not supported");
        Finding::new(entry.node.span, message)
            .hint("replicas are placed one by one: put both programs in one image, or connect over a network")
    } else {
        let message = format!("`{key}` must be {}, found {text:?}", read::or(known));
        Finding::new(entry.node.span, message)
    };
    keys.report.push(problem);
    None
}

fn attachment(network: Network) -> NetworkAttachment {
    NetworkAttachment {
        name: network.name,
        external: network.external,
        internal: network.internal,
        ..NetworkAttachment::default()
    }
}

fn attachments(
    context: &mut ServiceContext<'_>,
    entry: &YamlEntry,
) -> BTreeMap<String, NetworkAttachment> {
    let mut attachments = BTreeMap::new();
    if let Value::Mapping(mapping) = &entry.node.value {
        for network in mapping.entries() {
            let Some(mut attachment) = declared(context, &network.key, network.key_span) else {
                continue;
            };
            if !network.node.is_null() {
                let Some(body) = read::mapping(context.report, network) else { continue };
                let mut keys = KeyReader::checked(context.report, Section::NetworkAttachment, body);
                attachment.aliases = keys.texts("aliases").into_iter().collect();
                for (key, address) in [
                    ("ipv4_address", &mut attachment.ipv4_address),
                    ("ipv6_address", &mut attachment.ipv6_address),
                ] {
                    *address = own_address(&mut keys, key, attachment.external);
                }
            }
            attachments.insert(network.key.clone(), attachment);
        }
        return attachments;
    }
    for name in read::texts(context.report, entry) {
        if let Some(attachment) = declared(context, &name.text, name.span) {
            attachments.insert(name.text, attachment);
        }
    }
    attachments
}

/// An address on a network that somebody made on the nodes. On those that plimsoll makes it chooses the addresses, and another
/// one there would keep the container from starting.
fn own_address(keys: &mut KeyReader<'_, '_>, key: &str, is_external: bool) -> Option<String> {
    let address = keys.text(key)?;
    if is_external {
        return Some(address);
    }
    let span = keys.get(key)?.key_span;
    let message = format!("`{key}` is ignored: plimsoll chooses the addresses of its networks");
    let problem = Finding::new(span, message);
    keys.report.push_warning(problem.hint("reach the service by its name, or by an alias"));
    None
}

fn declared(
    context: &mut ServiceContext<'_>,
    name: &str,
    span: SourceSpan,
) -> Option<NetworkAttachment> {
    match context.declared.networks.get(name) {
        Some(network) => Some(attachment(network.clone())),
        None if name == DEFAULT => Some(NetworkAttachment::default()),
        None => {
            let known = context.declared.networks.keys().map(String::as_str);
            let add = format!("add `{name}:` under the top-level `networks:`");
            let hint = did_you_mean(name, known, add);
            let problem = Finding::new(span, format!("network \"{name}\" is not declared"));
            context.report.push(problem.hint(hint));
            None
        }
    }
}

/// `host: address`, `host=address`, or `host:address` in a list; an address may be a list of its own.
fn extra_hosts(keys: &mut KeyReader<'_, '_>) -> BTreeMap<String, Vec<String>> {
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let Some(entry) = keys.get("extra_hosts") else { return hosts };
    if let Value::Mapping(mapping) = &entry.node.value {
        for host in mapping.entries() {
            let addresses = read::plain(read::one_or_many(keys.report, host));
            hosts.entry(host.key.clone()).or_default().extend(addresses);
        }
        return hosts;
    }
    for text in read::texts(keys.report, entry) {
        let parts = text.text.split_once('=').or_else(|| text.text.split_once(':'));
        let Some((host, address)) = parts else {
            let message = format!("{:?} is not host=address", text.text);
            keys.report.error(text.span, message);
            continue;
        };
        let address = address.trim_start_matches('[').trim_end_matches(']').to_owned();
        hosts.entry(host.to_owned()).or_default().push(address);
    }
    hosts
}
