//! `plimsoll validate`: whether compose files are good, and what they ask for.

use plimsoll_api::view::DataPin;
use plimsoll_compose::{Diagnostic, Diagnostics, Loaded, routes_from_labels};
use plimsoll_model::spec::{
    self, DeploymentSpec, Port, PortMode, ProxyProtocol, Replay, RouteSpec, Tls,
};
use plimsoll_model::{Bytes, Mode, Resources, ServiceSpec};
use plimsoll_workbench::Error;
use serde::Serialize;

use crate::error::CliError;
use crate::output::{Format, count, note, print};
use crate::pins_table;
use crate::project;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  plimsoll validate                                 compose.yaml here, with its override
  plimsoll validate -f compose.yaml -f prod.yaml    the second laid over the first
  plimsoll validate -f - < compose.yaml             from stdin
  plimsoll validate -f compose.yaml -o json         for a program
  plimsoll validate --routes-from-labels            the routes that labels say to Traefik, for this file";

/// Check compose files and show what they ask for.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    project: project::Files,
    /// Print the `x-plimsoll.routes` that Traefik's labels mean, instead of the summary
    #[arg(long)]
    routes_from_labels: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    match args.project.project()?.load() {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                note(warning.render(true).trim_end());
            }
            if args.routes_from_labels {
                return print(args.output, &FoundRoutes::of(&loaded), FoundRoutes::text);
            }
            print(args.output, &Summary::of(&loaded), table)
        }
        Err(error) => {
            if let (Error::Compose { diagnostics, .. }, Format::Json | Format::Yaml) =
                (&error, args.output)
            {
                print(args.output, &ErrorReport::of(diagnostics), |_| String::new())?;
            }
            Err(error.into())
        }
    }
}

/// What a good file asks for.
#[derive(Debug, Serialize)]
struct Summary {
    valid: bool,
    deployment: String,
    services: Vec<CheckedService>,
    routes: Vec<String>,
    /// What data keeps on a node.
    pinned: Vec<DataPin>,
    warnings: Vec<Remark>,
}

#[derive(Debug, Serialize)]
struct CheckedService {
    name: String,
    image: String,
    placement: &'static str,
    /// None for `global`, which has as many as there are nodes.
    replicas: Option<u32>,
    hosts: Vec<String>,
    constraints: Vec<String>,
    reserves: Reserves,
    ports: Vec<String>,
    /// `off` where requests are not replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<&'static str>,
    stateful: bool,
    priority: i32,
    spec_hash: String,
}

#[derive(Debug, Serialize)]
struct Reserves {
    cpus: String,
    memory_bytes: u64,
    gpus: u32,
    /// Every GPU of the node it goes to.
    all_gpus: bool,
}

/// What is wrong with a bad one.
#[derive(Debug, Serialize)]
struct ErrorReport {
    valid: bool,
    errors: Vec<Remark>,
    /// Errors found beyond those listed.
    more: usize,
    warnings: Vec<Remark>,
}

/// What labels say to Traefik, as routes.
#[derive(Debug, Serialize)]
struct FoundRoutes {
    routes: Vec<RouteSpec>,
    /// What could not be read, a sentence each.
    unread: Vec<String>,
    #[serde(skip)]
    yaml: String,
}

impl FoundRoutes {
    fn of(loaded: &Loaded) -> Self {
        let found = routes_from_labels(&loaded.deployment);
        let yaml = found.yaml();
        Self { routes: found.routes, unread: found.unread, yaml }
    }

    /// What can be pasted into the file, and as comments what is left to do.
    fn text(&self) -> String {
        let unread: Vec<String> = self.unread.iter().map(|line| format!("# {line}\n")).collect();
        let unread = unread.concat();
        match (self.routes.is_empty(), unread.is_empty()) {
            (true, true) => "# no label of the file says a route to Traefik\n".to_owned(),
            (true, false) => unread,
            (false, _) => format!("{}{unread}", self.yaml),
        }
    }
}

