//! A deployment as it is written: a compose file, or its services in short form.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use plimsoll_compose::Diagnostic;
use plimsoll_model::spec::Dependency;
use plimsoll_model::{Capability, DeploymentName, ServiceName, ServiceSpec, SpecHash};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::short;
use super::values::{Parsed, PortText};
use crate::error::Result;
use crate::input::{Input, beside};
use crate::mistake::{InputText, Mistake};
use crate::project::{Project, tidy};

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

impl DeploymentEntry {
    pub(crate) fn of(
        name: Spanned<DeploymentName>,
        services: BTreeMap<ServiceName, Spanned<ServiceEntry>>,
    ) -> Self {
        Self { name: Some(name), compose: None, profiles: Vec::new(), services: Some(services) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceEntry {
    pub(crate) image: Option<String>,
    pub(crate) replicas: Option<u32>,
    pub(crate) placement: Option<String>,
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    #[serde(default)]
    pub(crate) reserve: ReserveEntry,
    #[serde(default)]
    pub(crate) limits: LimitsEntry,
    #[serde(default)]
    pub(crate) constraints: Vec<String>,
    pub(crate) max_per_node: Option<u32>,
    #[serde(default)]
    pub(crate) host_ports: Vec<Parsed<PortText>>,
    /// Ports that every node listens on.
    #[serde(default)]
    pub(crate) publish: Vec<Parsed<PortText>>,
    /// Constraints that a node should meet rather than must.
    #[serde(default)]
    pub(crate) prefer: Vec<String>,
    /// How long it may take to become healthy; the simulator takes about that long.
    pub(crate) start_period: Option<String>,
    #[serde(default)]
    pub(crate) volumes: Vec<String>,
    /// Secrets that the cell keeps.
    #[serde(default)]
    pub(crate) secrets: Vec<String>,
    /// Services of the same deployment that start before it, and what they are waited for to do.
    #[serde(default)]
    pub(crate) depends_on: BTreeMap<ServiceName, ConditionEntry>,
    /// The networks it joins; by default the one of its deployment.
    #[serde(default)]
    pub(crate) networks: BTreeMap<String, NetworkEntry>,
    /// What the end of a replica means; by default it is a failure.
    pub(crate) lifecycle: Option<LifecycleEntry>,
    /// How often what is to end is started again after it failed.
    pub(crate) retries: Option<u32>,
    pub(crate) retry_delay: Option<String>,
    /// When it runs, as cron has it, in UTC.
    pub(crate) schedule: Option<String>,
    #[serde(default)]
    pub(crate) priority: i32,
    #[serde(default)]
    pub(crate) interruption_penalty: u8,
    pub(crate) reschedule: Option<String>,
    #[serde(default)]
    pub(crate) update: UpdateEntry,
    /// All that it needs of a runtime that not every runtime has; by default, to run the command of its image.
    pub(crate) needs: Option<BTreeSet<Capability>>,
    /// The hash that a running cell has of what it runs.
    pub(crate) spec: Option<SpecHash>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LifecycleEntry {
    /// It serves, and may end with status 0.
    Finite,
    /// It runs to its end.
    Job,
}

/// As a compose file has it.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) enum ConditionEntry {
    #[serde(rename = "service_started")]
    Started,
    #[serde(rename = "service_healthy")]
    Healthy,
    #[serde(rename = "service_completed_successfully")]
    Completed,
}

impl From<ConditionEntry> for Dependency {
    fn from(entry: ConditionEntry) -> Self {
        match entry {
            ConditionEntry::Started => Self::Started,
            ConditionEntry::Healthy => Self::Healthy,
            ConditionEntry::Completed => Self::Completed,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkEntry {
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) external: bool,
    #[serde(default)]
    pub(crate) internal: bool,
    #[serde(default)]
    pub(crate) aliases: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReserveEntry {
    pub(crate) cpus: Option<String>,
    pub(crate) memory: Option<String>,
    #[serde(default)]
    pub(crate) gpus: u32,
    /// Every GPU of the node it goes to.
    #[serde(default)]
    pub(crate) all_gpus: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsEntry {
    pub(crate) cpus: Option<String>,
    pub(crate) memory: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateEntry {
    pub(crate) order: Option<String>,
    pub(crate) parallelism: Option<u32>,
    pub(crate) delay: Option<String>,
    pub(crate) monitor: Option<String>,
    pub(crate) failure_action: Option<String>,
    pub(crate) max_failure_ratio: Option<String>,
}

/// The deployment an entry of this file stands for, and its services; what its compose file asks for in vain goes to
/// the warnings.
pub(crate) fn load(
    entry: &Spanned<DeploymentEntry>,
    page: &InputText,
    directory: &Path,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(DeploymentName, Services)> {
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
                files: vec![Input::File(path)],
                name: name.as_ref().map(|name| name.value.to_string()),
                profiles: profiles.iter().cloned().collect(),
                env_file: None,
            };
            let loaded = project.load()?;
            warnings.extend(loaded.warnings);
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
