//! Which services start first: `depends_on`, and `links`, which may also give another name.

use plimsoll_model::spec::Dependency;

use crate::diagnostic::{Findings, SourceSpan};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::{Mapping, Value};

/// One service that another one waits for.
#[derive(Debug, Clone)]
pub(crate) struct DependencyEdge {
    pub(crate) on: String,
    pub(crate) span: SourceSpan,
    pub(crate) condition: Dependency,
    pub(crate) is_required: bool,
    /// The name that `links` gives it.
    pub(crate) alias: Option<String>,
}

pub(super) fn read(report: &mut Findings, service: &Mapping) -> Vec<DependencyEdge> {
    let mut edges = Vec::new();
    if let Some(entry) = service.get("depends_on") {
        if let Value::Mapping(mapping) = &entry.node.value {
            edges.extend(mapping.entries().iter().filter_map(|entry| {
                let (on, span) = (entry.key.clone(), entry.key_span);
                if entry.node.is_null() {
                    return Some(started(on, span));
                }
                let body = read::mapping(report, entry)?;
                Some(long(report, body, on, span))
            }));
        } else {
            let names = read::texts(report, entry);
            edges.extend(names.into_iter().map(|name| started(name.text, name.span)));
        }
    }
    edges.extend(links(report, service));
    edges
}

fn started(on: String, span: SourceSpan) -> DependencyEdge {
    DependencyEdge { on, span, condition: Dependency::Started, is_required: true, alias: None }
}

fn long(report: &mut Findings, body: &Mapping, on: String, span: SourceSpan) -> DependencyEdge {
    let mut keys = KeyReader::checked(report, Section::DependsOn, body);
    let conditions = [
        ("service_started", Dependency::Started),
        ("service_healthy", Dependency::Healthy),
        ("service_completed_successfully", Dependency::Completed),
    ];
    let condition = keys.word("condition", &conditions).unwrap_or(Dependency::Started);
    let is_required = keys.boolean("required").unwrap_or(true);
    DependencyEdge { on, span, condition, is_required, alias: None }
}

fn links(report: &mut Findings, service: &Mapping) -> Vec<DependencyEdge> {
    let Some(entry) = service.get("links") else { return Vec::new() };
    let mut edges = Vec::new();
    for link in read::texts(report, entry) {
        let (on, alias) = link.text.split_once(':').unwrap_or((&link.text, &link.text));
        let alias = (on != alias).then(|| alias.to_owned());
        edges.push(DependencyEdge { alias, ..started(on.to_owned(), link.span) });
    }
    edges
}