#[derive(Debug, Serialize)]
struct Remark {
    file: String,
    line: usize,
    column: usize,
    message: String,
    hint: Option<String>,
    /// Further places of which the same is said.
    #[serde(skip_serializing_if = "is_none")]
    others: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(others: &usize) -> bool {
    *others == 0
}

impl Remark {
    fn of(diagnostic: &Diagnostic) -> Self {
        Self {
            file: diagnostic.file.clone(),
            line: diagnostic.line,
            column: diagnostic.column,
            message: diagnostic.message.clone(),
            hint: diagnostic.hint.clone(),
            others: diagnostic.others,
        }
    }
}

impl ErrorReport {
    fn of(wrong: &Diagnostics) -> Self {
        let errors = wrong.list.iter().map(Remark::of).collect();
        let warnings = wrong.warnings.iter().map(Remark::of).collect();
        Self { valid: false, errors, more: wrong.more, warnings }
    }
}

impl Summary {
    fn of(loaded: &Loaded) -> Self {
        let DeploymentSpec { name, services, routes } = &loaded.deployment;
        let pins = spec::DataPin::all(name, services.iter());
        let services =
            services.iter().map(|(name, spec)| CheckedService::of(name.as_str(), spec)).collect();
        Self {
            valid: true,
            deployment: name.to_string(),
            services,
            routes: routes.iter().map(route).collect(),
            pinned: pins.iter().map(DataPin::from).collect(),
            warnings: loaded.warnings.iter().map(Remark::of).collect(),
        }
    }
}

impl CheckedService {
    fn of(name: &str, spec: &ServiceSpec) -> Self {
        let hosts = match &spec.placement.mode {
            Mode::Hosts { hosts, .. } => hosts.iter().map(ToString::to_string).collect(),
            Mode::Spread { .. } | Mode::Pack { .. } | Mode::Binpack { .. } | Mode::Global => {
                Vec::new()
            }
        };
        let Resources { cpu, memory, gpus, all_gpus } = spec.request();
        Self {
            name: name.to_owned(),
            image: spec.container.image.clone(),
            placement: spec.placement.mode.word(),
            replicas: spec.placement.mode.replicas(),
            hosts,
            constraints: spec.placement.constraints.iter().map(ToString::to_string).collect(),
            reserves: Reserves {
                cpus: cpu.to_string(),
                memory_bytes: memory.0,
                gpus,
                all_gpus: all_gpus > 0,
            },
            ports: spec.container.ports.iter().map(port).collect(),
            replay: (spec.replay == Replay::Off).then_some("off"),
            stateful: spec.is_stateful(),
            priority: spec.priority,
            spec_hash: spec.hash.to_string(),
        }
    }
}

fn ports(service: &CheckedService) -> String {
    let replay = service.replay.map(|replay| format!("replay: {replay}"));
    service.ports.iter().cloned().chain(replay).collect::<Vec<_>>().join(", ")
}

/// `8080:80/tcp`, `*:80/tcp` where plimsoll chooses the number, `host 9100:9100/tcp` on the replica's own node.
fn port(port: &Port) -> String {
    let published = port.published.map_or_else(|| "*".to_owned(), |number| number.to_string());
    let host = if port.mode == PortMode::Host { "host " } else { "" };
    let proxied = match port.proxy_protocol {
        Some(ProxyProtocol::V2) => " (proxy_protocol v2)",
        None => "",
    };
    format!("{host}{published}:{}/{}{proxied}", port.target, port.protocol)
}

fn route(route: &RouteSpec) -> String {
    let scheme = if route.tls == Tls::Off { "http" } else { "https" };
    let host = route.host.as_deref().unwrap_or("*");
    format!("{scheme}://{host}{} -> {}:{}", route.path, route.service, route.port)
}

fn table(summary: &Summary) -> String {
    let replicas: u32 = summary.services.iter().filter_map(|service| service.replicas).sum();
    let mut text = format!(
        "{}: {}, {}\n\n",
        summary.deployment,
        count(summary.services.len(), "service"),
        count(replicas as usize, "replica"),
    );
    let mut table =
        Table::new(["SERVICE", "IMAGE", "PLACEMENT", "RESERVES", "PORTS", "DATA", "SPEC"]);
    for service in &summary.services {
        table.row([
            service.name.clone(),
            service.image.clone(),
            placement(service),
            reserves(&service.reserves),
            or_dash(ports(service)),
            (if service.stateful { "stateful" } else { "stateless" }).to_owned(),
            service.spec_hash[..12].to_owned(),
        ]);
    }
    text.push_str(&table.render());
    if !summary.pinned.is_empty() {
        text.extend(["\n", &pins_table::table(&summary.pinned)]);
    }
    if !summary.routes.is_empty() {
        let mut routes = Table::new(["ROUTES"]);
        for route in &summary.routes {
            routes.row([route.clone()]);
        }
        text.extend(["\n", &routes.render()]);
    }
    text
}

/// `spread ×3`, `global`, `hosts ×1 on ash`.
fn placement(service: &CheckedService) -> String {
    let word = service.placement;
    match (service.replicas, service.hosts.as_slice()) {
        (None, _) => word.to_owned(),
        (Some(replicas), []) => format!("{word} ×{replicas}"),
        (Some(replicas), hosts) => format!("{word} ×{replicas} on {}", hosts.join(", ")),
    }
}

fn reserves(reserves: &Reserves) -> String {
    let mut parts = Vec::new();
    if reserves.cpus != "0" {
        parts.push(format!("{} cpu", reserves.cpus));
    }
    if reserves.memory_bytes > 0 {
        parts.push(Bytes(reserves.memory_bytes).to_string());
    }
    if reserves.gpus > 0 {
        parts.push(format!("{} gpu", reserves.gpus));
    }
    if reserves.all_gpus {
        parts.push("all gpus".to_owned());
    }
    or_dash(parts.join(", "))
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
