//! Errors as the API words them: a code from a closed list, and the next step.

use plimsoll_model::level::remedy;
use plimsoll_model::{Refusal, Rejection};
use plimsoll_runtime::chain;

use plimsoll_store::embedded::ROOM;

use super::Error;
use crate::cell::WriteError;
use crate::view::Problem;

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let refusal = |code: &str| Self::refusal(code, error.to_string());
        match error {
            Error::Name(_) => refusal("bad_name"),
            Error::NoSuchDeployment { hint, .. } => refusal("no_such_deployment").hint(hint),
            Error::NoSuchService { hint, .. } => refusal("no_such_service").hint(hint),
            Error::NoSuchReplica { hint, .. } => refusal("no_such_replica").hint(hint),
            Error::NoSuchRoute { hint, .. } => refusal("no_such_route").hint(hint),
            Error::NoSuchNode { hint, .. } => refusal("no_such_node").hint(hint),
            Error::LastNode { .. } => refusal("last_node").hint(
                "join another or uncordon one first; `--force` stops what is on it instead",
            ),
            Error::AlreadyDraining { node } => refusal("already_draining").hint(format!(
                "`plimsoll status -w` shows how far it is, `plimsoll node uncordon {node}` calls it off, `--force` stops \
                 what cannot move"
            )),
            Error::Unforeseen => Self::failure("bug", error.to_string()),
            Error::NoRollout { deployment, .. } => refusal("no_rollout")
                .hint(format!("`plimsoll rollout status {deployment}` shows the latest of each service")),
            Error::RevisionChanged { .. } => refusal("revision_changed")
                .hint("look at what changed with `plimsoll history`, then apply again"),
            Error::Contended { .. } => refusal("contended").hint("try again"),
            Error::NoSuchRevision { kept, .. } => {
                let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
                refusal("no_such_revision").hint(format!("kept are {}", kept.join(", ")))
            }
            Error::SameRevision { .. } => refusal("same_revision")
                .hint("`plimsoll history` lists those that can be rolled back to"),
            Error::NoEarlierRevision { .. } => refusal("no_earlier_revision")
                .hint("`plimsoll history` lists the revisions that are kept"),
            Error::NoServices { .. } => {
                refusal("no_services").hint("to remove a deployment, delete it")
            }
            Error::GlobalReplicas { .. } => refusal("global_replicas")
                .hint("set placement to spread or pack to choose a number"),
            Error::NothingToScale => {
                refusal("nothing_to_scale").hint("name services and numbers, as in web=3")
            }
            Error::MissingDependency { hint, .. } => refusal("missing_dependency").hint(hint),
            Error::CircularDependency { .. } => {
                refusal("circular_dependency").hint("remove one of these from depends_on")
            }
            Error::PortTaken { by, .. } => refusal("port_taken").hint(format!(
                "publish another number, or take it from {by} first: every node listens on a published port"
            )),
            Error::RouteNowhere { .. } => refusal("route_nowhere")
                .hint("let the route lead to a service of the same file, or remove it"),
            Error::RouteTaken { by, .. } => refusal("route_taken").hint(format!(
                "choose another host or path, or take it from {by} first: every node serves all routes"
            )),
            Error::BadRoute { .. } => refusal("bad_route"),
            Error::CannotRun { .. } => refusal("cannot_run")
                .hint("change these in the compose file, or use a node with another runtime"),
            Error::NotAssigned { .. } => {
                refusal("not_assigned").hint("it is retired and only stops")
            }
            Error::NotOf { replica, .. } => {
                refusal("not_of").hint(format!("it is a replica of {}", replica.service))
            }
            Error::Privileged { .. } => refusal("forbidden")
                .hint("leave these out, or have an admin do it: `plimsoll token create NAME --role admin`"),
            Error::NoSuchKind { hint, .. } => refusal("no_such_kind").hint(hint),
            Error::NoCommand => refusal("no_command").hint("name a command, as in `-- ls /`"),
            Error::TooManyLogs { .. } => {
                refusal("too_many_replicas").hint("ask for one service or one replica")
            }
            Error::Write(error) => written(error),
            Error::Runtime(error) => runtime(error),
            Error::Disk { .. } => Self::failure("disk", chain(error))
                .hint("see that the data directory has room and can be written"),
        }
    }
}

