//! `x-plimsoll.routes`: which requests go to which service.

use plimsoll_model::ids::ServiceName;
use plimsoll_model::spec::{RouteSpec, Tls};

use crate::diagnostic::{Finding, Findings, SourceSpan};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::Mapping;

/// A route and where its service is named.
pub(crate) struct RouteEntry {
    pub(crate) spec: RouteSpec,
    pub(crate) span: SourceSpan,
}

pub(crate) fn read(report: &mut Findings, top: &Mapping) -> Vec<RouteEntry> {
    let mut top = KeyReader::of(report, top);
    let Some(mut extension) = top.section("x-plimsoll", Section::TopExtension) else {
        return Vec::new();
    };
    let mut routes: Vec<RouteEntry> = Vec::new();
    for item in extension.items("routes") {
        let Some(mapping) = read::mapping_of(extension.report, "routes", item) else { continue };
        let mut keys = KeyReader::checked(extension.report, Section::Route, mapping);
        let Some(spec) = route(&mut keys, item.span) else { continue };
        let span = mapping.get("service").map_or(item.span, |entry| entry.node.span);
        let same =
            |other: &&RouteEntry| other.spec.host == spec.host && other.spec.path == spec.path;
        if let Some(other) = routes.iter().find(same) {
            let host = spec.host.as_deref().unwrap_or("every host");
            let problem = Finding::new(span, format!("two routes for {host}, path {}", spec.path));
            keys.report.push(problem.also(other.span, "again here", "first here"));
        }
        routes.push(RouteEntry { spec, span });
    }
    routes
}

fn route(keys: &mut KeyReader<'_, '_>, span: SourceSpan) -> Option<RouteSpec> {
    let host = keys.text("host");
    if let (Some(host), Some(entry)) = (&host, keys.get("host")) {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*');
        if host.is_empty() || !host.chars().all(fits) {
            let problem = Finding::new(entry.node.span, format!("{host:?} is not a host name"));
            keys.report.push(problem.hint("write shop.example.org, without scheme, port or path"));
        }
    }
    let path = keys.text("path").unwrap_or_else(|| "/".to_owned());
    if let Some(entry) = keys.get("path").filter(|_| !path.starts_with('/')) {
        keys.report.error(entry.node.span, format!("`path` must begin with /, found {path:?}"));
    }
    let strip_path = keys.boolean("strip_path").unwrap_or_default();
    let words = [
        ("off", Tls::Off),
        ("internal", Tls::Internal),
        ("files", Tls::Files),
        ("auto", Tls::Auto),
    ];
    let tls = keys.word("tls", &words).unwrap_or_default();
    if let (None, true, Some(entry)) = (&host, tls != Tls::Off, keys.get("tls")) {
        let problem =
            Finding::new(entry.node.span, "a certificate is for a host, and none is named");
        keys.report.push(problem.hint("name one with `host`"));
    }
    let is_wildcard = host.as_deref().is_some_and(|host| host.starts_with("*."));
    if let (true, Tls::Auto, Some(entry)) = (is_wildcard, tls, keys.get("tls")) {
        let what = "`tls: auto` gets no certificate for a wildcard";
        let problem = Finding::new(entry.node.span, what);
        let hint =
            "an ACME authority proves single hosts over HTTP; name each, or use `tls: files`";
        keys.report.push(problem.hint(hint));
    }
    let (service, port) = (keys.parse::<ServiceName>("service"), keys.integer("port", 1, 65_535));
    for key in ["service", "port"] {
        if keys.get(key).is_none() {
            keys.report.error(span, format!("a route needs `{key}`"));
        }
    }
    Some(RouteSpec { host, path, strip_path, service: service?, port: port?, tls })
}
