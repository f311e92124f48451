//! Every answer that is not 2xx: a code from a closed list, a message, and the next step. The code decides the HTTP status and
//! who is at fault.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::codes::codes;

/// Every answer that is not 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// From a closed list; `plimsoll reasons` prints it.
    pub code: ProblemCode,
    pub message: String,
    /// The next step.
    pub hint: Option<String>,
    /// Whether the request is at fault; else the world is.
    pub is_refusal: bool,
}

impl Problem {
    /// With the hint that suits the code.
    pub fn new(code: ProblemCode, message: impl Into<String>) -> Self {
        let hint = code.advice().map(str::to_owned);
        Self { code, message: message.into(), hint, is_refusal: code.is_refusal() }
    }

    /// A better hint, as with the names that are known.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The HTTP status it is answered with.
    pub fn status(&self) -> u16 {
        match self.code {
            ProblemCode::Unknown if self.is_refusal => 422,
            code => code.status(),
        }
    }
}

codes! {
    /// Why a request was not done, as one word.
    pub enum ProblemCode {
        "Malformed requests":
        /// The path is not one of this API.
        NoSuchPath = "no_such_path" => "see /openapi.json for the paths there are",
        /// The path does not take this HTTP method.
        NoSuchMethod = "no_such_method" => "see /openapi.json for what it takes",
        /// A name in the path cannot be read.
        BadPath = "bad_path" => "see /openapi.json for the paths there are",
        /// A query parameter cannot be read.
        BadQuery = "bad_query"
            => "times are written like 2026-11-16T00:30:00Z, switches are true or false",
        /// The body is not the JSON that is expected here.
        BadJson = "bad_json" => "see /openapi.json for what is expected here",
        /// The certificate request of a node cannot be read.
        BadRequest = "bad_request" => "run the same plimsoll on both nodes",
        /// A header of the request must not be there, or must not say this.
        BadHeader = "bad_header" => "leave the header out",
        /// The request ended before its body did.
        CutShort = "cut_short" => "send it again",
        /// The request, or what it writes, is larger than allowed.
        TooLarge = "too_large"
            => "keep large files out of configs and secrets: mount them from a volume",
        /// The name is not one a deployment, service, node or token can have.
        BadName = "bad_name" => "use lower-case letters, digits and hyphens",

        "Authentication, roles and joining":
        /// The request has no token, or one that is not valid.
        Unauthorized = "unauthorized"
            => "log in with what `plimsoll token create` prints: `plimsoll login STRING`; over HTTP send its token as \
                Authorization: Bearer",
        /// The token's role does not allow this.
        Forbidden = "forbidden"
            => "an admin can create a token with another role: `plimsoll token create NAME --role ROLE`",
        /// This node does not hold the log and cannot check who asks; only a token says that.
        TokenNeeded = "token_needed"
            => "pass --token or PLIMSOLL_TOKEN, or run it on a server: `plimsoll cell status` lists them",
        /// The node says who asks, and only the word of a server counts: it has checked them.
        NotAServer = "not_a_server" => "pass the token on instead; `plimsoll cell status` lists the servers",
        /// A certificate was asked for a key that is not the one enrolled for the node.
        OtherKey = "other_key" => "to join with another key, empty its data directory and bring a new token",
        /// Too many join requests from this address were refused.
        JoinLimited = "join_limited" => "wait a minute, then bring a good token: `plimsoll token create-join`",
        /// The node that asks was removed from the cell.
        Removed = "removed" => "join it again with a new token: `plimsoll token create-join`",
        /// The cell does not know this join token.
        TokenUnknown = "token_unknown" => "create one with `plimsoll token create-join`",
        /// Another node has used this join token.
        TokenUsed = "token_used" => "a token is for one node: create another with `plimsoll token create-join`",
        /// The join token has expired.
        TokenExpired = "token_expired" => "create another with `plimsoll token create-join`",
        /// The join token was revoked.
        TokenRevoked = "token_revoked" => "create another with `plimsoll token create-join`",
        /// A ready node of this name is already part of the cell.
        NameTaken = "name_taken" => "choose another name with `--name`",
        /// The key is that of a node that was removed.
        KeyRevoked = "key_revoked" => "empty its data directory and join again",
        /// The node's certificate is of an authority that the cell does not have any more.
        AuthorityChanged = "authority_changed" => "join it again with a new token: `plimsoll token create-join`",
        /// The node joins in another version of the protocol.
        Version = "version" => "run the same plimsoll on both nodes",
        /// The node is too old for its cell.
        Outdated = "outdated" => "upgrade plimsoll on it",

        "Not found":
        /// There is no such deployment.
        NoSuchDeployment = "no_such_deployment" => "`plimsoll get deployments` lists them",
        /// The deployment has no such service.
        NoSuchService = "no_such_service" => "`plimsoll get services` lists them",
        /// There is no such replica.
        NoSuchReplica = "no_such_replica" => "`plimsoll get replicas` lists them",
        /// There is no such node.
        NoSuchNode = "no_such_node" => "`plimsoll node list` lists them",
        /// No route is for this host and path.
        NoSuchRoute = "no_such_route" => "`plimsoll get routes` lists them",
        /// The revision does not exist or is no longer kept.
        NoSuchRevision = "no_such_revision" => "`plimsoll history DEPLOYMENT` lists those that are kept",
        /// There is no token of this name.
        NoSuchOperator = "no_such_operator" => "`plimsoll token list` lists them",
        /// There is no join token of this name that is still good.
        NoSuchJoinToken = "no_such_join_token" => "`plimsoll token list --join` lists them",
        /// The cell keeps no such secret.
        NoSuchSecret = "no_such_secret" => "`plimsoll secret list` lists them",
        /// The cell keeps no such config.
        NoSuchConfig = "no_such_config" => "`plimsoll config list` lists them",
        /// The cell has no credentials for this registry.
        NoSuchRegistry = "no_such_registry" => "`plimsoll registry list` lists them",

        /// The deployment has no such volume, or the node has no copy of it.
        NoSuchVolume = "no_such_volume" => "`plimsoll volume list` lists them",

        /// The fleet has no such shard.
        NoSuchShard = "no_such_shard" => "`plimsoll fleet shards` lists them",

        "Conflicts with the present state":
        /// The deployment is not at the revision the request expects.
        RevisionChanged = "revision_changed"
            => "look at what changed with `plimsoll history`, then apply again",
        /// Others keep changing the deployment; nothing was written.
        Contended = "contended" => "retry",
        /// What the change was decided on has changed meanwhile.
        ChangedMeanwhile = "changed_meanwhile" => "look again, and retry",
        /// The deployment is already at this revision.
        SameRevision = "same_revision"
            => "`plimsoll history` lists those that can be rolled back to",
        /// There is no earlier revision to roll back to.
        NoEarlierRevision = "no_earlier_revision"
            => "`plimsoll history` lists the revisions that are kept",
        /// No rollout is in the state that this needs.
        NoRollout = "no_rollout" => "`plimsoll rollout status DEPLOYMENT` shows the latest of each service",
        /// The service has no previous spec to roll back to.
        NothingBefore = "nothing_before" => "apply a file that works",
        /// The last run of a service on a schedule is not over.
        RunOpen = "run_open" => "wait until it is; `plimsoll status -w` shows it",
        /// The node is already being drained.
        AlreadyDraining = "already_draining"
            => "`plimsoll status -w` shows its progress, `plimsoll node uncordon NODE` cancels it, `--force` stops \
                replicas that cannot move",
        /// It is the last schedulable node: its replicas could go nowhere.
        LastNode = "last_node"
            => "join another node or uncordon one first; `--force` stops its replicas instead",
        /// The node still holds replicas.
        NodeInUse = "node_in_use" => "`plimsoll node drain NODE` moves them away",
        /// Another service publishes this port.
        PortTaken = "port_taken"
            => "publish another port, or remove it from the other service first: every node listens on a published port",
        /// Another deployment has a route for this host and path.
        RouteTaken = "route_taken"
            => "choose another host or path, or remove the other route first: every node serves all routes",
        /// There is a token of this name already.
        OperatorExists = "operator_exists" => "revoke it first, or choose another name",
        /// There is a join token of this name that is still good.
        JoinTokenExists = "join_token_exists" => "revoke it first, or choose another name",
        /// The cell keeps a secret or config of this name already.
        FileExists = "file_exists" => "rotate it, or choose another name",
        /// Services use the secret or config.
        FileInUse = "file_in_use" => "remove it from their compose files and apply these first",
        /// A replica uses the volume.
        VolumeInUse = "volume_in_use" => "delete its deployment or scale it to 0 first",
        /// The volume is on several nodes, and which is meant is not said.
        VolumeOnSeveralNodes = "volume_on_several_nodes"
            => "`plimsoll volume inspect VOLUME` shows the copies; remove one with `plimsoll volume rm VOLUME --node NODE`",
        /// The volume is being moved, removed, backed up or restored.
        VolumeBusy = "volume_busy" => "`plimsoll volume inspect VOLUME` shows how far it is",
        /// The hold on the volume is over: whoever backs it up or restores it was not heard of in time, or its node went down.
        VolumeNotHeld = "volume_not_held" => "`plimsoll audit` says why; begin the backup or restore again",
        /// The node has a copy of the volume already.
        VolumeThere = "volume_there" => "remove it first: `plimsoll volume rm VOLUME --node NODE`",
        /// The volume cannot be moved or removed: it is external or shared, has a driver, or each replica has its own.
        VolumeFixed = "volume_fixed" => "move what is in it with the tools of the service",
        /// The node cannot run what uses the volume.
        VolumeUnfit = "volume_unfit" => "choose another node, or make room there",
        /// The node is ready, and can remove the volume itself.
        VolumeNodeReady = "volume_node_ready" => "leave out `--force`",
        /// The node that has the volume, or is to have it, is down.
        VolumeNodeDown = "volume_node_down"
            => "bring it back; if it is lost, `plimsoll volume rm VOLUME --node NODE --force` has the cell forget its copy",
        /// The cell cannot be joined yet: its first node has no peer address.
        NoAuthority = "no_authority"
            => "its first node must be able to bind its peer port; see `plimsoll up --address`",
        /// The authority is already being rotated.
        Rotating = "rotating"
            => "`plimsoll cell rotate-authority --status` shows how far it has come, `--abort` takes it back",
        /// No rotation of the authority is under way.
        NotRotating = "not_rotating" => "`plimsoll cell rotate-authority` starts one",
        /// The rotation goes on without nodes that are down, and this one is ready.
        NodeReady = "node_ready"
            => "wait for it, or remove it: `plimsoll node drain NODE`, then `plimsoll node remove NODE`",
        /// The container does not exist on its node.
        NotHere = "not_here" => "it has not been started yet, or its container was removed",
        /// The container is not running.
        NotRunning = "not_running" => "`plimsoll status` shows why it does not run",
        /// The replica has no container: it is retired and only stops.
        NotAssigned = "not_assigned" => "choose another replica",
        /// The cell has changed since the plan for a better layout was found.
        PlanOutdated = "plan_outdated" => "search again: `plimsoll optimize`",
        /// This cell coordinates a fleet and runs nothing.
        IsCoordinator = "is_coordinator" => "deploy to one of its shards; `plimsoll fleet shards` lists them",
        /// This cell coordinates no fleet.
        NotCoordinator = "not_coordinator" => "ask the coordinator of the fleet; `plimsoll coordinator up` starts one",
        /// This cell is a shard of a fleet already.
        FleetJoined = "fleet_joined" => "`plimsoll fleet leave` leaves it",
        /// This cell is in no fleet.
        NoFleet = "no_fleet" => "`plimsoll fleet join STRING` joins one",
        /// The cell's state does not allow this change.
        Refused = "refused" => "look at the status, and retry",

        "Invalid requests":
        /// What was sent is no whole backup of a volume. The volume is as it was.
        BadVolumeBackup = "bad_volume_backup" => "use another copy of the backup",
        /// The role is not one of those there are.
        BadRole = "bad_role" => "use read, deploy or admin",
        /// What was sent cannot be the certificate of an operator.
        BadCertificate = "bad_certificate" => "send a certificate in PEM that has not expired",
        /// There is no such kind of audit event.
        NoSuchKind = "no_such_kind" => "`plimsoll audit --help` lists them",
        /// The file names no services.
        NoServices = "no_services" => "to remove a deployment, delete it",
        /// A global service runs one replica per node; its number cannot be set.
        GlobalReplicas = "global_replicas" => "set placement to spread or pack to choose a number",
        /// The request names no service to scale.
        NothingToScale = "nothing_to_scale" => "name services and numbers, as in web=3",
        /// A better layout cannot be searched for or carried out like that.
        BadOptimize = "bad_optimize" => "see `plimsoll optimize --help`",
        /// What is supposed cannot be, or is not clear.
        BadSupposition = "bad_supposition" => "see `plimsoll what-if --help`",
        /// A service refers to a secret or config that the cell does not keep.
        MissingFile = "missing_file" => "create it: `plimsoll secret create NAME FILE`",
        /// A service depends on one that does not exist.
        MissingDependency = "missing_dependency" => "correct depends_on, or add the service",
        /// Services depend on each other in a circle.
        CircularDependency = "circular_dependency" => "remove one of these from depends_on",
        /// A route leads to a service that does not exist.
        RouteNowhere = "route_nowhere"
            => "let the route lead to a service of the same file, or remove it",
        /// A route cannot be served as it is written.
        BadRoute = "bad_route" => "correct the route's host, path or tls",
        /// The runtime cannot run the service.
        CannotRun = "cannot_run"
            => "change these in the compose file, or use a node with another runtime",
        /// A field of a service has a value that no compose file can have, or a number above its ceiling.
        BadSpec = "bad_spec" => "correct these fields",
        /// The replica is not one of the deployment or service named.
        NotOf = "not_of" => "name the service it is a replica of",
        /// The target of the rescheduler is not a percentage from 1 to 100.
        BadTarget = "bad_target" => "name a percentage from 1 to 100, or clear the target",
        /// There is no command to run.
        NoCommand = "no_command" => "name a command, as in `-- ls /`",
        /// The logs of so many replicas cannot be followed at once.
        TooManyReplicas = "too_many_replicas" => "ask for one service or one replica",
        /// The user or password for a registry is empty.
        EmptyCredential = "empty_credential" => "pipe the password in: `--password-stdin`",
        /// The request holds more items than allowed.
        TooMany = "too_many" => "ask for fewer",
        /// A number in the request is larger than allowed.
        TooMuch = "too_much" => "ask for less",
        /// What is to be kept takes more bytes than the cell gives it.
        Quota = "quota"
            => "keep large files out of configs and secrets: mount them from a volume; delete deployments that are not needed",

        "Failures of the cell or a node":
        /// The node could not read or write the volume. The volume is as it was.
        VolumeFailed = "volume_failed" => "the daemon's log on that node has more",
        /// No server leads.
        NoLeader = "no_leader"
            => "an election takes about a second: retry; `plimsoll cell status` shows the servers",
        /// Leadership passed to another node meanwhile.
        NotLeader = "not_leader" => "retry",
        /// Too few servers answer to write anything.
        QuorumLost = "quorum_lost"
            => "bring servers back; if they are lost for good, stop this daemon and see `plimsoll cell recover --help`",
        /// The cell was recovered without this server, which is no longer part of it.
        Superseded = "superseded"
            => "create a token with `plimsoll token create-join` where the cell is, stop this daemon, and start it with \
                `plimsoll up --join TOKEN@ADDRESS`",
        /// What keeps the log has lost acknowledged writes; nothing is written until it has them again.
        LogLost = "log_lost"
            => "keep the servers running, they have the state in memory; give etcd its newest data back, or see `plimsoll \
                cell recover --help`",
        /// What keeps the log is out of space and takes no writes.
        StoreFull = "store_full"
            => "compact and defragment etcd, or raise its quota, then disarm its NOSPACE alarm",
        /// The write was sent, and whether it was done is not known.
        Unsettled = "unsettled" => "look at the status before you retry",
        /// Not every node of the cell is new enough for this.
        UpgradeUnfinished = "upgrade_unfinished" => "upgrade every node; `plimsoll node list` shows which",
        /// The daemon is shutting down.
        Stopped = "stopped" => "start it again, or ask another node",
        /// The node that has the containers cannot be reached.
        NodeUnreachable = "node_unreachable" => "`plimsoll node list` shows which nodes are up",
        /// Another node gave an answer that cannot be read.
        BadAnswer = "bad_answer" => "run the same plimsoll on all nodes",
        /// The coordinator of the fleet cannot be reached, or did not let this cell in.
        CoordinatorUnreachable = "coordinator_unreachable"
            => "see that this node reaches the coordinator's peer port; this cell works on without it",
        /// The container runtime does not answer.
        RuntimeUnavailable = "runtime_unavailable"
            => "start the container engine; the daemon keeps trying",
        /// The container runtime failed.
        RuntimeFailed = "runtime_failed" => "see the engine's own log",
        /// The disk of the data directory is full.
        DiskFull = "disk_full" => "free space there; the daemon resumes by itself",
        /// The data directory cannot be read or written.
        Disk = "disk"
            => "see that the data directory has room and can be written, then restart the daemon",
        /// The log did not take the change.
        NotTaken = "not_taken" => "retry; the daemon's log has the cause",
        /// The set of servers could not be changed.
        Servers = "servers" => "`plimsoll cell status` shows the servers",
        /// No token could be made.
        NoToken = "no_token" => "retry",
        /// A bug in plimsoll.
        Bug = "bug" => "report it with the daemon's log",
    }
}

