//! What is simulated: the cell, how long its machines take, and what happens to it when.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_kernel::Policy;
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::reschedule::RescheduleSettings;
use plimsoll_model::{
    DeploymentName, FileName, Millis, NodeFacts, NodeId, RegistryHost, ServiceKey, ServiceName,
    ServiceSpec,
};

use crate::usage::Usage;

mod text;

pub type Services = BTreeMap<ServiceName, Arc<ServiceSpec>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    pub name: String,
    pub length: Millis,
    pub nodes: BTreeMap<NodeId, NodeFacts>,
    pub deployments: BTreeMap<DeploymentName, Services>,
    /// A service not named here uses what it reserves.
    pub usage: BTreeMap<ServiceKey, Usage>,
    pub dwell: Dwell,
    pub script: Vec<(Millis, Action)>,
    pub policy: Policy,
}

impl Scenario {
    pub fn new(name: &str, length: Millis) -> Self {
        Self {
            name: name.to_owned(),
            length,
            nodes: BTreeMap::new(),
            deployments: BTreeMap::new(),
            usage: BTreeMap::new(),
            dwell: Dwell::default(),
            script: Vec::new(),
            policy: Policy::default(),
        }
    }

    /// When the last scripted thing happens.
    pub fn last_action(&self) -> Millis {
        self.script.iter().map(|(at, _)| *at).max().unwrap_or_default()
    }
}

/// How long things take on a machine, at least and at most. Never nothing: an instant hides every race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dwell {
    pub pull: (Millis, Millis),
    pub start: (Millis, Millis),
    pub health: (Millis, Millis),
    pub stop: (Millis, Millis),
    /// From a node to the leader and back.
    pub network: (Millis, Millis),
    pub commit: (Millis, Millis),
    pub election: (Millis, Millis),
}

impl Default for Dwell {
    fn default() -> Self {
        let range = |least, most| (Millis(least), Millis(most));
        Self {
            pull: range(2_000, 15_000),
            start: range(200, 1_500),
            health: range(1_000, 6_000),
            stop: range(100, 10_000),
            network: range(1, 40),
            commit: range(2, 30),
            election: range(200, 3_000),
        }
    }
}

/// Something that happens to the cell: everything an operator, a machine or chance can do to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The machine loses power; what ran on it is gone.
    Crash(NodeId),
    /// The machine runs on, but nobody hears of it.
    Cut(NodeId),
    /// The machine loses power and its disks. It returns under its name with nothing, as a node that joins.
    Wipe(NodeId),
    /// Power or network are back.
    Return(NodeId),
    /// A running container ends by itself.
    Kill(NodeId),
    /// The healthcheck of a running container fails.
    Sicken(NodeId),
    /// The container engine of the machine goes down, and its containers with it. The machine is heard.
    StopEngine(NodeId),
    /// The container engine goes down, and its containers run on.
    LoseEngine(NodeId),
    /// The container engine is back.
    StartEngine(NodeId),
    /// Every running container of the service ends by itself.
    Fail(ServiceKey),
    NewLeader,
    /// The leader is lost, and the clock of the next one is off by so many milliseconds.
    Skew(i64),
    /// From now on what a leader decides for the replicas of the service is refused by the state.
    Poison(ServiceKey),
    /// What is decided for it is right again.
    Cure(ServiceKey),
    /// From now on containers of this image fail when started.
    Break(String),
    Mend(String),
    /// From now on this image cannot be pulled.
    Withdraw(String),
    Restore(String),
    /// The node has no addresses left for a network that it does not have yet.
    ExhaustSubnets(NodeId),
    FreeSubnets(NodeId),

    Join(NodeId, NodeFacts),
    /// The node says something else of itself: its capacity, its zone or its labels.
    Describe(NodeId, NodeFacts),
    Cordon(NodeId),
    Uncordon(NodeId),
    Drain {
        node: NodeId,
        timeout: Millis,
        /// What cannot move is stopped.
        force: bool,
    },
    Remove(NodeId),
    /// The cell goes on with this node as its only server, and without the lost ones.
    Recover {
        node: NodeId,
        lost: Vec<NodeId>,
    },

    Deploy(DeploymentName, Services),
    Undeploy {
        deployment: DeploymentName,
        /// Its named volumes go as well.
        volumes: bool,
    },
    /// A volume of the deployment moves to the node, with all it is tied to.
    MoveVolume(DeploymentName, NodeId),
    /// The node is to remove its copy of a volume of the deployment; where it has none, one that a lost node has is forgotten.
    RemoveVolume(DeploymentName, NodeId),
    /// A client backs up a volume of the deployment that the node has, or any.
    BackUpVolume(DeploymentName, NodeId),
    /// A client replaces what is in one; where the deployment has none, one begins on the node.
    RestoreVolume(DeploymentName, NodeId),
    Scale(ServiceKey, u32),
    /// To this revision, or to the one before.
    Rollback(DeploymentName, Option<u32>),
    /// Every replica of the deployment, or of one service of it, is to start anew.
    Restart(DeploymentName, Option<ServiceName>),
    /// Every rollout of the deployment that is under way.
    Rollout(DeploymentName, RolloutRequest),

    CreateJoinToken,
    /// One that is still good, if there is any.
    RevokeJoinToken,
    AddOperator(String),
    RevokeOperator(String),
    /// A command is run beside a replica on this node.
    Exec(NodeId),
    Backup,
    /// The cell is to have another authority.
    RotateAuthority,
    /// The rotation goes on without the nodes that are down.
    RotateWithoutDown,
    AbortRotation,
    RotateBackupKey,
    /// The rescheduler is paused or resumed, or gets another target.
    Reschedule(RescheduleSettings),
    /// A better layout is looked for, and carried out.
    Optimize,
    /// Something about the machines of the cell.
    Machines(MachineAction),
    /// Every server reads this build's level.
    Raise,

    CreateSecret(FileName),
    /// It gets a value that it never had.
    RotateSecret(FileName),
    RemoveSecret(FileName),
    /// Certificates that are due are asked for, one step of each, and the authority answers so.
    Certify(AcmeAnswer),
    /// The cell shows this registry a password that it never had.
    LoginRegistry(RegistryHost),
    LogoutRegistry(RegistryHost),
    /// The cell joins a fleet.
    JoinFleet,
    LeaveFleet,
    /// Somebody asks it for what only a coordinator does.
    MistakeForCoordinator,
}

