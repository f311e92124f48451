//! `plimsoll up`: runs a node until it is told to stop. What a node does is settled in `plimsoll-daemon`; here it is
//! configured, started and said.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind::NotFound;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::ValueEnum;
use plimsoll_coordinator::FleetCoordinator;
use plimsoll_daemon::acme::AcmeChoice;
use plimsoll_daemon::cell::join;
use plimsoll_daemon::node::{Error, NodeOptions, RuntimeKind};
use plimsoll_daemon::sampler::INTERVALS;
use plimsoll_fleet::FleetPolicy;
use plimsoll_kernel::Policy;
use plimsoll_model::{CellId, Millis, NodeId, Zone};
use plimsoll_peer::pki::JoinAddress;
use plimsoll_router::{AddressBlock, AddressBlockError};
use plimsoll_runtime::bridge::BlockError;
use plimsoll_runtime::{Block, Description};
use plimsoll_store::embedded::OpenError;
use plimsoll_store_etcd::StartError;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

mod acme;
mod life;
mod notify;
mod predecessor;
mod signals;
mod successor;
mod watchdog;

use acme::AcmeArgs;
use life::Life;
use predecessor::Predecessor;
use signals::DaemonSignals;
use successor::CommandLine;
use watchdog::Watchdog;

use super::etcd::EtcdArgs;
use super::migrate::EngineWord;
use crate::age::length;
use crate::default_paths::Who;
use crate::error::CliError;
use crate::output::note;
use crate::unlock::UnlockArgs;

/// Where a join token is looked for that is neither typed nor in a file.
const JOIN: &str = "PLIMSOLL_JOIN";

const EXAMPLES: &str = "\
Examples:
  plimsoll up                                          Docker; processes only for a user without root
  plimsoll up --runtime process --data-dir ./node      without Docker, all of it in one directory
  plimsoll up --listen 10.0.0.5:7654                   also for other hosts, under TLS
  plimsoll up --http 0.0.0.0:80 --https 0.0.0.0:443    serve the routes of all deployments
  plimsoll up --http 0.0.0.0:80 --https 0.0.0.0:443 --acme-email ops@example.org
                                                       and get certificates for routes with tls: auto
  plimsoll up --name ash --zone north --label disk=ssd
  plimsoll up --cell home --engine etcd --etcd-endpoints http://10.0.0.1:2379,http://10.0.0.2:2379
                                                       the log on an etcd; the next `plimsoll up` remembers all of it

Ctrl-C stops the daemon and leaves its replicas running; the next `plimsoll up` takes them over. SIGHUP has it hand over to
a new process, of another version perhaps, without losing a request.
For a machine that should always run it there is packaging/plimsoll.service.";

