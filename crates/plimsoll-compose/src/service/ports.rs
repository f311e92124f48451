//! Published ports: `"8080:80"`, ranges, addresses, and the long form.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use plimsoll_model::spec::{ContainerSpec, Port, PortMode, Protocol, ProxyProtocol};

use super::{MAX_PORTS, ServiceContext};
use crate::diagnostic::{Finding, Findings, SourceSpan};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::{Mapping, Value, YamlNode};

/// A port and the entry that asks for it.
#[derive(Debug, Clone)]
pub(crate) struct PlacedPort {
    pub(crate) port: Port,
    pub(crate) span: SourceSpan,
}

/// An entry before its ranges are unrolled.
#[derive(Debug, PartialEq, Eq)]
struct PortEntry {
    host_ip: Option<String>,
    published: Option<String>,
    target: String,
    protocol: Option<String>,
    mode: PortMode,
    proxy_protocol: Option<ProxyProtocol>,
}

pub(super) fn fill(
    context: &mut ServiceContext<'_>,
    service: &Mapping,
    container: &mut ContainerSpec,
) -> Vec<PlacedPort> {
    let mut placed = Vec::new();
    for item in KeyReader::of(context.report, service).items("ports") {
        let ports = written(context.report, item).and_then(|written| {
            let problem = |message| context.report.push(hinted(item.span, message));
            unroll(&written).map_err(problem).ok()
        });
        let Some(ports) = ports else { continue };
        if let Some(why) = ports.first().and_then(unproxied) {
            let entry = extension(item).and_then(|keys| keys.get("proxy_protocol"));
            let span = entry.map_or(item.span, |entry| entry.node.span);
            context.report.push(Finding::new(span, why.0).hint(why.1));
            continue;
        }
        if let ([only], Some(range)) = (ports.as_slice(), published_range(item)) {
            let published = only.published.unwrap_or_default();
            let message = format!("of the ports {range}, {published} is used for every replica");
            context.report.warn(item.span, message);
        }
        if context.ports + ports.len() > MAX_PORTS {
            let message = format!("the file publishes more than {MAX_PORTS} ports");
            context.report.error(item.span, message);
            break;
        }
        context.ports += ports.len();
        let published = item.as_mapping().and_then(|mapping| mapping.get("published"));
        let span = published.map_or(item.span, |entry| entry.node.span);
        placed.extend(ports.into_iter().map(|port| PlacedPort { port, span }));
    }
    mixed(context.report, &placed);
    container.ports = placed.iter().map(|placed| placed.port.clone()).collect();
    container.ports.sort();
    container.ports.dedup();
    container.expose = KeyReader::of(context.report, service).texts("expose").into_iter().collect();
    placed
}

/// Why a port cannot have the `proxy_protocol` it asks for, and what to do.
fn unproxied(port: &Port) -> Option<(String, &'static str)> {
    port.proxy_protocol?;
    match (port.protocol, port.mode) {
        (Protocol::Tcp, PortMode::Routed) => None,
        (Protocol::Tcp, PortMode::Host) => Some((
            "`proxy_protocol` needs `mode: ingress`".to_owned(),
            "with `mode: host` clients reach the container directly, from their own addresses",
        )),
        (protocol, _) => Some((
            format!("`proxy_protocol` is for TCP, and this port is {protocol}"),
            "leave it out: datagrams are forwarded as they are",
        )),
    }
}

/// Two ports that lead to one of the container, one with `proxy_protocol` and one without.
fn mixed(report: &mut Findings, placed: &[PlacedPort]) {
    let is_carried =
        |it: &&PlacedPort| it.port.protocol == Protocol::Tcp && it.port.mode == PortMode::Routed;
    let carried: Vec<&PlacedPort> = placed.iter().filter(is_carried).collect();
    let mut reported = BTreeSet::new();
    for plain in carried.iter().filter(|it| it.port.proxy_protocol.is_none()) {
        let target = plain.port.target;
        let is_rival =
            |it: &&&PlacedPort| it.port.target == target && it.port.proxy_protocol.is_some();
        let Some(rival) = carried.iter().find(is_rival) else { continue };
        if reported.insert(target) {
            let message = format!("port {target} is published with and without `proxy_protocol`");
            let problem = Finding::new(plain.span, message).also(rival.span, "without", "with");
            report.push(problem.hint("a server expects it of every connection or of none"));
        }
    }
}

