//! What only shows in the whole: dependencies that are missing or circular, ports that meet, routes that lead
//! nowhere.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::ids::ServiceName;
use plimsoll_model::spec::{
    Dependency, Lifecycle, Port, PortMode, Protocol, RouteSpec, ServiceSpec, SpecHash, awaited_jobs,
};

use crate::diagnostic::{Finding, Findings, SourceSpan, WarningKind};
use crate::fields::nearest;
use crate::routes::RouteEntry;
use crate::service::{DependencyEdge, Draft, Drafts};
use crate::traefik;

/// Checks the services together and gives each its dependencies.
pub(crate) fn whole(
    report: &mut Findings,
    mut drafts: Drafts,
    routes: Vec<RouteEntry>,
) -> (BTreeMap<ServiceName, ServiceSpec>, Vec<RouteSpec>) {
    dependencies(report, &mut drafts);
    link_aliases(report, &mut drafts);
    cycles(report, &drafts);
    ports(report, &drafts);
    for route in &routes {
        let name = &route.spec.service;
        let Some(draft) = drafts.enabled.get(name) else {
            missing(report, &drafts, "the route targets", name.as_str(), route.span);
            continue;
        };
        if let Some(mistake) = draft.spec.container.route_mistake(&route.spec) {
            let problem = Finding::new(route.span, mistake.to_string());
            report.push(
                problem.hint(
                    "routes pass addresses on in X-Forwarded-For: serve them at another port",
                ),
            );
        }
    }
    label_routes(report, &drafts, &routes);
    lifecycles(report, &mut drafts, &routes);
    let services = drafts.enabled.into_iter().map(|(name, draft)| (name, draft.spec)).collect();
    (services, routes.into_iter().map(|route| route.spec).collect())
}

/// What a route leads to serves, unless its mode says that it is a job; what is waited for to complete is a job in any case.
fn lifecycles(report: &mut Findings, drafts: &mut Drafts, routes: &[RouteEntry]) {
    for route in routes {
        let draft = drafts.enabled.get_mut(&route.spec.service);
        let Some(draft) = draft.filter(|draft| !draft.is_job_mode) else { continue };
        if let Lifecycle::Job(retries) = draft.spec.lifecycle {
            draft.spec.lifecycle = Lifecycle::Finite(retries);
        }
    }
    for name in awaited_jobs(drafts.enabled.values().map(|draft| &draft.spec)) {
        let Some(draft) = drafts.enabled.get_mut(&name) else { continue };
        draft.spec.become_job();
        if let Some(at) = draft.schedule {
            let message = format!(
                "other services wait for \"{name}\" to complete, and it runs on a schedule"
            );
            let hint = "await a job without a schedule: they would not start before its first run";
            report.push(Finding::new(at, message).hint(hint));
        }
    }
}

/// A file that leaves out all it has is a mistake: applied, it would take away whatever runs. Compose selects no service then.
pub(crate) fn anything(report: &mut Findings, drafts: &Drafts, span: SourceSpan) {
    if !(drafts.enabled.is_empty() && drafts.broken.is_empty()) {
        return;
    }
    let Some(profile) = drafts.disabled.values().flatten().next() else {
        report.error(span, "the file has no services");
        return;
    };
    let problem = Finding::new(span, "no active profile includes any service of the file");
    report.push(problem.hint(format!("activate one, such as `--profile {profile}`")));
}

/// Says what became of a service that is not there, unless its own mistakes were said already.
fn missing(report: &mut Findings, drafts: &Drafts, what: &str, name: &str, span: SourceSpan) {
    if drafts.broken.iter().any(|broken| broken == name) {
        return;
    }
    if let Some(profiles) = drafts.disabled.get(name) {
        let message = format!("{what} \"{name}\", which no active profile includes");
        let profile = profiles.first().map_or("", String::as_str);
        let hint = format!("activate it with `--profile {profile}`");
        report.push(Finding::new(span, message).hint(hint));
        return;
    }
    let message = format!("{what} \"{name}\", and there is no such service");
    if !report.wants(span, &message) {
        return;
    }
    let problem = Finding::new(span, message);
    let known = drafts.enabled.keys().map(ServiceName::as_str);
    report.push(match nearest(name, known) {
        Some(key) => problem.hint(format!("did you mean `{key}`?")),
        None => problem,
    });
}

fn dependencies(report: &mut Findings, drafts: &mut Drafts) {
    let names: Vec<ServiceName> = drafts.enabled.keys().cloned().collect();
    for name in names {
        let edges = drafts.enabled[&name].depends_on.clone();
        let mut depends_on: BTreeMap<ServiceName, Dependency> = BTreeMap::new();
        for edge in edges {
            match drafts.enabled.get_key_value(edge.on.as_str()) {
                Some((on, _)) => {
                    // `links` may name what `depends_on` waits for more patiently.
                    depends_on.entry(on.clone()).or_insert(edge.condition);
                }
                None if !edge.is_required => {}
                None => {
                    let what = format!("service \"{name}\" depends on");
                    missing(report, drafts, &what, &edge.on, edge.span);
                }
            }
        }
        let draft = drafts.enabled.get_mut(&name).expect("the name was taken from the map");
        draft.spec.depends_on = depends_on;
    }
}

/// Labels that name routes to Traefik, of services that no route of the file leads to.
fn label_routes(report: &mut Findings, drafts: &Drafts, routes: &[RouteEntry]) {
    for (name, draft) in &drafts.enabled {
        let has_route = routes.iter().any(|route| route.spec.service == *name);
        if !has_route && traefik::has_routes(&draft.spec) {
            let kind = WarningKind::TraefikLabels;
            report.push_warning(Finding::of_kind(draft.span, kind, name.as_str()));
        }
    }
}