/// Run a node on this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Data directory [default: /var/lib/plimsoll as root, else ~/.local/share/plimsoll]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Node name [default: the host name]
    #[arg(long, value_name = "NODE", value_parser = named::<NodeId>)]
    name: Option<NodeId>,
    /// Cell name [default: generated on the first start]
    #[arg(long = "cell", alias = "cluster", value_name = "NAME", value_parser = named::<CellId>)]
    cell_id: Option<CellId>,
    /// Container runtime
    #[arg(long, value_enum, default_value_t)]
    runtime: RuntimeWord,
    /// Docker Engine socket [default: the usual paths of Docker and Podman]
    #[arg(long, value_name = "PATH")]
    docker_socket: Option<PathBuf>,
    /// API socket [default: in --data-dir if given, else where commands look first]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Local group that may use the API socket as well, with all rights of an admin
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// Serve the API on TCP as well, under TLS; clients log in with `plimsoll token create`
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Serve HTTP routes on this address, such as 0.0.0.0:80
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Serve HTTPS routes on this address, such as 0.0.0.0:443
    #[arg(long, value_name = "ADDRESS:PORT")]
    https: Option<SocketAddr>,
    #[command(flatten)]
    acme: AcmeArgs,
    /// Proxies in front of this node, whose X-Forwarded-* headers are kept, such as 10.0.0.0/8
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',', value_parser = proxy)]
    trusted_proxies: Vec<AddressBlock>,
    /// Address pool for container networks on this node [default: 10.208.0.0/12]
    #[arg(long, value_name = "ADDRESSES", value_parser = block)]
    address_pool: Option<Block>,
    /// Directory below which services applied with role deploy may bind; repeatable [default: none]
    #[arg(long = "bind-root", value_name = "DIR", value_parser = bind_root)]
    bind_roots: Vec<String>,
    /// Address that other nodes connect to [default: this host's address, port 7117]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    address: Option<String>,
    /// Join a cell with the string printed by `plimsoll token create-join` [env: `PLIMSOLL_JOIN`]
    #[arg(long, value_name = "TOKEN@ADDRESS", value_parser = joining)]
    join: Option<JoinAddress>,
    /// File with that string, which other users cannot see in the list of processes
    #[arg(long, value_name = "FILE", conflicts_with = "join")]
    join_file: Option<PathBuf>,
    /// Zone of the node
    #[arg(long, value_name = "ZONE", value_parser = named::<Zone>)]
    zone: Option<Zone>,
    /// Node label for placement constraints; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    unlock: UnlockArgs,
    /// Storage engine of the log: local disk, or an existing etcd [default: as before, else embedded]
    #[arg(long, value_enum)]
    engine: Option<EngineWord>,
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Interval of node measurements, 5s to 5m; on the leader also of the rebalancer
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = interval)]
    node_status_interval: Duration,
    /// How many times as fast the rebalancer's gates run, for those who try it out
    #[arg(long, value_name = "TIMES", default_value_t = 1, hide = true)]
    gate_haste: u32,
    /// How many times as fast certificates of an ACME authority age, for those who try renewal out
    #[arg(long, value_name = "TIMES", default_value_t = 1, hide = true)]
    renewal_haste: u64,
    /// Where this host's counters are, where one machine plays several hosts
    #[arg(long, value_name = "DIR", hide = true)]
    host_root: Option<PathBuf>,
    /// Log level
    #[arg(long, value_enum, default_value_t)]
    log_level: Level,
    /// Log format: lines for people, or one JSON object per line
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
    /// The standard input leads to a daemon whose place this one takes
    #[arg(long, hide = true)]
    takes_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum RuntimeWord {
    #[default]
    Auto,
    Docker,
    Process,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Chosen once, before anything is said.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

fn named<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn joining(text: &str) -> Result<JoinAddress, String> {
    text.parse().map_err(|error: plimsoll_peer::pki::InvalidJoin| error.to_string())
}

fn block(text: &str) -> Result<Block, String> {
    let block: Block = text.parse().map_err(|error: BlockError| error.to_string())?;
    // A network of containers takes 1,024 addresses.
    if block.last() < 1_023 {
        Err("is too small: a network takes a /22".to_owned())
    } else {
        Ok(block)
    }
}

fn proxy(text: &str) -> Result<AddressBlock, String> {
    text.trim().parse().map_err(|error: AddressBlockError| error.to_string())
}

/// A directory by its full name: paths are compared with it as they are written.
fn bind_root(text: &str) -> Result<String, String> {
    let trimmed = text.trim_end_matches('/');
    if !text.starts_with('/') || text.split('/').any(|part| matches!(part, "." | "..")) {
        return Err("write an absolute path without . and ..".to_owned());
    }
    if trimmed.is_empty() {
        return Err("/ is the whole node; name a directory".to_owned());
    }
    Ok(trimmed.to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = Duration::from_millis(length(text)?.0);
    if INTERVALS.contains(&interval) {
        return Ok(interval);
    }
    Err("it can be from 5s to 5m".to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as key=value".to_owned()),
    }
}

/// How long a thread without work stays. A daemon at rest has work for one about once a second, and they take turns: what a
/// hundred starts at once have called up would stay for good with more than that, each with a stack and a heap.
const SPARE_THREAD: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    start(args, options(args, &Who::of_process()))
}

/// A node of a coordinator: the same, without containers.
pub(crate) fn run_coordinator(args: &Args) -> Result<(), CliError> {
    if let Some(flag) = for_containers(args) {
        let message =
            format!("{flag} is for nodes that run containers, and a coordinator runs none");
        return Err(CliError::refused(message).hint("leave it out"));
    }
    let mut options = options(args, &Who::of_process());
    if args.data_dir.is_none() {
        // A node of a cell may run on this machine as well.
        options.data_dir.as_mut_os_string().push("-coordinator");
        if args.socket.is_none() {
            options.socket = options.data_dir.join("plimsoll.sock");
        }
    }
    options.runtime = Some(RuntimeKind::None);
    options.coordinator = Some(Arc::new(FleetCoordinator::new(FleetPolicy::default())));
    start(args, options)
}

/// The first flag that makes no sense without containers.
fn for_containers(args: &Args) -> Option<&'static str> {
    let given = [
        (args.runtime != RuntimeWord::Auto, "--runtime"),
        (args.docker_socket.is_some(), "--docker-socket"),
        (args.http.is_some(), "--http"),
        (args.https.is_some(), "--https"),
        (args.address_pool.is_some(), "--address-pool"),
        (!args.trusted_proxies.is_empty(), "--trusted-proxies"),
        (!args.bind_roots.is_empty(), "--bind-root"),
    ];
    given.into_iter().find(|(is_given, _)| *is_given).map(|(_, flag)| flag)
}