/// How an ACME authority answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcmeAnswer {
    /// It takes orders, and issues what is ordered.
    Issues,
    /// It does not believe that the host is ours.
    Disbelieves,
    /// It says that we ask too much.
    IsBusy,
    /// It is asked, and whoever asked does not live to write the answer down.
    IsLost,
}

impl AcmeAnswer {
    pub const ALL: [Self; 4] = [Self::Issues, Self::Disbelieves, Self::IsBusy, Self::IsLost];

    pub fn word(self) -> &'static str {
        match self {
            Self::Issues => "issues",
            Self::Disbelieves => "disbelieves",
            Self::IsBusy => "is_busy",
            Self::IsLost => "is_lost",
        }
    }
}

/// What an operator asks of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutRequest {
    Pause,
    Resume,
    Abort,
}

impl Action {
    /// A drain as it is asked for where nobody says more.
    pub fn drain(node: NodeId) -> Self {
        Self::Drain { node, timeout: DRAIN_TIMEOUT, force: false }
    }

    /// The node it is about, if it is about one.
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Self::Crash(node)
            | Self::Cut(node)
            | Self::Wipe(node)
            | Self::Return(node)
            | Self::Kill(node)
            | Self::Sicken(node)
            | Self::StopEngine(node)
            | Self::LoseEngine(node)
            | Self::StartEngine(node)
            | Self::Join(node, _)
            | Self::Describe(node, _)
            | Self::Cordon(node)
            | Self::Uncordon(node)
            | Self::Drain { node, .. }
            | Self::Remove(node)
            | Self::Recover { node, .. }
            | Self::ExhaustSubnets(node)
            | Self::FreeSubnets(node)
            | Self::MoveVolume(_, node)
            | Self::RemoveVolume(_, node)
            | Self::BackUpVolume(_, node)
            | Self::RestoreVolume(_, node)
            | Self::Exec(node) => Some(node),
            _ => None,
        }
    }

    /// The deployment it is about, if it is about one.
    pub fn deployment(&self) -> Option<&DeploymentName> {
        match self {
            Self::Deploy(deployment, _)
            | Self::Undeploy { deployment, .. }
            | Self::MoveVolume(deployment, _)
            | Self::RemoveVolume(deployment, _)
            | Self::BackUpVolume(deployment, _)
            | Self::RestoreVolume(deployment, _)
            | Self::Rollback(deployment, _)
            | Self::Restart(deployment, _)
            | Self::Rollout(deployment, _) => Some(deployment),
            Self::Fail(service)
            | Self::Poison(service)
            | Self::Cure(service)
            | Self::Scale(service, _) => Some(&service.deployment),
            _ => None,
        }
    }
}

/// What happens to the machines of a cell from outside. Which machine, and how, the world draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineAction {
    /// The provider has one more, or describes one anew.
    Offer,
    /// The provider has one less.
    Withdraw,
    Pause,
    Resume,
    /// The coordinator of a fleet says something, or again, or nothing any more.
    Instruct,
}

impl MachineAction {
    pub const ALL: [Self; 5] =
        [Self::Offer, Self::Withdraw, Self::Pause, Self::Resume, Self::Instruct];

    pub fn word(self) -> &'static str {
        match self {
            Self::Offer => "offer",
            Self::Withdraw => "withdraw",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Instruct => "instruct",
        }
    }
}