/// Gives a service the names that others link it by, on the networks that both are in.
fn link_aliases(report: &mut Findings, drafts: &mut Drafts) {
    let linked = drafts.enabled.iter().flat_map(|(name, draft)| {
        let edges = draft.depends_on.iter();
        edges.filter_map(|edge| Some((name.clone(), edge.clone(), edge.alias.clone()?)))
    });
    for (name, edge, alias) in linked.collect::<Vec<_>>() {
        let own: BTreeSet<String> =
            drafts.enabled[&name].spec.container.networks.keys().cloned().collect();
        let is_there =
            |draft: &Draft| draft.spec.container.networks.keys().any(|it| own.contains(it));
        let holder = drafts.enabled.iter().find(|(other, draft)| {
            let networks = draft.spec.container.networks.iter();
            let mut called = networks.filter(|(key, _)| own.contains(*key));
            let is_called = called.any(|(_, how)| how.aliases.contains(&alias));
            other.as_str() != edge.on && ((other.as_str() == alias && is_there(draft)) || is_called)
        });
        if let Some((holder, _)) = holder {
            let (on, message) =
                (&edge.on, format!("`links` calls {} by a name that is taken", edge.on));
            let hint = format!("{alias} is {holder} here: use the name {on}, or another alias");
            report.push(Finding::new(edge.span, message).hint(hint));
            continue;
        }
        // One that is missing was said to be.
        let Some(draft) = drafts.enabled.get_mut(edge.on.as_str()) else { continue };
        if !is_there(draft) {
            let message =
                format!("`links` calls {} by the name {alias}, and they share no network", edge.on);
            let hint = format!("attach {name} and {} to one network", edge.on);
            report.push(Finding::new(edge.span, message).hint(hint));
            continue;
        }
        let container = &mut draft.spec.container;
        let shared = container.networks.iter_mut().filter(|(key, _)| own.contains(*key));
        for (_, how) in shared {
            how.aliases.insert(alias.clone());
        }
        draft.spec.hash = SpecHash::of(container);
    }
}

/// Names each circle once, whole, at the edge that closes it.
fn cycles(report: &mut Findings, drafts: &Drafts) {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in drafts.enabled.keys() {
        // The path from `start`, each step with the edges it has yet to try. No recursion: a file may chain
        // more services than a stack has room for.
        let mut path: Vec<(&str, std::slice::Iter<'_, DependencyEdge>)> = Vec::new();
        let mut on_path: BTreeSet<&str> = BTreeSet::new();
        let edges = |name: &str| drafts.enabled.get(name).map(|draft| draft.depends_on.iter());
        if done.contains(start.as_str()) {
            continue;
        }
        path.extend(edges(start.as_str()).map(|edges| (start.as_str(), edges)));
        on_path.insert(start.as_str());
        while let Some((name, rest)) = path.last_mut() {
            let Some(edge) = rest.next() else {
                done.insert(name);
                on_path.remove(*name);
                path.pop();
                continue;
            };
            if on_path.contains(edge.on.as_str()) {
                let names = path.iter().map(|(name, _)| *name);
                let circle = names.skip_while(|name| *name != edge.on).chain([edge.on.as_str()]);
                let circle = circle.collect::<Vec<_>>().join(" → ");
                report.error(edge.span, format!("dependency cycle: {circle}"));
            } else if !done.contains(edge.on.as_str())
                && let Some(next) = edges(&edge.on)
            {
                on_path.insert(&edge.on);
                path.push((&edge.on, next));
            }
        }
    }
}

/// A port that someone holds already.
struct HeldPort<'d> {
    service: &'d ServiceName,
    port: &'d Port,
    span: SourceSpan,
}

fn ports(report: &mut Findings, drafts: &Drafts) {
    let mut held: BTreeMap<(u16, Protocol), Vec<HeldPort<'_>>> = BTreeMap::new();
    let mut reported: BTreeSet<(SourceSpan, SourceSpan)> = BTreeSet::new();
    for (service, draft) in &drafts.enabled {
        for placed in &draft.ports {
            let Some(published) = placed.port.published else { continue };
            let holders = held.entry((published, placed.port.protocol)).or_default();
            let holder = holders.iter().find(|holder| meet(holder, service, &placed.port));
            if let Some(holder) = holder {
                // Two ranges meet in many ports; one of them is enough to say it.
                if reported.insert((holder.span, placed.span)) {
                    let message = format!(
                        "port {published}/{} is published twice, by \"{}\" and \"{service}\"",
                        placed.port.protocol, holder.service
                    );
                    let problem = Finding::new(placed.span, message);
                    report.push(problem.also(holder.span, "again here", "first here"));
                }
                continue;
            }
            holders.push(HeldPort { service, port: &placed.port, span: placed.span });
        }
    }
}

/// Whether two ports of one number cannot both be had. Host ports of two services can: on two nodes.
fn meet(holder: &HeldPort<'_>, service: &ServiceName, port: &Port) -> bool {
    let both_host = holder.port.mode == PortMode::Host && port.mode == PortMode::Host;
    if both_host && holder.service != service {
        return false;
    }
    match (&holder.port.host_ip, &port.host_ip) {
        (Some(one), Some(other)) => {
            one == other
                || (is_any(one) && is_v4(one) == is_v4(other))
                || (is_any(other) && is_v4(one) == is_v4(other))
        }
        _ => true,
    }
}

fn is_any(ip: &str) -> bool {
    matches!(ip, "0.0.0.0" | "::")
}

fn is_v4(ip: &str) -> bool {
    ip.contains('.')
}
