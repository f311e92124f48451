//! Specs as they may be shown: without what might be a secret.

use plimsoll_model::ServiceSpec;
use plimsoll_model::spec::FileContent;
use plimsoll_model::state::{Deployment, RevisionRecord};
use plimsoll_model::units::Revision;
use serde_json::Value;

use plimsoll_api::view::{RevisionSpecs, Time};

/// A spec as JSON, with `null` for every value of its environment, every content of its configs and secrets, and every
/// option of a driver. What the cell keeps is shown by its name.
pub fn bare(spec: &ServiceSpec) -> Value {
    let mut container = spec.container.clone();
    // Taken out before they are written: as JSON a megabyte of content would take four.
    for file in container.configs.iter_mut().chain(&mut container.secrets) {
        file.content = FileContent::External(match &file.content {
            FileContent::Inline(_) => String::new(),
            FileContent::External(name) => name.clone(),
            FileContent::Kept { name, .. } => name.to_string(),
        });
    }
    let spec = ServiceSpec { container, ..spec.clone() };
    let mut json = serde_json::to_value(spec).expect("a spec has string keys only");
    for map in ["/container/environment", "/container/logging/options"] {
        json.pointer_mut(map).map(hide);
    }
    if let Some(Value::Object(volumes)) = json.pointer_mut("/container/volumes") {
        for volume in volumes.values_mut() {
            volume.get_mut("driver_opts").map(hide);
        }
    }
    for list in ["/container/configs", "/container/secrets"] {
        let Some(Value::Array(files)) = json.pointer_mut(list) else { continue };
        for file in files.iter_mut().filter_map(Value::as_object_mut) {
            let kept =
                file.get("content").and_then(|it| it.get("external")).and_then(Value::as_str);
            if kept.is_none_or(str::is_empty) {
                file.insert("content".to_owned(), Value::Null);
            }
        }
    }
    json
}

fn hide(values: &mut Value) {
    if let Value::Object(values) = values {
        values.values_mut().for_each(|value| *value = Value::Null);
    }
}

/// What a revision asked for.
pub fn revision_specs(
    deployment: &Deployment,
    revision: Revision,
    record: &RevisionRecord,
) -> RevisionSpecs {
    let services = record.services.iter();
    RevisionSpecs {
        revision: revision.0.into(),
        at: Time(record.at),
        by: record.by.identity.to_string(),
        is_current: revision == deployment.revision,
        services: services.map(|(name, spec)| (name.to_string(), bare(spec))).collect(),
        routes: record.routes.clone(),
    }
}