impl ProblemCode {
    /// The HTTP status it is answered with.
    #[expect(clippy::too_many_lines, reason = "a line for each code")]
    pub fn status(self) -> u16 {
        match self {
            Self::BadPath
            | Self::BadQuery
            | Self::BadJson
            | Self::BadRequest
            | Self::BadHeader
            | Self::CutShort
            | Self::BadName => 400,
            Self::Unauthorized | Self::TokenNeeded => 401,
            Self::Forbidden
            | Self::NotAServer
            | Self::OtherKey
            | Self::Removed
            | Self::TokenUnknown
            | Self::TokenUsed
            | Self::TokenExpired
            | Self::TokenRevoked
            | Self::KeyRevoked
            | Self::AuthorityChanged => 403,
            Self::NoSuchPath
            | Self::NoSuchDeployment
            | Self::NoSuchService
            | Self::NoSuchReplica
            | Self::NoSuchNode
            | Self::NoSuchRoute
            | Self::NoSuchRevision
            | Self::NoSuchOperator
            | Self::NoSuchJoinToken
            | Self::NoSuchSecret
            | Self::NoSuchConfig
            | Self::NoSuchRegistry
            | Self::NoSuchVolume
            | Self::NoSuchShard => 404,
            Self::NoSuchMethod => 405,
            Self::NameTaken
            | Self::RevisionChanged
            | Self::Contended
            | Self::ChangedMeanwhile
            | Self::SameRevision
            | Self::NoEarlierRevision
            | Self::NoRollout
            | Self::NothingBefore
            | Self::RunOpen
            | Self::AlreadyDraining
            | Self::LastNode
            | Self::NodeInUse
            | Self::PortTaken
            | Self::RouteTaken
            | Self::OperatorExists
            | Self::JoinTokenExists
            | Self::FileExists
            | Self::FileInUse
            | Self::VolumeInUse
            | Self::VolumeOnSeveralNodes
            | Self::VolumeBusy
            | Self::VolumeNotHeld
            | Self::VolumeThere
            | Self::VolumeFixed
            | Self::VolumeUnfit
            | Self::VolumeNodeReady
            | Self::VolumeNodeDown
            | Self::NoAuthority
            | Self::NotHere
            | Self::NotRunning
            | Self::NotAssigned
            | Self::Rotating
            | Self::NotRotating
            | Self::NodeReady
            | Self::PlanOutdated
            | Self::IsCoordinator
            | Self::NotCoordinator
            | Self::FleetJoined
            | Self::NoFleet
            | Self::Refused => 409,
            Self::TooLarge => 413,
            Self::NoSuchKind
            | Self::BadRole
            | Self::BadCertificate
            | Self::NoServices
            | Self::GlobalReplicas
            | Self::NothingToScale
            | Self::BadSupposition
            | Self::MissingFile
            | Self::MissingDependency
            | Self::CircularDependency
            | Self::RouteNowhere
            | Self::BadRoute
            | Self::CannotRun
            | Self::BadSpec
            | Self::NotOf
            | Self::NoCommand
            | Self::BadTarget
            | Self::TooManyReplicas
            | Self::EmptyCredential
            | Self::TooMany
            | Self::TooMuch
            | Self::BadVolumeBackup
            | Self::BadOptimize
            | Self::Quota => 422,
            Self::Version | Self::Outdated => 426,
            Self::JoinLimited => 429,
            Self::BadAnswer
            | Self::RuntimeFailed
            | Self::VolumeFailed
            | Self::Disk
            | Self::NotTaken
            | Self::Servers
            | Self::NoToken
            | Self::Bug
            | Self::Unknown => 500,
            Self::NoLeader
            | Self::NotLeader
            | Self::QuorumLost
            | Self::LogLost
            | Self::Superseded
            | Self::Unsettled
            | Self::UpgradeUnfinished
            | Self::Stopped
            | Self::NodeUnreachable
            | Self::CoordinatorUnreachable
            | Self::RuntimeUnavailable => 503,
            Self::DiskFull | Self::StoreFull => 507,
        }
    }

