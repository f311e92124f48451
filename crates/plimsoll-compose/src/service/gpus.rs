//! GPUs: `gpus` of a service, and the devices it reserves in `deploy`.

use std::collections::BTreeMap;

use plimsoll_model::spec::{ContainerSpec, GpuRequest};

use crate::diagnostic::{Finding, Findings};
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::read;
use crate::yaml::{Mapping, YamlNode};

/// More than any machine holds.
const MAX_GPUS: i64 = 1_024;

pub(super) fn fill(
    report: &mut Findings,
    service: &Mapping,
    deploy: Option<&Mapping>,
    container: &mut ContainerSpec,
) {
    let mut requests = Vec::new();
    if let Some(entry) = service.get("gpus") {
        let is_all = entry.node.as_scalar().is_some_and(|scalar| scalar.text == "all");
        if is_all {
            requests.push(all());
        } else {
            for item in read::items(report, entry) {
                requests.extend(request(report, item, false));
            }
        }
    }
    let reservations = deploy.and_then(|deploy| {
        let resources = deploy.get("resources")?.node.as_mapping()?;
        resources.get("reservations")?.node.as_mapping()
    });
    if let Some(reservations) = reservations {
        for item in KeyReader::of(report, reservations).items("devices") {
            requests.extend(request(report, item, true));
        }
    }
    container.gpus = requests.iter().map(reserved).fold(0, u32::saturating_add);
    container.gpu_requests = requests;
}

fn all() -> GpuRequest {
    GpuRequest {
        driver: None,
        count: None,
        device_ids: Vec::new(),
        capabilities: ["gpu".to_owned()].into(),
        options: BTreeMap::new(),
    }
}

/// How many a node must have at the least: all of them are one or more, as the node has.
fn reserved(request: &GpuRequest) -> u32 {
    let named = u32::try_from(request.device_ids.len()).unwrap_or(u32::MAX);
    request.count.unwrap_or(named.max(1))
}

fn request(report: &mut Findings, node: &YamlNode, needs_capability: bool) -> Option<GpuRequest> {
    let mapping = read::mapping_of(report, "devices", node)?;
    let mut keys = KeyReader::checked(report, Section::Gpu, mapping);
    let mut request = all();
    request.driver = keys.text("driver");
    request.device_ids = keys.texts("device_ids");
    request.options = keys.pairs("options");
    let capabilities = keys.texts("capabilities");
    let is_gpu = capabilities.iter().any(|one| one == "gpu");
    if !is_gpu && (needs_capability || !capabilities.is_empty()) {
        let at = mapping.get("capabilities").map_or(node.span, |entry| entry.node.span);
        let problem = Finding::new(at, "only devices with the capability `gpu` can be reserved");
        report.push(problem.hint("write `capabilities: [gpu]`"));
        return None;
    }
    request.capabilities.extend(capabilities);
    let count = mapping.get("count");
    let counts_all = count.is_some_and(|entry| {
        entry.node.as_scalar().is_some_and(|scalar| matches!(scalar.text.as_str(), "all" | "-1"))
    });
    if let Some(entry) = count.filter(|_| !counts_all) {
        request.count = read::integer(report, entry, 1, MAX_GPUS);
    }
    if let (Some(count), false) = (count, request.device_ids.is_empty()) {
        report.error(count.key_span, "a device request has `count` or `device_ids`, not both");
    }
    Some(request)
}
