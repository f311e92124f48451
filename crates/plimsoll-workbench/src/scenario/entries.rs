//! The words of a scenario file, as they are written.

use std::num::NonZeroUsize;

use plimsoll_model::{Bytes, DeploymentName, FileName, MilliCpus, Millis, NodeId, RegistryHost};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::shape::ShapeEntry;
use crate::entries::deployment::DeploymentEntry;
use crate::entries::node::NodeEntry;
use crate::entries::values::{NameOr, Offset, Pairs, Parsed, ServiceRef, Span};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioEntry {
    pub(super) name: Option<String>,
    pub(super) length: Spanned<Parsed<Millis>>,
    pub(super) cycle: Option<Spanned<Parsed<Millis>>>,
    /// The most changes of a decision that go into one entry of the log.
    pub(super) max_changes: Option<NonZeroUsize>,
    /// What cannot happen is passed over, as by an operator who is refused.
    #[serde(default)]
    pub(super) lenient: bool,
    pub(super) nodes: Spanned<Vec<NodeEntry>>,
    #[serde(default)]
    pub(super) deployments: Vec<Spanned<DeploymentEntry>>,
    #[serde(default)]
    pub(super) usage: Pairs<Spanned<ServiceRef>, UsageEntry>,
    #[serde(default)]
    pub(super) takes: TakesEntry,
    #[serde(default)]
    pub(super) events: Vec<Spanned<EventEntry>>,
    pub(super) chaos: Option<ChaosEntry>,
}

/// What one replica uses; what is left out is what it reserves.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageEntry {
    pub(super) cpus: Option<Spanned<ShapeEntry<MilliCpus>>>,
    pub(super) memory: Option<Spanned<ShapeEntry<Bytes>>>,
}

/// How long things take, from least to most.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TakesEntry {
    pub(super) pull: Option<Spanned<Parsed<Span>>>,
    pub(super) start: Option<Spanned<Parsed<Span>>>,
    pub(super) health: Option<Spanned<Parsed<Span>>>,
    pub(super) stop: Option<Spanned<Parsed<Span>>>,
    pub(super) network: Option<Spanned<Parsed<Span>>>,
    pub(super) commit: Option<Spanned<Parsed<Span>>>,
    pub(super) election: Option<Spanned<Parsed<Span>>>,
}

/// A time, and one of the rest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventEntry {
    pub(super) at: Spanned<Parsed<Millis>>,
    pub(super) crash: Option<Spanned<NodeId>>,
    pub(super) cut: Option<Spanned<NodeId>>,
    pub(super) wipe: Option<Spanned<NodeId>>,
    #[serde(rename = "return")]
    pub(super) comes_back: Option<Spanned<NodeId>>,
    pub(super) join: Option<NodeEntry>,
    pub(super) change_node: Option<NodeEntry>,
    pub(super) cordon: Option<Spanned<NodeId>>,
    pub(super) uncordon: Option<Spanned<NodeId>>,
    pub(super) drain: Option<Spanned<NameOr<NodeId, DrainEntry>>>,
    pub(super) remove: Option<Spanned<NodeId>>,
    pub(super) recover: Option<RecoverEntry>,
    pub(super) kill: Option<Spanned<NodeId>>,
    pub(super) unhealthy: Option<Spanned<NodeId>>,
    pub(super) stop_engine: Option<Spanned<NodeId>>,
    pub(super) lose_engine: Option<Spanned<NodeId>>,
    pub(super) start_engine: Option<Spanned<NodeId>>,
    pub(super) fail: Option<Spanned<ServiceRef>>,
    pub(super) poison: Option<Spanned<ServiceRef>>,
    pub(super) cure: Option<Spanned<ServiceRef>>,
    pub(super) new_leader: Option<Spanned<bool>>,
    pub(super) clock: Option<Parsed<Offset>>,
    pub(super) deploy: Option<Spanned<DeploymentEntry>>,
    pub(super) undeploy: Option<Spanned<NameOr<DeploymentName, UndeployEntry>>>,
    pub(super) move_volume: Option<Spanned<VolumeEntry>>,
    pub(super) remove_volume: Option<Spanned<VolumeEntry>>,
    pub(super) back_up_volume: Option<Spanned<VolumeEntry>>,
    pub(super) restore_volume: Option<Spanned<VolumeEntry>>,
    pub(super) scale: Option<ScaleEntry>,
    pub(super) rollback: Option<Spanned<NameOr<DeploymentName, RollbackEntry>>>,
    pub(super) restart: Option<Spanned<String>>,
    pub(super) pause: Option<Spanned<DeploymentName>>,
    pub(super) resume: Option<Spanned<DeploymentName>>,
    pub(super) abort: Option<Spanned<DeploymentName>>,
    #[serde(rename = "break")]
    pub(super) breaks: Option<Spanned<String>>,
    pub(super) mend: Option<Spanned<String>>,
    pub(super) withdraw: Option<Spanned<String>>,
    pub(super) restore: Option<Spanned<String>>,
    pub(super) exhaust_subnets: Option<Spanned<NodeId>>,
    pub(super) free_subnets: Option<Spanned<NodeId>>,
    pub(super) join_token: Option<Spanned<bool>>,
    pub(super) revoke_join_token: Option<Spanned<bool>>,
    pub(super) add_operator: Option<String>,
    pub(super) revoke_operator: Option<String>,
    pub(super) exec: Option<Spanned<NodeId>>,
    pub(super) backup: Option<Spanned<bool>>,
    pub(super) rotate_authority: Option<Spanned<bool>>,
    pub(super) rotate_without_down: Option<Spanned<bool>>,
    pub(super) abort_rotation: Option<Spanned<bool>>,
    pub(super) rotate_backup_key: Option<Spanned<bool>>,
    pub(super) raise: Option<Spanned<bool>>,
    pub(super) join_fleet: Option<Spanned<bool>>,
    pub(super) leave_fleet: Option<Spanned<bool>>,
    pub(super) mistake_for_coordinator: Option<Spanned<bool>>,
    pub(super) rescheduling: Option<ReschedulingEntry>,
    pub(super) optimize: Option<Spanned<bool>>,
    pub(super) machines: Option<Spanned<String>>,
    pub(super) create_secret: Option<FileName>,
    pub(super) rotate_secret: Option<FileName>,
    pub(super) remove_secret: Option<FileName>,
    pub(super) certify: Option<Spanned<String>>,
    pub(super) login_registry: Option<RegistryHost>,
    pub(super) logout_registry: Option<RegistryHost>,
}

