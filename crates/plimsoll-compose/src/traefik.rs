//! Routes as labels say them to Traefik, read as the routes they mean here. What has no equal is named, never guessed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_model::ids::ServiceName;
use plimsoll_model::spec::{DeploymentSpec, RouteSpec, ServiceSpec, Tls};

mod rule;

use rule::Matched;

/// What the labels of a deployment mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelRoutes {
    pub routes: Vec<RouteSpec>,
    /// What could not be read, a sentence each.
    pub unread: Vec<String>,
}

/// The routes that the labels of all services mean.
pub fn routes_from_labels(deployment: &DeploymentSpec) -> LabelRoutes {
    let mut found = LabelRoutes::default();
    for (name, spec) in &deployment.services {
        let labels = Labels::of(spec);
        if labels.is_off() {
            continue;
        }
        for router in labels.routers() {
            labels.read(name, spec, &router, &mut found);
        }
    }
    found
}

/// Whether labels of the service name a route.
pub(crate) fn has_routes(spec: &ServiceSpec) -> bool {
    let labels = Labels::of(spec);
    !labels.is_off() && !labels.routers().is_empty()
}

impl LabelRoutes {
    /// As they stand in a compose file.
    pub fn yaml(&self) -> String {
        let mut text = String::from("x-plimsoll:\n  routes:\n");
        for route in &self.routes {
            let mut fields: Vec<String> = Vec::new();
            fields.extend(route.host.as_ref().map(|host| format!("host: {host}")));
            if route.path != "/" {
                fields.push(format!("path: {}", route.path));
            }
            if route.strip_path {
                fields.push("strip_path: true".to_owned());
            }
            fields.push(format!("service: {}", route.service));
            fields.push(format!("port: {}", route.port));
            if route.tls == Tls::Auto {
                fields.push("tls: auto".to_owned());
            }
            for (index, field) in fields.iter().enumerate() {
                let lead = if index == 0 { "    - " } else { "      " };
                let _ = writeln!(text, "{lead}{field}");
            }
        }
        text
    }

    /// Adds a route. Traefik has a router for HTTP and another for HTTPS; here one route is both.
    fn add(&mut self, route: RouteSpec) {
        let same = |other: &&mut RouteSpec| other.host == route.host && other.path == route.path;
        match self.routes.iter_mut().find(same) {
            Some(known) if known.tls == Tls::Off => *known = route,
            Some(_) => {}
            None => self.routes.push(route),
        }
    }
}

/// The labels of a service and of its containers; Traefik reads either.
struct Labels(BTreeMap<String, String>);

impl Labels {
    fn of(spec: &ServiceSpec) -> Self {
        let labels = spec.container.labels.iter().chain(&spec.labels);
        let ours = labels.filter(|(key, _)| key.to_ascii_lowercase().starts_with("traefik."));
        Self(ours.map(|(key, value)| (key.to_ascii_lowercase(), value.clone())).collect())
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn is_off(&self) -> bool {
        self.get("traefik.enable").is_some_and(|value| value.eq_ignore_ascii_case("false"))
    }

    /// The names of its HTTP routers.
    fn routers(&self) -> Vec<String> {
        let rules = self.0.keys().filter_map(|key| {
            key.strip_prefix("traefik.http.routers.")?.strip_suffix(".rule").map(str::to_owned)
        });
        rules.collect()
    }

    fn read(&self, name: &ServiceName, spec: &ServiceSpec, router: &str, found: &mut LabelRoutes) {
        let of_router = |key: &str| self.get(&format!("traefik.http.routers.{router}.{key}"));
        let rule = of_router("rule").unwrap_or_default();
        let matched = match rule::read(rule) {
            Ok(matched) => matched,
            Err(why) => {
                found.unread.push(format!("{name}: router {router}: {why}, in {rule}"));
                return;
            }
        };
        let Some(port) = self.port(spec, of_router("service")) else {
            let label = "traefik.http.services.<name>.loadbalancer.server.port";
            found.unread.push(format!("{name}: router {router}: no port is named; set {label}"));
            return;
        };
        let entry_points = of_router("entrypoints").unwrap_or_default();
        let is_secure =
            entry_points.split(',').any(|it| it.trim().ends_with("secure") || it.trim() == "https");
        let is_tls = of_router("tls").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || of_router("tls.certresolver").is_some()
            || is_secure;
        for Matched { host, path } in matched {
            let path = path.unwrap_or_else(|| "/".to_owned());
            let strip_path = path != "/" && self.strips(of_router("middlewares"), &path);
            let is_single = host.as_deref().is_some_and(|host| !host.starts_with("*."));
            let tls = if is_tls && is_single { Tls::Auto } else { Tls::Off };
            found.add(RouteSpec { host, path, strip_path, service: name.clone(), port, tls });
        }
    }

    /// The port of the router's service, and else the only one there is.
    fn port(&self, spec: &ServiceSpec, service: Option<&str>) -> Option<u16> {
        let ending = ".loadbalancer.server.port";
        let named = service.and_then(|service| {
            let service = service.split('@').next()?.to_ascii_lowercase();
            self.get(&format!("traefik.http.services.{service}{ending}"))
        });
        let mut ports = self.0.iter().filter(|(key, _)| key.ends_with(ending));
        let first = ports.next().map(|(_, port)| port.as_str());
        let only = first.filter(|first| ports.all(|(_, port)| port == first));
        let labelled = named.or(only).and_then(|port| port.trim().parse().ok());
        labelled.or_else(|| {
            let exposed = spec.container.expose.iter().filter_map(|port| port.parse().ok());
            let targets = spec.container.ports.iter().map(|port| port.target);
            let mut all: Vec<u16> = exposed.chain(targets).collect();
            all.sort_unstable();
            all.dedup();
            match all.as_slice() {
                [port] => Some(*port),
                _ => None,
            }
        })
    }

    fn strips(&self, middlewares: Option<&str>, path: &str) -> bool {
        let names = middlewares.unwrap_or_default().split(',');
        let names = names.filter_map(|name| name.trim().split('@').next());
        names.map(str::to_ascii_lowercase).any(|name| {
            let key = format!("traefik.http.middlewares.{name}.stripprefix.prefixes");
            let prefixes = self.get(&key).unwrap_or_default();
            prefixes.split(',').any(|prefix| prefix.trim().trim_end_matches('/') == path)
        })
    }
}

#[cfg(test)]
mod tests;
