//! `lab/hosts`: hosts to try things out on, from a shell.
//!
//! One process holds the hosts (`serve`); every other command asks it over a socket and prints what it says. When that
//! process ends, however it does, so does everything on its hosts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod client;
mod parse;
mod server;

use parse::{length_of_time, share};

/// The name of the socket on which hosts are asked for things.
const SOCKET: &str = "hosts.sock";

/// Hosts on this machine, with a network between them that can be cut, slowed and made to lose packets.
#[derive(Debug, Parser)]
#[command(name = "lab/hosts", disable_help_subcommand = true)]
struct Cli {
    /// Where the socket and the log are.
    #[arg(long, global = true, env = "PLIMSOLL_LAB", default_value = "/var/tmp/plimsoll-lab")]
    dir: PathBuf,
    /// The script that starts Docker engines.
    #[arg(long, global = true, hide = true, default_value = "lab/engine")]
    engine: PathBuf,
    #[command(subcommand)]
    ask: Ask,
}

#[derive(Debug, Subcommand)]
enum Ask {
    /// Create N hosts: ash, birch, cedar and so on
    Up {
        count: usize,
        /// Start a Docker engine on each host.
        #[arg(long)]
        docker: bool,
    },
    /// Run the hosts in the foreground; used by `up`
    #[command(hide = true)]
    Serve {
        count: usize,
        #[arg(long)]
        docker: bool,
    },
    /// List the hosts and every degraded link
    List,
    /// Run a command on a host: `exec ash -- ping 10.77.0.2`
    Exec {
        host: String,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Partition two hosts, or one host from all others
    Cut {
        host: String,
        other: Option<String>,
        /// Only packets from the first host to the second.
        #[arg(long, requires = "other")]
        one_way: bool,
    },
    /// Heal the link between two hosts, or every link
    Heal {
        #[arg(requires = "other")]
        host: Option<String>,
        other: Option<String>,
    },
    /// Add latency between two hosts, each way: `delay ash birch 50ms`
    Delay {
        host: String,
        other: String,
        #[arg(value_parser = length_of_time)]
        by: std::time::Duration,
    },
    /// Drop a share of the packets between two hosts, each way: `loss ash birch 20%`
    Loss {
        host: String,
        other: String,
        #[arg(value_parser = share)]
        percent: u8,
    },
    /// Kill every process of a host at once
    Kill { host: String },
    /// Start a killed host again
    Start { host: String },
    /// Stop all hosts
    Down,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let socket = cli.dir.join(SOCKET);
    let done = match cli.ask {
        Ask::Up { count, docker } => client::up(&cli.dir, &cli.engine, &socket, count, docker),
        Ask::Serve { count, docker } => {
            let engine = docker.then_some(cli.engine);
            server::serve(&cli.dir, count, engine).map_err(|error| error.to_string())
        }
        Ask::Exec { host, command } => client::exec(&socket, &host, &command),
        ask => client::ask(&socket, &words(&ask)).map(|said| print!("{said}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(2)
        }
    }
}

/// What is asked of the process that holds the hosts, as it understands it.
fn words(ask: &Ask) -> Vec<String> {
    let words: Vec<&str> = match ask {
        Ask::Cut { host, other: None, .. } => vec!["isolate", host],
        Ask::Cut { host, other: Some(other), one_way: false } => vec!["cut", host, other],
        Ask::Cut { host, other: Some(other), one_way: true } => vec!["cut-one-way", host, other],
        Ask::Heal { host: Some(host), other: Some(other) } => vec!["heal", host, other],
        Ask::Heal { .. } => vec!["heal-all"],
        Ask::Delay { host, other, by } => {
            return ["delay", host, other, &by.as_micros().to_string()].map(str::to_owned).into();
        }
        Ask::Loss { host, other, percent } => {
            return ["loss", host, other, &percent.to_string()].map(str::to_owned).into();
        }
        Ask::Kill { host } => vec!["kill", host],
        Ask::Start { host } => vec!["start", host],
        Ask::Down => vec!["down"],
        Ask::List | Ask::Up { .. } | Ask::Serve { .. } | Ask::Exec { .. } => vec!["list"],
    };
    words.into_iter().map(str::to_owned).collect()
}
