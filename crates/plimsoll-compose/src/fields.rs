//! The field table: for every key of a compose file, whether plimsoll does what it says, ignores it and says so,
//! or refuses it and names what to use instead. A key that is not in the table is a typing error.

use std::sync::LazyLock;

use crate::diagnostic::{Finding, Findings};
use crate::yaml::{Mapping, YamlEntry};

mod deploy;
mod nested;
mod service;
mod top;

/// A place of the file that has keys of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Top,
    Include,
    Service,
    Extends,
    EnvFile,
    DependsOn,
    Healthcheck,
    Port,
    PortExtension,
    Mount,
    MountBind,
    MountVolume,
    MountTmpfs,
    FileMount,
    NetworkAttachment,
    Ulimit,
    Device,
    Gpu,
    Logging,
    Deploy,
    Placement,
    Preference,
    Resources,
    Limits,
    Reservations,
    UpdateConfig,
    RestartPolicy,
    Volume,
    VolumeExtension,
    Network,
    Config,
    Secret,
    ServiceExtension,
    Reschedule,
    TopExtension,
    Route,
}

impl Section {
    pub const ALL: [Self; 36] = [
        Self::Top,
        Self::Include,
        Self::Service,
        Self::Extends,
        Self::EnvFile,
        Self::DependsOn,
        Self::Healthcheck,
        Self::Port,
        Self::PortExtension,
        Self::Mount,
        Self::MountBind,
        Self::MountVolume,
        Self::MountTmpfs,
        Self::FileMount,
        Self::NetworkAttachment,
        Self::Ulimit,
        Self::Device,
        Self::Gpu,
        Self::Logging,
        Self::Deploy,
        Self::Placement,
        Self::Preference,
        Self::Resources,
        Self::Limits,
        Self::Reservations,
        Self::UpdateConfig,
        Self::RestartPolicy,
        Self::Volume,
        Self::VolumeExtension,
        Self::Network,
        Self::Config,
        Self::Secret,
        Self::ServiceExtension,
        Self::Reschedule,
        Self::TopExtension,
        Self::Route,
    ];

    /// What a message calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Top => "the file",
            Self::Include => "an entry of include",
            Self::Extends => "extends",
            Self::Service => "a service",
            Self::EnvFile => "an entry of env_file",
            Self::DependsOn => "an entry of depends_on",
            Self::Healthcheck => "healthcheck",
            Self::Port => "an entry of ports",
            Self::PortExtension => "x-plimsoll of an entry of ports",
            Self::Mount => "an entry of volumes",
            Self::MountBind => "bind of an entry of volumes",
            Self::MountVolume => "volume of an entry of volumes",
            Self::MountTmpfs => "tmpfs of an entry of volumes",
            Self::FileMount => "an entry of configs or secrets",
            Self::NetworkAttachment => "a network of a service",
            Self::Ulimit => "an entry of ulimits",
            Self::Device => "an entry of devices",
            Self::Gpu => "a device request",
            Self::Logging => "logging",
            Self::Deploy => "deploy",
            Self::Placement => "deploy.placement",
            Self::Preference => "an entry of deploy.placement.preferences",
            Self::Resources => "deploy.resources",
            Self::Limits => "deploy.resources.limits",
            Self::Reservations => "deploy.resources.reservations",
            Self::UpdateConfig => "deploy.update_config",
            Self::RestartPolicy => "deploy.restart_policy",
            Self::Volume => "a top-level volume",
            Self::VolumeExtension => "x-plimsoll of a top-level volume",
            Self::Network => "a top-level network",
            Self::Config => "a top-level config",
            Self::Secret => "a top-level secret",
            Self::ServiceExtension => "x-plimsoll of a service",
            Self::Reschedule => "x-plimsoll.reschedule",
            Self::TopExtension => "x-plimsoll of the file",
            Self::Route => "an entry of x-plimsoll.routes",
        }
    }
}

/// What plimsoll does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldSupport {
    Honoured,
    /// Some of its values are honoured; each other one is named when it is met.
    Partly,
    /// Accepted, with a warning.
    Ignored,
    Refused,
}

impl FieldSupport {
    pub fn word(self) -> &'static str {
        match self {
            Self::Honoured => "honoured",
            Self::Partly => "partly",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
        }
    }
}

/// One key and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub section: Section,
    pub key: &'static str,
    pub verdict: FieldSupport,
    /// Why, or what to use instead. It completes the warning or is the hint of the refusal.
    pub note: &'static str,
}

type Row = (&'static str, FieldSupport, &'static str);

static TABLE: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let sections = Section::ALL.into_iter();
    sections.flat_map(|section| rows(section).iter().map(move |row| field(section, *row))).collect()
});

/// Every key that plimsoll knows, section by section.
pub fn field_table() -> &'static [Field] {
    &TABLE
}

fn field(section: Section, (key, verdict, note): Row) -> Field {
    Field { section, key, verdict, note }
}

