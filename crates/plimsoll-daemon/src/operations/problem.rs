//! Errors as the API words them: a code from a closed list, and the next step.

use plimsoll_api::view::{Problem, ProblemCode};
use plimsoll_model::cell_files::{CellFileKind, MissingFile};
use plimsoll_runtime::chain;

use super::Error;
use crate::problem;

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let said = |code| Self::new(code, error.to_string());
        match error {
            Error::NoSuchDeployment { hint, .. } => {
                said(ProblemCode::NoSuchDeployment).hint(hint)
            }
            Error::NoSuchService { hint, .. } => said(ProblemCode::NoSuchService).hint(hint),
            Error::NoSuchReplica { hint, .. } => said(ProblemCode::NoSuchReplica).hint(hint),
            Error::NoSuchRoute { hint, .. } => said(ProblemCode::NoSuchRoute).hint(hint),
            Error::NoSuchNode { hint, .. } => said(ProblemCode::NoSuchNode).hint(hint),
            Error::LastNode { .. } => said(ProblemCode::LastNode),
            Error::AlreadyDraining { node } => said(ProblemCode::AlreadyDraining).hint(format!(
                "`plimsoll status -w` shows its progress, `plimsoll node uncordon {node}` cancels it, `--force` stops \
                 replicas that cannot move"
            )),
            Error::BadTarget { .. } => said(ProblemCode::BadTarget),
            Error::Unforeseen => said(ProblemCode::Bug),
            Error::NoRollout { deployment, .. } => said(ProblemCode::NoRollout)
                .hint(format!("`plimsoll rollout status {deployment}` shows the latest of each service")),
            Error::RevisionChanged { .. } => said(ProblemCode::RevisionChanged),
            Error::Contended { .. } => said(ProblemCode::Contended),
            Error::NoSuchRevision { kept, .. } => {
                let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
                said(ProblemCode::NoSuchRevision).hint(format!("kept are {}", kept.join(", ")))
            }
            Error::SameRevision { .. } => said(ProblemCode::SameRevision),
            Error::NoEarlierRevision { .. } => said(ProblemCode::NoEarlierRevision),
            Error::NoServices { .. } => said(ProblemCode::NoServices),
            Error::GlobalReplicas { .. } => said(ProblemCode::GlobalReplicas),
            Error::NothingToScale => said(ProblemCode::NothingToScale),
            Error::MissingDependency { hint, .. } => {
                said(ProblemCode::MissingDependency).hint(hint)
            }
            Error::MissingFiles { missing } => {
                let create = |it: &MissingFile| format!("`plimsoll {} create {} FILE`", it.kind, it.name);
                let mut commands: Vec<String> = missing.iter().map(create).collect();
                commands.sort_unstable();
                commands.dedup();
                said(ProblemCode::MissingFile).hint(format!("create them first: {}", commands.join(", ")))
            }
            Error::ForeignFiles { .. } => said(ProblemCode::Forbidden)
                .hint("name the secret or config like the deployments, or use a token that is bound to none"),
            Error::NoSuchFile { kind: CellFileKind::Secret, hint, .. } => {
                said(ProblemCode::NoSuchSecret).hint(hint)
            }
            Error::NoSuchFile { kind: CellFileKind::Config, hint, .. } => {
                said(ProblemCode::NoSuchConfig).hint(hint)
            }
            Error::NoSuchRegistry { hint, .. } => said(ProblemCode::NoSuchRegistry).hint(hint),
            Error::NoSuchVolume { hint, .. } => said(ProblemCode::NoSuchVolume).hint(hint),
            Error::VolumeOnSeveral { volume, .. } => said(ProblemCode::VolumeOnSeveralNodes)
                .hint(format!("name the node whose copy of {volume} is meant with `--node NODE`")),
            Error::VolumeNotHeld { .. } => said(ProblemCode::VolumeNotHeld),
            Error::Name(_) | Error::BadVolumeName { .. } => said(ProblemCode::BadName),
            Error::VolumeNowhere { .. } => said(ProblemCode::VolumeNodeDown)
                .hint("bring a node back or uncordon one, or name one with `--node NODE`"),
            Error::VolumePerReplica { .. } | Error::VolumeDriven { .. } => {
                said(ProblemCode::VolumeFixed)
            }
            Error::VolumeUnfit { .. } => said(ProblemCode::VolumeUnfit),
            Error::CircularDependency { .. } => said(ProblemCode::CircularDependency),
            Error::PortTaken { by, .. } => said(ProblemCode::PortTaken).hint(format!(
                "publish another port, or remove it from {by} first: every node listens on a published port"
            )),
            Error::RouteNowhere { .. } => said(ProblemCode::RouteNowhere),
            Error::RouteTaken { by, .. } => said(ProblemCode::RouteTaken).hint(format!(
                "choose another host or path, or remove it from {by} first: every node serves all routes"
            )),
            Error::BadRoute { .. } => said(ProblemCode::BadRoute),
            Error::CannotRun { .. } => said(ProblemCode::CannotRun),
            Error::NotAssigned { .. } => said(ProblemCode::NotAssigned),
            Error::NotOf { replica, .. } => {
                said(ProblemCode::NotOf).hint(format!("it is a replica of {}", replica.service))
            }
            Error::Privileged { .. } => said(ProblemCode::Forbidden)
                .hint("change these, or use a token with role admin: `plimsoll token create NAME --role admin`"),
            Error::BadSpec { .. } => said(ProblemCode::BadSpec),
            Error::NoSuchKind { hint, .. } => said(ProblemCode::NoSuchKind).hint(hint),
            Error::NoCommand => said(ProblemCode::NoCommand),
            Error::TooManyLogs { .. } => said(ProblemCode::TooManyReplicas),
            Error::Write(error) => problem::written(error),
            Error::Runtime(error) => problem::runtime(error),
            Error::Disk { .. } => Self::new(ProblemCode::Disk, chain(error)),
        }
    }
}