/// `x-plimsoll` of a port's long form.
fn extension(node: &YamlNode) -> Option<&Mapping> {
    node.as_mapping()?.get("x-plimsoll")?.node.as_mapping()
}

fn hinted(span: SourceSpan, message: String) -> Finding {
    Finding::new(span, message)
        .hint("write \"8080:80\", \"127.0.0.1:8080:80/udp\" or \"8000-8002:80-82\"")
}

/// A published range as it is written.
fn published_range(node: &YamlNode) -> Option<String> {
    let published = match &node.value {
        Value::Scalar(scalar) => split(&scalar.text).published,
        Value::Mapping(mapping) => Some(mapping.get("published")?.node.as_scalar()?.text.clone()),
        Value::Sequence(_) => None,
    };
    published.filter(|published| published.contains('-'))
}

/// What makes two entries of two files the same port.
pub(crate) fn identity(node: &YamlNode) -> Option<String> {
    let written = match &node.value {
        Value::Scalar(scalar) => split(&scalar.text),
        Value::Mapping(mapping) => {
            let text = |key: &str| {
                let scalar = mapping.get(key).and_then(|entry| entry.node.as_scalar());
                scalar.map(|scalar| scalar.text.clone())
            };
            PortEntry {
                host_ip: text("host_ip"),
                published: text("published"),
                target: text("target")?,
                protocol: text("protocol"),
                mode: PortMode::Routed,
                proxy_protocol: None,
            }
        }
        Value::Sequence(_) => return None,
    };
    let PortEntry { host_ip, published, target, protocol, .. } = written;
    let protocol = protocol.unwrap_or_else(|| "tcp".to_owned());
    let (host_ip, published) = (host_ip.unwrap_or_default(), published.unwrap_or_default());
    Some(format!("{host_ip}|{published}|{target}|{protocol}"))
}

fn written(report: &mut Findings, node: &YamlNode) -> Option<PortEntry> {
    let Some(mapping) = node.as_mapping() else {
        return Some(split(&read::text_of(report, "ports", node)?));
    };
    let mut keys = KeyReader::checked(report, Section::Port, mapping);
    let words = [("ingress", PortMode::Routed), ("host", PortMode::Host)];
    let written = PortEntry {
        host_ip: keys.text("host_ip"),
        published: keys.text("published").filter(|published| !published.is_empty()),
        target: keys.text("target").unwrap_or_default(),
        protocol: keys.text("protocol"),
        mode: keys.word("mode", &words).unwrap_or(PortMode::Routed),
        proxy_protocol: proxy_protocol(&mut keys),
    };
    if mapping.get("target").is_none() {
        report.error(node.span, "an entry of `ports` needs `target`");
        return None;
    }
    Some(written)
}

fn proxy_protocol(port: &mut KeyReader<'_, '_>) -> Option<ProxyProtocol> {
    let mut keys = port.section("x-plimsoll", Section::PortExtension)?;
    keys.word("proxy_protocol", &[("v2", ProxyProtocol::V2)])
}

/// `[address:][published:]target[/protocol]`, cut from the end, since an IPv6 address has colons of its own.
fn split(text: &str) -> PortEntry {
    let (rest, protocol) = match text.rsplit_once('/') {
        Some((rest, protocol)) => (rest, Some(protocol.to_owned())),
        None => (text, None),
    };
    let (rest, target) = match rest.rsplit_once(':') {
        Some((rest, target)) => (Some(rest), target),
        None => (None, rest),
    };
    let (host_ip, published) = match rest {
        None => (None, None),
        Some(rest) => match rest.rsplit_once(':') {
            Some((ip, published)) => (Some(ip), Some(published)),
            None => (None, Some(rest)),
        },
    };
    let unbracketed = |ip: &str| {
        ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip).to_owned()
    };
    PortEntry {
        host_ip: host_ip.map(unbracketed),
        published: published.filter(|published| !published.is_empty()).map(str::to_owned),
        target: target.to_owned(),
        protocol,
        mode: PortMode::Routed,
        proxy_protocol: None,
    }
}