fn written(error: &WriteError) -> Problem {
    match error {
        WriteError::Refused(rejection) => refused(rejection),
        WriteError::Store(error) => stored(error),
    }
}

fn refused(rejection: &Rejection) -> Problem {
    // Which change of its batch it was is nothing to whoever asked for one thing.
    let refusal = |code: &str| Problem::refusal(code, rejection.reason.to_string());
    match &rejection.reason {
        Refusal::TooMany { .. } => refusal("too_many").hint("ask for fewer"),
        Refusal::TooMuch { .. } => refusal("too_much").hint("ask for less"),
        Refusal::Generation { .. } | Refusal::Revision { .. } => {
            refusal("changed_meanwhile").hint("look again, and try again")
        }
        Refusal::NoSuchDeployment { .. } => refusal("no_such_deployment"),
        Refusal::NoSuchService { .. } => refusal("no_such_service"),
        Refusal::NoSuchReplica { .. } => refusal("no_such_replica"),
        Refusal::NodeInUse { node, .. } => {
            refusal("node_in_use").hint(format!("`plimsoll node drain {node}` moves them away"))
        }
        Refusal::NoRollout { .. } => refusal("no_rollout"),
        Refusal::NothingBefore { .. } => refusal("nothing_before"),
        _ => refusal("refused"),
    }
}

fn stored(error: &plimsoll_store::Error) -> Problem {
    use plimsoll_store::Error;
    let failure = |code: &str| Problem::failure(code, error.to_string());
    match error {
        Error::NotLeader { .. } => failure("not_leader").hint("ask the node that leads"),
        Error::NoLeader => {
            failure("no_leader").hint("it takes a moment after a start; try again in a few seconds")
        }
        Error::QuorumLost => {
            failure("quorum_lost").hint("bring back the servers that are down, then try again")
        }
        Error::Superseded => crate::cluster::quorum::superseded(),
        Error::Outgrown { .. } => failure("outdated").hint(remedy(None)),
        Error::Early { .. } => failure("upgrade_unfinished")
            .hint("upgrade every node; `plimsoll node list` shows which"),
        Error::Unsettled => failure("unsettled").hint("look at the status before you try again"),
        Error::Stopped => failure("stopped").hint("the daemon is going down; start it again"),
        Error::TooLarge { .. } => Problem::refusal("too_large", error.to_string())
            .hint("keep large files out of configs and secrets: mount them from a volume"),
        Error::NotTaken(_) => failure("not_taken"),
        Error::Servers(_) => failure("servers"),
        Error::DiskFull { dir } => failure("disk_full").hint(format!(
            "free {} MB where {} is; the daemon goes on by itself then",
            ROOM >> 20,
            dir.display()
        )),
        Error::Disk(_) => failure("disk").hint(
            "see that the data directory has room and can be written, then restart the daemon",
        ),
    }
}

fn runtime(error: &plimsoll_runtime::Error) -> Problem {
    use plimsoll_runtime::Error;
    match error {
        Error::Absent { .. } => Problem::refusal("not_here", error.to_string())
            .hint("it has not been started yet, or its container was removed"),
        Error::NotRunning { .. } => Problem::refusal("not_running", error.to_string())
            .hint("`plimsoll status` says why it does not run"),
        Error::Unavailable { .. } => Problem::failure("runtime_unavailable", chain(error))
            .hint("see that the container engine runs; the daemon goes on trying"),
        _ => Problem::failure("runtime_failed", chain(error)),
    }
}
