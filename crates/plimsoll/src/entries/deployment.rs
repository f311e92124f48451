//! A deployment as it is written: a compose file, or its services in short form.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use plimsoll_model::{DeploymentName, ServiceName, ServiceSpec};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::short;
use crate::input::{Place, beside};
use crate::output::note;
use crate::project::{Project, tidy};
use crate::snippet::{Mistake, Page};
use crate::trouble::Trouble;

pub(crate) type Services = BTreeMap<ServiceName, Arc<ServiceSpec>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeploymentEntry {
    name: Option<Spanned<DeploymentName>>,
    /// A compose file, relative to the file this stands in.
    compose: Option<Spanned<String>>,
    #[serde(default)]
    profiles: Vec<String>,
    /// Or its services, in a short form.
    services: Option<BTreeMap<ServiceName, Spanned<ServiceEntry>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceEntry {
    pub(super) image: Option<String>,
    pub(super) replicas: Option<u32>,
    pub(super) placement: Option<String>,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) reserve: ReserveEntry,
    #[serde(default)]
    pub(super) constraints: Vec<String>,
    pub(super) max_per_node: Option<u32>,
    #[serde(default)]
    pub(super) host_ports: Vec<u16>,
    #[serde(default)]
    pub(super) volumes: Vec<String>,
    #[serde(default)]
    pub(super) priority: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReserveEntry {
    pub(super) cpus: Option<String>,
    pub(super) memory: Option<String>,
    #[serde(default)]
    pub(super) gpus: u32,
}

/// The deployment an entry on this page stands for, and its services.
pub(crate) fn load(
    entry: &Spanned<DeploymentEntry>,
    page: &Page,
    directory: &Path,
) -> Result<(DeploymentName, Services), Trouble> {
    let DeploymentEntry { name, compose, profiles, services } = &entry.value;
    let wrong = |message: &str, hint: &str| {
        Err(Mistake::new(entry.referenced, message).hint(hint).on(page))
    };
    match (compose, services) {
        (Some(file), None) => {
            let path = tidy(directory, &file.value);
            if !path.exists() {
                let message = format!("there is no file {}", path.display());
                let hint = beside(&path).unwrap_or_else(|| {
                    "a compose file is looked for relative to the file that names it".to_owned()
                });
                return Err(Mistake::new(file.referenced, message).hint(hint).on(page));
            }
            let project = Project {
                files: vec![Place::File(path)],
                name: name.as_ref().map(|name| name.value.to_string()),
                profiles: profiles.iter().cloned().collect(),
                env_file: None,
            };
            let loaded = project.load()?;
            for warning in &loaded.warnings {
                note(&warning.render(true));
            }
            let services = loaded.deployment.services.into_iter();
            let services = services.map(|(name, spec)| (name, Arc::new(spec))).collect();
            Ok((loaded.deployment.name, services))
        }
        (None, Some(services)) => {
            let Some(name) = name else {
                return wrong("the deployment has no `name`", "add `name: shop`");
            };
            let mut specs = Services::new();
            for (service, short) in services {
                let spec =
                    short::spec(&name.value, service, short).map_err(|mistake| mistake.on(page))?;
                specs.insert(service.clone(), Arc::new(spec));
            }
            Ok((name.value.clone(), specs))
        }
        (None, None) => wrong(
            "the deployment says nothing of its services",
            "name a compose file with `compose:`, or write `services:` here",
        ),
        (Some(_), Some(_)) => {
            wrong("the deployment has both `compose` and `services`", "keep one of the two")
        }
    }
}
