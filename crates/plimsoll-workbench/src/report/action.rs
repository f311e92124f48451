//! What happens to the cell, in words.

use plimsoll_sim::Action;
use plimsoll_sim::scenario::RolloutRequest;

pub(super) fn words(action: &Action) -> String {
    match action {
        Action::Crash(node) => format!("{node} loses power"),
        Action::Cut(node) => format!("{node} is cut off"),
        Action::Wipe(node) => format!("{node} loses its disks"),
        Action::Return(node) => format!("{node} returns"),
        Action::Kill(node) => format!("a container on {node} ends by itself"),
        Action::Sicken(node) => format!("a container on {node} turns unhealthy"),
        Action::StopEngine(node) => {
            format!("the container engine of {node} stops, with its containers")
        }
        Action::LoseEngine(node) => {
            format!("the container engine of {node} is lost; its containers run on")
        }
        Action::StartEngine(node) => format!("the container engine of {node} is back"),
        Action::Fail(service) => format!("every container of {service} ends by itself"),
        Action::Poison(service) => format!("decisions for {service} are refused"),
        Action::Cure(service) => format!("decisions for {service} are taken again"),
        Action::NewLeader => "the leader is lost".to_owned(),
        Action::Skew(millis) => format!("a new leader's clock is off by {millis}ms"),
        Action::Break(image) => format!("{image} no longer starts"),
        Action::Mend(image) => format!("{image} starts again"),
        Action::Withdraw(image) => format!("{image} cannot be pulled"),
        Action::Restore(image) => format!("{image} can be pulled again"),
        Action::ExhaustSubnets(node) => format!("{node} has no addresses for new networks"),
        Action::FreeSubnets(node) => format!("{node} has addresses again"),
        Action::Join(node, _) => format!("{node} joins"),
        Action::Describe(node, _) => format!("{node} changes"),
        Action::Cordon(node) => format!("{node} is cordoned"),
        Action::Uncordon(node) => format!("{node} is uncordoned"),
        Action::Drain { node, force: true, .. } => format!("{node} is drained by force"),
        Action::Drain { node, .. } => format!("{node} is drained"),
        Action::Remove(node) => format!("{node} is removed"),
        Action::Recover { node, .. } => format!("the cell is recovered from {node}"),
        Action::Deploy(name, _) => format!("{name} is deployed"),
        Action::Undeploy { deployment, volumes: true } => {
            format!("{deployment} is deleted with its volumes")
        }
        Action::Undeploy { deployment, .. } => format!("{deployment} is deleted"),
        Action::MoveVolume(deployment, node) => {
            format!("a volume of {deployment} is to move to {node}")
        }
        Action::RemoveVolume(deployment, node) => {
            format!("a volume of {deployment} is to be removed from {node}")
        }
        Action::BackUpVolume(deployment, _) => format!("a volume of {deployment} is backed up"),
        Action::RestoreVolume(deployment, _) => format!("a volume of {deployment} is restored"),
        Action::Scale(service, replicas) => format!("{service} is scaled to {replicas}"),
        Action::Rollback(name, Some(to)) => format!("{name} is rolled back to revision {to}"),
        Action::Rollback(name, None) => format!("{name} is rolled back"),
        Action::Restart(name, None) => format!("{name} is restarted"),
        Action::Restart(name, Some(service)) => format!("{name}/{service} is restarted"),
        Action::Rollout(name, RolloutRequest::Pause) => format!("the rollout of {name} is paused"),
        Action::Rollout(name, RolloutRequest::Resume) => {
            format!("the rollout of {name} is resumed")
        }
        Action::Rollout(name, RolloutRequest::Abort) => format!("the rollout of {name} is aborted"),
        Action::CreateJoinToken => "a join token is created".to_owned(),
        Action::RevokeJoinToken => "a join token is revoked".to_owned(),
        Action::AddOperator(name) => format!("operator {name} is added"),
        Action::RevokeOperator(name) => format!("operator {name} is revoked"),
        Action::Exec(node) => format!("a command is run beside a replica on {node}"),
        Action::Backup => "a backup is taken".to_owned(),
        Action::RotateAuthority => "the authority is rotated".to_owned(),
        Action::RotateWithoutDown => {
            "the rotation does not wait for nodes that are down".to_owned()
        }
        Action::Reschedule(settings) => format!("the rescheduler is set: {settings}"),
        Action::Optimize => "a better layout is asked for".to_owned(),
        Action::Machines(action) => format!("machines: {}", action.word()),
        Action::JoinFleet => "the cell joins a fleet".to_owned(),
        Action::LeaveFleet => "the cell leaves its fleet".to_owned(),
        Action::MistakeForCoordinator => {
            "the cell is asked for what only a coordinator does".to_owned()
        }
        Action::RotateBackupKey => "the backup key is rotated".to_owned(),
        Action::AbortRotation => "the rotation of the authority is aborted".to_owned(),
        Action::Raise => "every server reads this level".to_owned(),
        Action::CreateSecret(name) => format!("secret {name} is created"),
        Action::RotateSecret(name) => format!("secret {name} is rotated"),
        Action::RemoveSecret(name) => format!("secret {name} is removed"),
        Action::LoginRegistry(registry) => format!("the cell logs in to registry {registry}"),
        Action::LogoutRegistry(registry) => format!("the cell logs out of registry {registry}"),
        Action::Certify(answer) => {
            format!("certificates are asked for: the authority {}", answer.word().replace('_', " "))
        }
    }
}
