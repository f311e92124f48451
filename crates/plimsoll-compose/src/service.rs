//! A service of the file as a [`ServiceSpec`]. Each theme has a module below; what needs a second service to
//! be judged is left to [`check`](crate::check).

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use plimsoll_model::ids::ServiceName;
use plimsoll_model::schedule::Schedule;
use plimsoll_model::spec::{
    Attribute, ContainerSpec, DeclaredVolumes, Mode, Mount, MountSource, ServiceSpec, SpecHash,
};

use crate::declared::Declared;
use crate::diagnostic::{Finding, Findings, SourceSpan, WarningKind};
use crate::dotenv::{self, EnvFileFormat};
use crate::fields::{self, Section};
use crate::keys::KeyReader;
use crate::yaml::{Mapping, YamlEntry};
use crate::{Files, LoadOptions, read};

mod basics;
mod depends;
mod environment;
mod files;
mod gpus;
mod health;
mod isolation;
mod lifecycle;
mod networks;
mod placement;
mod plimsoll;
pub(crate) mod ports;
mod resources;
mod update;
pub(crate) mod volumes;

pub(crate) use depends::DependencyEdge;
pub(crate) use ports::PlacedPort;

/// Ports of a whole deployment. A port is published once, so more than this cannot be meant; ranges make it easy
/// to write.
const MAX_PORTS: usize = 100_000;

/// Environment and file content of a whole deployment, which travels through the replicated log.
pub(crate) const MAX_CARRIED_BYTES: usize = 16 << 20;

/// What reading a service needs beside its mapping.
pub(crate) struct ServiceContext<'a> {
    pub(crate) report: &'a mut Findings,
    options: &'a LoadOptions,
    files: &'a dyn Files,
    declared: &'a Declared,
    ports: usize,
    carried: usize,
    /// Env files by path and format: services share them, and their mistakes are said once.
    env_files: BTreeMap<(String, EnvFileFormat), Rc<Lines>>,
}

/// The lines of an env file; a name without a value has none.
type Lines = Vec<(String, Option<String>)>;

impl<'a> ServiceContext<'a> {
    pub(crate) fn new(
        report: &'a mut Findings,
        options: &'a LoadOptions,
        files: &'a dyn Files,
        declared: &'a Declared,
    ) -> Self {
        let env_files = BTreeMap::new();
        Self { report, options, files, declared, ports: 0, carried: 0, env_files }
    }

    fn env_file(&mut self, path: &str, format: EnvFileFormat) -> io::Result<Rc<Lines>> {
        let key = (path.to_owned(), format);
        if let Some(lines) = self.env_files.get(&key) {
            return Ok(Rc::clone(lines));
        }
        let bytes = self.files.read(path)?;
        let lines = dotenv::parse(self.report, path, &bytes, format, &self.options.env);
        let lines = Rc::new(lines);
        self.env_files.insert(key, Rc::clone(&lines));
        Ok(lines)
    }

    /// Counts what the deployment carries; once it is too much, that is said and `false` returned.
    fn carry(&mut self, bytes: usize, span: SourceSpan) -> bool {
        let was_within = self.carried <= MAX_CARRIED_BYTES;
        self.carried = self.carried.saturating_add(bytes);
        let within = self.carried <= MAX_CARRIED_BYTES;
        if was_within && !within {
            let message = format!(
                "environment and file content of the deployment exceed {MAX_CARRIED_BYTES} bytes"
            );
            let problem = Finding::new(span, message);
            self.report.push(problem.hint("keep large files in the image or in a volume"));
        }
        within
    }
}

/// Every service of the file, enabled or not.
#[derive(Default)]
pub(crate) struct Drafts {
    pub(crate) enabled: BTreeMap<ServiceName, Draft>,
    /// By name, with the profiles that would enable it.
    pub(crate) disabled: BTreeMap<String, Vec<String>>,
    /// Named in the file, but not read: the report says why.
    pub(crate) broken: Vec<String>,
}

/// A service with the places that checks of the whole point at.
pub(crate) struct Draft {
    pub(crate) spec: ServiceSpec,
    pub(crate) depends_on: Vec<DependencyEdge>,
    pub(crate) ports: Vec<PlacedPort>,
    /// `deploy.mode` says that it is a job.
    pub(crate) is_job_mode: bool,
    /// Where its schedule stands.
    pub(crate) schedule: Option<SourceSpan>,
    /// Where its name stands.
    pub(crate) span: SourceSpan,
}

pub(crate) fn read_all(context: &mut ServiceContext<'_>, services: &Mapping) -> Drafts {
    let mut drafts = Drafts::default();
    for entry in services.entries().iter().filter(|entry| !entry.key.starts_with("x-")) {
        let Some(mapping) = read::mapping(context.report, entry) else {
            drafts.broken.push(entry.key.clone());
            continue;
        };
        let profiles = KeyReader::of(context.report, mapping).texts("profiles");
        if !is_active(&profiles, context.options) {
            fields::check(context.report, Section::Service, mapping);
            drafts.disabled.insert(entry.key.clone(), profiles);
            continue;
        }
        // A service with a mistake still takes part in the checks of the whole.
        let draft = read_one(context, entry, mapping);
        match (ServiceName::new(&entry.key), draft) {
            (Ok(name), Some(draft)) => {
                drafts.enabled.insert(name, draft);
            }
            (Ok(_), None) => drafts.broken.push(entry.key.clone()),
            (Err(error), _) => {
                context.report.error(entry.key_span, error.to_string());
                drafts.broken.push(entry.key.clone());
            }
        }
    }
    drafts
}