fn rows(section: Section) -> &'static [Row] {
    match section {
        Section::Top => top::TOP,
        Section::Include => top::INCLUDE,
        Section::Extends => nested::EXTENDS,
        Section::Service => service::SERVICE,
        Section::EnvFile => nested::ENV_FILE,
        Section::DependsOn => nested::DEPENDS_ON,
        Section::Healthcheck => nested::HEALTHCHECK,
        Section::Port => nested::PORT,
        Section::PortExtension => nested::PORT_EXTENSION,
        Section::Mount => nested::MOUNT,
        Section::MountBind => nested::MOUNT_BIND,
        Section::MountVolume => nested::MOUNT_VOLUME,
        Section::MountTmpfs => nested::MOUNT_TMPFS,
        Section::FileMount => nested::FILE_MOUNT,
        Section::NetworkAttachment => nested::NETWORK_ATTACHMENT,
        Section::Ulimit => nested::ULIMIT,
        Section::Device => nested::DEVICE,
        Section::Gpu => nested::GPU,
        Section::Logging => nested::LOGGING,
        Section::Deploy => deploy::DEPLOY,
        Section::Placement => deploy::PLACEMENT,
        Section::Preference => deploy::PREFERENCE,
        Section::Resources => deploy::RESOURCES,
        Section::Limits => deploy::LIMITS,
        Section::Reservations => deploy::RESERVATIONS,
        Section::UpdateConfig => deploy::UPDATE_CONFIG,
        Section::RestartPolicy => deploy::RESTART_POLICY,
        Section::Volume => top::VOLUME,
        Section::VolumeExtension => top::VOLUME_EXTENSION,
        Section::Network => top::NETWORK,
        Section::Config => top::CONFIG,
        Section::Secret => top::SECRET,
        Section::ServiceExtension => top::SERVICE_EXTENSION,
        Section::Reschedule => top::RESCHEDULE,
        Section::TopExtension => top::TOP_EXTENSION,
        Section::Route => top::ROUTE,
    }
}

/// Passes judgement on the keys of a mapping. Values are left to those who read them.
pub(crate) fn check(report: &mut Findings, section: Section, mapping: &Mapping) {
    for entry in mapping.entries().iter().filter(|entry| !entry.key.starts_with("x-")) {
        match rows(section).iter().find(|(key, ..)| *key == entry.key) {
            None => unknown(report, section, entry),
            // A key without a value is a key left out.
            Some(_) if entry.node.is_null() => {}
            Some((key, FieldSupport::Ignored, note)) => {
                report.warn(entry.key_span, format!("`{key}` is ignored: {note}"));
            }
            Some((key, FieldSupport::Refused, note)) => {
                let problem = Finding::new(entry.key_span, format!("`{key}` is not supported"));
                report.push(problem.hint(*note));
            }
            Some((_, FieldSupport::Honoured | FieldSupport::Partly, _)) => {}
        }
    }
}

fn unknown(report: &mut Findings, section: Section, entry: &YamlEntry) {
    if section == Section::Top && looks_like_a_service(entry) {
        let message = format!("`{}` looks like a service, and stands at the top level", entry.key);
        let hint = format!(
            "write `services:` on a line of its own, and `{}:` below it, indented",
            entry.key
        );
        report.push(Finding::new(entry.key_span, message).hint(hint));
        return;
    }
    let message = format!("unknown key `{}` in {}", entry.key, section.title());
    if !report.wants(entry.key_span, &message) {
        return;
    }
    let known = rows(section).iter().map(|(key, ..)| *key);
    let hint = match nearest(&entry.key, known.clone()) {
        Some(key) => format!("did you mean `{key}`?"),
        None if rows(section).len() <= 8 => {
            format!("known keys: {}", known.collect::<Vec<_>>().join(", "))
        }
        None => "keys of your own begin with `x-`".to_owned(),
    };
    report.push(Finding::new(entry.key_span, message).hint(hint));
}

/// Old files had their services at the top, and an indentation that is off puts them there.
fn looks_like_a_service(entry: &YamlEntry) -> bool {
    let keys = entry.node.as_mapping();
    keys.is_some_and(|keys| ["image", "build"].iter().any(|key| keys.get(key).is_some()))
}

/// The known name a person most likely meant: a third of its letters may differ.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // Names are short; a long text is not a misspelt name, and comparing it would be slow.
    if name.len() > 64 {
        return None;
    }
    let distances = known.map(|key| (distance(name, key), key));
    let (distance, key) = distances.min()?;
    (distance <= key.chars().count().max(3) / 3).then_some(key)
}

/// The name that was meant, and else what to add.
pub(crate) fn did_you_mean<'k>(
    name: &str,
    known: impl Iterator<Item = &'k str>,
    otherwise: String,
) -> String {
    match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`? else {otherwise}"),
        None => otherwise,
    }
}

/// How many letters to add, drop, change or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_finds_the_one_that_was_meant() {
        let known = || ["image", "environment", "ports", "deploy"].into_iter();
        for (name, meant) in [
            ("imgae", Some("image")),
            ("enviroment", Some("environment")),
            ("port", Some("ports")),
            ("colour", None),
        ] {
            assert_eq!(nearest(name, known()), meant, "{name}");
        }
    }

    #[test]
    fn every_key_stands_once_in_its_section_and_says_why() {
        for section in Section::ALL {
            let mut keys: Vec<_> = rows(section).iter().map(|(key, ..)| key).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), rows(section).len(), "{}", section.title());
        }
        for field in field_table() {
            assert!(
                field.verdict == FieldSupport::Honoured || !field.note.is_empty(),
                "{} of {} has no reason",
                field.key,
                field.section.title()
            );
        }
    }
}