fn start(args: &Args, options: NodeOptions) -> Result<(), CliError> {
    log(args.log_level, args.log_format);
    let ended = run_node(args, options);
    match args.log_format {
        LogFormat::Text => ended,
        LogFormat::Json => ended.map_err(CliError::logged),
    }
}

/// Says something that is no event: as it is, or as a line of the log where all lines are for a program.
fn say(text: &str) {
    match FORMAT.get().copied().unwrap_or_default() {
        LogFormat::Text => note(text),
        LogFormat::Json => tracing::info!("{text}"),
    }
}

fn run_node(args: &Args, mut options: NodeOptions) -> Result<(), CliError> {
    if let Err(error) = plimsoll_runtime::files::raise() {
        say(&format!(
            "warning: no more files can be open at once than this process was given: {error}"
        ));
    }
    let given = std::env::var(JOIN).ok().filter(|text| !text.is_empty());
    options.join = join_address(args, &options.data_dir, given)?;
    options.unlock = args.unlock.key()?;
    options.acme = args.acme.choice()?;
    let is_coordinator = options.coordinator.is_some();
    let is_default = args.socket.is_none() && args.data_dir.is_none() && !is_coordinator;
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.enable_all().thread_keep_alive(SPARE_THREAD).build();
    let runtime =
        runtime.map_err(|error| CliError::failed(format!("cannot start threads: {error}")))?;
    let line = CommandLine::of_process().map_err(|error| CliError::failed(error.to_string()))?;
    if args.takes_over {
        // Whoever has the terminal knows the process before this one, and the terminal may go with that.
        let _ = rustix::process::setsid();
    }
    runtime.block_on(async {
        // First of all: a signal that nobody listens for ends the process.
        let signals = DaemonSignals::listen()?;
        let predecessor = args.takes_over.then(Predecessor::of_stdin).transpose()?;
        let watchdog = Watchdog::start();
        Box::pin(Life { options, is_default, line, signals, predecessor, watchdog }.live()).await
    })
}

/// The numbers decisions turn on, with those that may be said.
fn policy(sample_interval: Duration, haste: u32) -> Policy {
    let policy = Policy::default();
    let sample_interval = u64::try_from(sample_interval.as_millis()).unwrap_or(u64::MAX);
    Policy {
        sample_interval: Millis(sample_interval),
        rebalance: policy.rebalance.hurried(haste),
        reschedule: policy.reschedule.hurried(haste),
        review: policy.review.hurried(haste),
        ..policy
    }
}

/// The cell to join, as typed, else from a file, else from the environment. A file that is gone matters no more once the node
/// has joined: whoever put the token there may take it away again.
fn join_address(
    args: &Args,
    data_dir: &Path,
    given: Option<String>,
) -> Result<Option<JoinAddress>, CliError> {
    let (source, text) = match (&args.join, &args.join_file) {
        (Some(typed), _) => return Ok(Some(typed.clone())),
        (None, Some(file)) => {
            let source = file.display().to_string();
            match std::fs::read_to_string(file) {
                Ok(text) => (source, text),
                Err(error) if error.kind() == NotFound && data_dir.join("node.json").is_file() => {
                    return Ok(None);
                }
                Err(error) => {
                    return Err(CliError::refused(format!("cannot read {source}: {error}"))
                        .hint("put there what `plimsoll token create-join` prints"));
                }
            }
        }
        (None, None) => match given {
            Some(text) => (JOIN.to_owned(), text),
            None => return Ok(None),
        },
    };
    // Not the text itself: it is a secret.
    joining(text.trim()).map(Some).map_err(|why| {
        CliError::refused(format!("{source} holds no join token: {why}"))
            .hint("put there what `plimsoll token create-join` prints")
    })
}