fn is_active(profiles: &[String], options: &LoadOptions) -> bool {
    let is_on = |profile: &String| options.profiles.contains(profile);
    profiles.is_empty() || options.profiles.contains("*") || profiles.iter().any(is_on)
}

fn read_one(
    context: &mut ServiceContext<'_>,
    entry: &YamlEntry,
    mapping: &Mapping,
) -> Option<Draft> {
    fields::check(context.report, Section::Service, mapping);
    let image = image(context.report, entry, mapping);
    let mut container = ContainerSpec { image: image.unwrap_or_default(), ..Default::default() };
    basics::fill(context, mapping, &mut container);
    environment::fill(context, mapping, &mut container);
    let ports = ports::fill(context, mapping, &mut container);
    volumes::fill(context, mapping, &mut container);
    networks::fill(context, mapping, &mut container);
    files::fill(context, mapping, &mut container);
    health::fill(context.report, mapping, &mut container);
    isolation::fill(context.report, mapping, &mut container);

    let deploy = KeyReader::of(context.report, mapping).mapping("deploy");
    let mut labels = BTreeMap::new();
    if let Some(deploy) = deploy {
        let mut keys = KeyReader::checked(context.report, Section::Deploy, deploy);
        labels = keys.pairs("labels");
        update::remarks(context.report, deploy);
    }
    resources::fill(context.report, mapping, deploy, &mut container);
    gpus::fill(context.report, mapping, deploy, &mut container);
    let extension = plimsoll::read(context.report, mapping);
    let placement = placement::read(context.report, entry, mapping, deploy, &extension);
    let update = deploy.map(|deploy| update::read(context.report, deploy)).unwrap_or_default();
    let depends_on = depends::read(context.report, mapping);
    let lifecycle = lifecycle::read(context.report, mapping, deploy, &container);

    let hash = SpecHash::of(&container);
    let mut spec = ServiceSpec {
        container,
        hash,
        placement: placement?,
        update,
        depends_on: BTreeMap::new(),
        priority: extension.priority,
        interruption_penalty: extension.interruption_penalty,
        reschedule: extension.reschedule,
        replay: extension.replay,
        unpinned: None,
        declared: DeclaredVolumes::default(),
        labels,
        lifecycle,
        schedule: None,
    };
    let schedule = extension.schedule;
    if let Some((schedule, at)) = &schedule {
        on_schedule(context.report, &mut spec, schedule, *at);
    }
    swarm_remarks(context.report, entry, &spec);
    for excess in spec.excesses() {
        context.report.error(entry.key_span, format!("service \"{}\": {excess}", entry.key));
    }
    let is_job_mode = deploy.is_some_and(lifecycle::is_job_mode);
    let is_job_mode = is_job_mode || schedule.is_some();
    let schedule = schedule.map(|(_, at)| at);
    Some(Draft { spec, depends_on, ports, is_job_mode, schedule, span: entry.key_span })
}

/// What runs on a schedule is a job, of as many copies as the file says.
fn on_schedule(report: &mut Findings, spec: &mut ServiceSpec, schedule: &Schedule, at: SourceSpan) {
    if spec.placement.mode == Mode::Global {
        let message = "a service with a `schedule` cannot be global";
        let hint = "set `replicas`: a run has as many copies, spread over the nodes";
        report.push(Finding::new(at, message).hint(hint));
    }
    spec.schedule = Some(schedule.clone());
    spec.become_job();
}

/// What only Swarm answers, said of who asks it.
fn swarm_remarks(report: &mut Findings, service: &YamlEntry, spec: &ServiceSpec) {
    let is_socket = |mount: &Mount| matches!(&mount.source, MountSource::Bind { path, .. } if path.ends_with("/docker.sock"));
    let container = &spec.container;
    let is_of_managers = spec.placement.constraints.iter().any(|it| it.on == Attribute::Role);
    let mut words = container.command.iter().chain(&container.entrypoint).flatten();
    let speaks_of_it = words.any(|word| word.to_ascii_lowercase().contains("swarm"));
    if container.mounts.iter().any(is_socket) && (is_of_managers || speaks_of_it) {
        let at = service.key_span;
        report.push_warning(Finding::of_kind(at, WarningKind::EngineSocket, &service.key));
    }
}

/// The image. Plimsoll builds none: a node that gets a replica could not find it.
fn image(report: &mut Findings, service: &YamlEntry, mapping: &Mapping) -> Option<String> {
    let build = mapping.get("build");
    let image =
        KeyReader::of(report, mapping).text("image").filter(|image| !image.trim().is_empty());
    let written = mapping.get("image").map(|entry| entry.node.span);
    if written.is_some_and(|span| report.is_unfilled(span)) {
        return None;
    }
    match (&image, build) {
        (Some(image), Some(build)) => {
            let message = format!("`build` is ignored: {image} is used as it is in the registry");
            report.warn(build.key_span, message);
        }
        (None, Some(build)) => {
            let message = format!("service \"{}\" has `build` and no `image`", service.key);
            let hint = "plimsoll does not build images: build and push it, then set `image`";
            report.push(Finding::new(build.key_span, message).hint(hint));
        }
        (None, None) => {
            let at = mapping.entry("image").map_or(service.key_span, |entry| entry.key_span);
            let message = format!("service \"{}\" has no image", service.key);
            report.push(Finding::new(at, message).hint("add `image: name:tag`"));
        }
        (Some(_), None) => {}
    }
    image
}
