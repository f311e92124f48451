//! `plimsoll get`: lists of one kind of thing, and single things in full.

use plimsoll_api::view::{Deployment, Replica, Service, Status};
use plimsoll_model::{Bytes, MilliCpus, Timestamp};
use serde::Serialize;

use super::node;
use super::status::page;
use crate::age::age;
use crate::consistency::{ConsistencyArgs, remark};
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, print};
use crate::replica_line::{ReplicaLine, coloured, progress_word};
use crate::subject::{self, Subject};
use crate::table::Table;
use crate::terminal::Target;
use crate::wait::now;

pub(crate) mod certificates;
pub(crate) mod full;
pub(crate) mod routes;

const EXAMPLES: &str = "\
Examples:
  plimsoll get deployments
  plimsoll get services
  plimsoll get replicas -o json
  plimsoll get nodes
  plimsoll get routes
  plimsoll get certificates
  plimsoll get shop-web-2          one replica in full
  plimsoll get shop-web-2 shop/db  several, of any kind";

/// List deployments, services, replicas, nodes, routes or certificates, or show some in full.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// deployments, services, replicas, nodes, routes, certificates; or names: shop, shop/web, shop-web-2
    #[arg(value_name = "KIND|NAME", required = true)]
    what: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    reading: ConsistencyArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let client = args.reading.of(args.host.client()?);
    live::block_on(async {
        let status = client.status().await?;
        remark(&client);
        let width = Target::Stdout.size().map(|(width, _)| width);
        let word = args.what[0].as_str();
        let is_name = status.deployments.iter().any(|deployment| deployment.name == word);
        match (word, args.what.len()) {
            (_, 1) if is_name => one(&status, word, args.output, width),
            ("deployment" | "deployments", 1) => {
                print(args.output, &status.deployments, |all| deployments(all, now()))
            }
            ("service" | "services", 1) => {
                let all: Vec<_> = status.deployments.iter().flat_map(of_deployment).collect();
                print(args.output, &all, |all| services(all))
            }
            ("replica" | "replicas", 1) => {
                let all = status.deployments.iter().flat_map(|it| &it.services);
                let all: Vec<_> = all.flat_map(|service| &service.replicas).collect();
                print(args.output, &all, |all| replicas(all, now(), width))
            }
            ("node" | "nodes", 1) => {
                print(args.output, &status.nodes, |all| node::text(all, now(), width))
            }
            ("certificate" | "certificates", 1) => {
                let all = client.certificates().await?;
                print(args.output, &all, |all| certificates::text(all, now()))
            }
            ("route" | "routes", 1) => {
                let all = client.routes().await?;
                print(args.output, &all, |all| routes::text(all))
            }
            (_, 1) => one(&status, word, args.output, width),
            _ => several(&status, &args.what, args.output, width),
        }
    })
}

/// A service, and whose it is.
#[derive(Debug, Serialize)]
struct Owned<'s> {
    deployment: &'s str,
    #[serde(flatten)]
    service: &'s Service,
}