fn options(args: &Args, who: &Who) -> NodeOptions {
    let beside = args.data_dir.as_ref().map(|dir| dir.join("plimsoll.sock"));
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    NodeOptions {
        data_dir: absolute(args.data_dir.clone().unwrap_or_else(|| who.data_dir())),
        name: args.name.clone(),
        cell_id: args.cell_id.clone(),
        runtime: match args.runtime {
            RuntimeWord::Auto => None,
            RuntimeWord::Docker => Some(RuntimeKind::Docker),
            RuntimeWord::Process => Some(RuntimeKind::Process),
        },
        docker_socket: args.docker_socket.clone(),
        socket: absolute(args.socket.clone().or(beside).unwrap_or_else(|| who.socket())),
        socket_group: args.socket_group.clone(),
        listen: args.listen,
        address: args.address.clone(),
        join: args.join.clone(),
        zone: args.zone.clone(),
        labels: args.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
        engine: args.engine.map(EngineWord::kind),
        etcd: args.etcd.options(),
        policy: Policy {
            renewal_haste: args.renewal_haste,
            ..policy(args.node_status_interval, args.gate_haste)
        },
        host: args.host_root.clone(),
        http: args.http,
        https: args.https,
        trusted_proxies: args.trusted_proxies.clone(),
        address_pool: args.address_pool,
        // Read from where they are kept, which may fail.
        unlock: None,
        acme: AcmeChoice::AsBefore,
        bind_roots: args.bind_roots.iter().cloned().collect(),
        coordinator: None,
    }
}

/// Our own words at the level asked for; of libraries only what is wrong.
fn log(level: Level, format: LogFormat) {
    let _ = FORMAT.set(format);
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let others = if level == LevelFilter::TRACE { level } else { LevelFilter::ERROR };
    let targets = Targets::new().with_default(others).with_target("plimsoll", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    match format {
        LogFormat::Text => {
            let has_colour = crate::terminal::Target::Stderr.has_colour();
            registry.with(lines.with_ansi(has_colour)).init();
        }
        // What an event says beside the fields that every line has: a program looks for it there.
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
    }
}

pub(super) fn unstarted(error: &Error) -> CliError {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let _ = write!(text, ": {cause_text}");
        }
        next = cause.source();
    }
    let is_denied = text.contains("Permission denied");
    let is_refusal = match error {
        Error::OtherNode { .. }
        | Error::OtherToken { .. }
        | Error::NoMember { .. }
        | Error::LeftBehind { .. }
        | Error::Join(join::Error::OtherCell { .. })
        | Error::Name { .. }
        | Error::NoEngine
        | Error::RootWithoutEngine
        | Error::OfCoordinator
        | Error::OfCell
        | Error::Unfit(_)
        | Error::OtherEngine { .. } => true,
        // Whatever else it says is of etcd, and may pass.
        Error::EtcdStart(why) => !matches!(why, StartError::Etcd(_)),
        Error::Store(why) => {
            matches!(
                why,
                OpenError::InUse { .. }
                    | OpenError::OtherCell { .. }
                    | OpenError::Locked { .. }
                    | OpenError::WrongUnlockKey { .. }
            )
        }
        _ => false,
    };
    let trouble = if is_refusal { CliError::refused(text) } else { CliError::failed(text) };
    if is_denied {
        return trouble.hint("run it as root, or with a --data-dir and --socket of your own");
    }
    trouble
}

/// What whoever started it should know.
struct Started<'s> {
    node: &'s str,
    options: &'s NodeOptions,
    /// None while it does not answer.
    runtime: Option<&'s Description>,
    /// Whether commands find it without being told where it is.
    is_default: bool,
}

impl Started<'_> {
    fn text(&self) -> String {
        let NodeOptions { data_dir, socket, listen, .. } = self.options;
        let mut text = format!("node {} is up\n", self.node);
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "  {name:9} {value}");
        };
        line("data", &data_dir.display().to_string());
        match self.runtime {
            _ if self.options.coordinator.is_some() => line("runs", "a coordinator, no containers"),
            Some(runtime) => {
                line("runtime", &format!("{} {}", runtime.name, runtime.version));
                for limit in &runtime.limits {
                    line("", &format!("- {limit}"));
                }
            }
            None => line("runtime", "does not answer yet; retrying"),
        }
        line("socket", &socket.display().to_string());
        if let Some(address) = listen {
            line("listens", &format!("https://{address}"));
            line(
                "",
                "for another machine: plimsoll token create NAME, and there plimsoll login STRING",
            );
        }
        if !self.is_default {
            let _ = writeln!(text, "\n  export PLIMSOLL_HOST={}", socket.display());
        }
        let next = match self.options.coordinator {
            Some(_) => "plimsoll fleet token create NAME",
            None => "plimsoll apply -f compose.yaml",
        };
        text + "\nNext: " + next
    }
}

#[cfg(test)]
mod tests;