    /// Whether the request is at fault; else the world is.
    pub fn is_refusal(self) -> bool {
        self.status() < 500
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_and_read_as_it_is_printed() {
        for code in ProblemCode::ALL {
            let written = serde_json::to_string(code).unwrap();
            assert_eq!(written, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<ProblemCode>(&written).unwrap(), *code);
        }
    }

    #[test]
    fn codes_of_one_group_have_one_status() {
        let statuses = [
            ("Not found", 404),
            ("Conflicts with the present state", 409),
            ("Invalid requests", 422),
        ];
        for (group, status) in statuses {
            let codes: Vec<_> = ProblemCode::ALL.iter().filter(|it| it.group() == group).collect();
            assert!(!codes.is_empty(), "{group}");
            assert!(codes.iter().all(|code| code.status() == status), "{group}: {codes:?}");
        }
    }

    #[test]
    fn the_code_of_a_newer_node_is_unknown_and_its_message_is_kept() {
        let sent =
            r#"{"code":"too_late","message":"it is too late","hint":null,"is_refusal":true}"#;
        let problem: Problem = serde_json::from_str(sent).unwrap();
        let (code, message) = (problem.code, problem.message.as_str());
        assert_eq!((code, message), (ProblemCode::Unknown, "it is too late"));
        assert_eq!((problem.is_refusal, problem.status()), (true, 422));
    }
}