/// One thing in full, of whatever kind.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Thing<'s> {
    Deployment(&'s Deployment),
    Service(Owned<'s>),
    Replica(&'s Replica),
}

fn of_deployment(deployment: &Deployment) -> impl Iterator<Item = Owned<'_>> {
    let owned = |service| Owned { deployment: &deployment.name, service };
    deployment.services.iter().map(owned)
}

fn one(status: &Status, name: &str, format: Format, width: Option<usize>) -> Result<(), CliError> {
    let subject = subject::find(status, name)?;
    print(format, &thing(subject), |_| in_full(status, subject, width))
}

fn several(
    status: &Status,
    names: &[String],
    format: Format,
    width: Option<usize>,
) -> Result<(), CliError> {
    let found = names.iter().map(|name| subject::find(status, name));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let things: Vec<Thing<'_>> = found.iter().map(|subject| thing(*subject)).collect();
    print(format, &things, |_| {
        let pages: Vec<String> =
            found.iter().map(|subject| in_full(status, *subject, width)).collect();
        pages.join("\n")
    })
}

fn thing(subject: Subject<'_>) -> Thing<'_> {
    match subject {
        Subject::Deployment(deployment) => Thing::Deployment(deployment),
        Subject::Service(deployment, service) => {
            Thing::Service(Owned { deployment: &deployment.name, service })
        }
        Subject::Replica(_, _, replica) => Thing::Replica(replica),
    }
}

fn in_full(status: &Status, subject: Subject<'_>, width: Option<usize>) -> String {
    match subject {
        Subject::Deployment(deployment) => {
            let only = Status { deployments: vec![deployment.clone()], ..status.clone() };
            page::text(&only, now(), width, page::Fold::Nothing)
        }
        Subject::Service(_, service) => {
            replicas(&service.replicas.iter().collect::<Vec<_>>(), now(), width)
        }
        Subject::Replica(deployment, service, replica) => {
            full::text(deployment, service, replica, now())
        }
    }
}

fn deployments(all: &[Deployment], now: Timestamp) -> String {
    let mut table = Table::new([
        "DEPLOYMENT",
        ">REVISION",
        "STATE",
        ">SERVICES",
        ">RUNNING",
        ">WANTED",
        ">AGE",
        "BY",
    ]);
    for deployment in all {
        let sum = |count: fn(&Service) -> u32| deployment.services.iter().map(count).sum::<u32>();
        table.row([
            deployment.name.clone(),
            deployment.revision.to_string(),
            coloured(progress_word(deployment)),
            deployment.services.len().to_string(),
            sum(|service| service.running).to_string(),
            sum(|service| service.wanted).to_string(),
            age(deployment.applied_at, now),
            deployment.applied_by.clone(),
        ]);
    }
    table.render()
}

fn services(all: &[Owned<'_>]) -> String {
    let mut table =
        Table::new(["SERVICE", ">RUNNING", ">WANTED", "PLACEMENT", "IMAGE", "PORTS", "SPEC"]);
    for Owned { deployment, service } in all {
        table.row([
            format!("{deployment}/{}", service.name),
            service.running.to_string(),
            service.wanted.to_string(),
            service.mode.clone(),
            service.image.clone(),
            or_dash(service.ports_line()),
            short(&service.spec),
        ]);
    }
    table.render()
}

fn replicas(all: &[&Replica], now: Timestamp, width: Option<usize>) -> String {
    let mut table =
        Table::new(["REPLICA", "STATE", "NODE", ">AGE", ">CPU", ">MEMORY", "IMAGE", "DETAIL"]);
    for replica in all {
        let line = ReplicaLine::of(replica);
        let detail = format!("{}{}", line.detail, line.countdown(now));
        let place = replica.now.as_ref();
        table.row([
            replica.id.clone(),
            coloured(&line.state),
            or_dash(line.node.unwrap_or_default()),
            line.since.map_or_else(|| "-".to_owned(), |since| age(since, now)),
            cpu(place.and_then(|place| place.cpu_millis)),
            memory(place.and_then(|place| place.memory_bytes)),
            or_dash(place.map(|place| place.image.clone()).unwrap_or_default()),
            detail,
        ]);
    }
    table.within(width)
}

/// In cores.
pub(super) fn cpu(millis: Option<u64>) -> String {
    or_dash(millis.map(|millis| MilliCpus(millis).to_string()).unwrap_or_default())
}

pub(super) fn memory(bytes: Option<u64>) -> String {
    or_dash(bytes.map(|bytes| Bytes(bytes).to_string()).unwrap_or_default())
}

/// As much of a hash as tells specs apart.
fn short(spec: &str) -> String {
    spec.chars().take(12).collect()
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::sample::{NOW, With, deployment, status, unpulled};

    fn sample() -> Status {
        let shop = deployment("shop")
            .service("db", 1)
            .service("web", 2)
            .replica("shop-web-2", |replica| replica.now = Some(unpulled("ash")));
        status(vec![shop])
    }

    fn stripped(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn every_kind_is_a_table() {
        let status = sample();
        expect![[r#"
            DEPLOYMENT  REVISION  STATE   SERVICES  RUNNING  WANTED  AGE  BY
            shop               3  steady         2        2       3   4m  ada
        "#]]
        .assert_eq(&stripped(&deployments(&status.deployments, NOW)));
        let owned: Vec<Owned<'_>> = status.deployments.iter().flat_map(of_deployment).collect();
        expect![[r#"
            SERVICE   RUNNING  WANTED  PLACEMENT  IMAGE     PORTS  SPEC
            shop/db         1       1  spread     db:1.27   -      spec-3
            shop/web        1       2  spread     web:1.27  -      spec-3
        "#]]
        .assert_eq(&stripped(&services(&owned)));
        let all: Vec<&Replica> =
            status.deployments[0].services.iter().flat_map(|it| &it.replicas).collect();
        expect![[r#"
            REPLICA     STATE    NODE  AGE   CPU  MEMORY  IMAGE     DETAIL
            shop-db-1   running  ash    4m  0.12  48 MiB  web:1.23
            shop-web-1  running  ash    4m  0.12  48 MiB  web:1.23
            shop-web-2  pending  ash    3s  0.12  48 MiB  web:1.23  image_pull_failed: web:1.99: manifest unknown; next try in 8s
        "#]].assert_eq(&stripped(&replicas(&all, NOW, None)));
    }
}