impl EventEntry {
    /// How many things it says happen.
    pub(super) fn count(&self) -> usize {
        let given = [
            self.crash.is_some(),
            self.cut.is_some(),
            self.wipe.is_some(),
            self.comes_back.is_some(),
            self.join.is_some(),
            self.change_node.is_some(),
            self.cordon.is_some(),
            self.uncordon.is_some(),
            self.drain.is_some(),
            self.remove.is_some(),
            self.recover.is_some(),
            self.kill.is_some(),
            self.unhealthy.is_some(),
            self.stop_engine.is_some(),
            self.lose_engine.is_some(),
            self.start_engine.is_some(),
            self.fail.is_some(),
            self.poison.is_some(),
            self.cure.is_some(),
            self.new_leader.is_some(),
            self.clock.is_some(),
            self.deploy.is_some(),
            self.undeploy.is_some(),
            self.move_volume.is_some(),
            self.remove_volume.is_some(),
            self.back_up_volume.is_some(),
            self.restore_volume.is_some(),
            self.scale.is_some(),
            self.rollback.is_some(),
            self.restart.is_some(),
            self.pause.is_some(),
            self.resume.is_some(),
            self.abort.is_some(),
            self.breaks.is_some(),
            self.mend.is_some(),
            self.withdraw.is_some(),
            self.restore.is_some(),
            self.exhaust_subnets.is_some(),
            self.free_subnets.is_some(),
            self.join_token.is_some(),
            self.revoke_join_token.is_some(),
            self.add_operator.is_some(),
            self.revoke_operator.is_some(),
            self.exec.is_some(),
            self.backup.is_some(),
            self.rotate_authority.is_some(),
            self.rotate_without_down.is_some(),
            self.abort_rotation.is_some(),
            self.rotate_backup_key.is_some(),
            self.raise.is_some(),
            self.join_fleet.is_some(),
            self.leave_fleet.is_some(),
            self.mistake_for_coordinator.is_some(),
            self.rescheduling.is_some(),
            self.optimize.is_some(),
            self.machines.is_some(),
            self.create_secret.is_some(),
            self.rotate_secret.is_some(),
            self.remove_secret.is_some(),
            self.certify.is_some(),
            self.login_registry.is_some(),
            self.logout_registry.is_some(),
        ];
        given.into_iter().filter(|is_given| *is_given).count()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainEntry {
    pub(super) node: NodeId,
    pub(super) timeout: Option<Parsed<Millis>>,
    #[serde(default)]
    pub(super) force: bool,
}

/// How the rescheduler is set for the cell.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReschedulingEntry {
    #[serde(default)]
    pub(super) paused: bool,
    /// In percent.
    pub(super) target: Option<u8>,
}

/// The cell goes on with one server, without the lost nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecoverEntry {
    pub(super) node: Spanned<NodeId>,
    #[serde(default)]
    pub(super) lost: Vec<Spanned<NodeId>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UndeployEntry {
    pub(super) name: DeploymentName,
    #[serde(default)]
    pub(super) volumes: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeEntry {
    pub(super) name: DeploymentName,
    pub(super) node: Spanned<NodeId>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScaleEntry {
    pub(super) service: Spanned<ServiceRef>,
    pub(super) replicas: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackEntry {
    pub(super) name: DeploymentName,
    pub(super) to: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChaosEntry {
    pub(super) until: Spanned<Parsed<Millis>>,
    pub(super) every: Option<Spanned<Parsed<Millis>>>,
    pub(super) outage: Option<Spanned<Parsed<Span>>>,
}