fn unroll(written: &PortEntry) -> Result<Vec<Port>, String> {
    let protocol = match written.protocol.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("tcp") => Protocol::Tcp,
        Some("udp") => Protocol::Udp,
        Some("sctp") => Protocol::Sctp,
        Some(other) => return Err(format!("{other:?} is not a protocol: use tcp, udp or sctp")),
    };
    let host_ip = match written.host_ip.as_deref() {
        None | Some("") => None,
        Some(ip) => {
            let parts = ip.split(':').count() + 2;
            let ip: IpAddr = ip.parse().map_err(|_| match parts {
                3 => format!("{ip:?} is not an IP address"),
                _ => format!(
                    "a port has at most three parts, address:published:target, and this has {parts}"
                ),
            })?;
            Some(ip.to_string())
        }
    };
    let port = |target: u16, published: Option<u16>| Port {
        target,
        published,
        host_ip: host_ip.clone(),
        protocol,
        mode: written.mode,
        proxy_protocol: written.proxy_protocol,
    };
    let targets = range(&written.target)?;
    let Some(published) = &written.published else {
        return Ok(targets.map(|target| port(target, None)).collect());
    };
    let published = range(published)?;
    if let (1, Some(first)) = (targets.len(), published.clone().next()) {
        // Docker takes whichever of the range is free. Here every replica is reached through one port.
        return Ok(targets.map(|target| port(target, Some(first))).collect());
    }
    if published.len() != targets.len() {
        return Err(format!(
            "{} published ports for {} container ports: give as many of one as of the other",
            published.len(),
            targets.len()
        ));
    }
    Ok(targets.zip(published).map(|(target, published)| port(target, Some(published))).collect())
}

fn range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let number = |text: &str| match text.trim().parse::<u16>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{text:?} is not a port: use a number from 1 to 65535")),
    };
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(format!("the range {from}-{to} is reversed"));
    }
    Ok(from..=to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(text: &str) -> Result<Vec<String>, String> {
        let ports = unroll(&split(text))?;
        let show = |port: Port| {
            let ip = port.host_ip.map(|ip| format!("{ip} ")).unwrap_or_default();
            let published = port.published.map_or("?".to_owned(), |port| port.to_string());
            format!("{ip}{published}>{}/{}", port.target, port.protocol)
        };
        Ok(ports.into_iter().map(show).collect())
    }

    #[test]
    fn short_forms_read_as_docker_reads_them() {
        for (text, ports) in [
            ("80", &["?>80/tcp"][..]),
            ("8080:80", &["8080>80/tcp"]),
            ("53:53/udp", &["53>53/udp"]),
            ("127.0.0.1:8080:80", &["127.0.0.1 8080>80/tcp"]),
            ("127.0.0.1::80", &["127.0.0.1 ?>80/tcp"]),
            ("[::1]:8080:80", &["::1 8080>80/tcp"]),
            ("::1:8080:80", &["::1 8080>80/tcp"]),
            ("8000-8001:80-81", &["8000>80/tcp", "8001>81/tcp"]),
            ("3000-3001", &["?>3000/tcp", "?>3001/tcp"]),
            ("8000-8002:80", &["8000>80/tcp"]),
            ("9:9/sctp", &["9>9/sctp"]),
        ] {
            assert_eq!(short(text).unwrap(), ports, "{text}");
        }
    }

    #[test]
    fn what_is_no_port_says_why() {
        for (text, error) in [
            ("http", "\"http\" is not a port: use a number from 1 to 65535"),
            ("0:80", "\"0\" is not a port: use a number from 1 to 65535"),
            ("70000:80", "\"70000\" is not a port: use a number from 1 to 65535"),
            ("-1:80", "\"\" is not a port: use a number from 1 to 65535"),
            ("9-8:9-8", "the range 9-8 is reversed"),
            ("80:80/icmp", "\"icmp\" is not a protocol: use tcp, udp or sctp"),
            ("local:80:80", "\"local\" is not an IP address"),
            (
                "8000-8002:80-81",
                "3 published ports for 2 container ports: give as many of one as of the other",
            ),
        ] {
            assert_eq!(short(text).unwrap_err(), error, "{text}");
        }
    }
}
