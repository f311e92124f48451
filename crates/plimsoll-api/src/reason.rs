//! Why something is as it is: a word from a closed list, and a sentence with the numbers and names that decided. The model's
//! and the kernel's own reasons become one of these in [`of_model`](self), by `match`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::codes::codes;

mod of_model;

#[cfg(test)]
mod tests;

/// Why something is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// The service, replica or node it is about.
    pub subject: String,
    /// From a closed list; `plimsoll reasons` prints it.
    pub word: ReasonCode,
    /// The numbers and names that decided, as a sentence.
    pub text: String,
}

impl Reason {
    pub fn new(
        subject: &(impl ToString + ?Sized),
        word: impl Into<ReasonCode>,
        text: impl Into<String>,
    ) -> Self {
        Self { subject: subject.to_string(), word: word.into(), text: text.into() }
    }

    /// One of the model's, whose sentence it is.
    pub fn of<'r, R: ToString>(subject: &(impl ToString + ?Sized), why: &'r R) -> Self
    where
        ReasonCode: From<&'r R>,
    {
        Self::new(subject, why, why.to_string())
    }

    /// The next step, with the names of what this is about in it; none where it passes by itself.
    pub fn advice(&self) -> Option<String> {
        let deployment = self.subject.split('/').next().unwrap_or(&self.subject);
        let advice = self.word.advice()?.replace("DEPLOYMENT", deployment);
        let names = ["REPLICA", "SERVICE", "NODE"].iter();
        Some(names.fold(advice, |text, name| text.replace(name, &self.subject)))
    }
}

codes! {
    /// Why something is as it is, as one word.
    pub enum ReasonCode {
        "Unplaced replicas":
        /// The cell has no nodes.
        NoNodes = "no_nodes" => "join a node: `plimsoll token create-join`, then `plimsoll up --join` there",
        /// No node can take the replica; the message counts what each one failed on.
        NoEligibleNode = "no_eligible_node" => "`plimsoll explain SERVICE` shows what each node lacks",
        /// A replica of the service was, or is about to be, stopped for one of higher priority; it comes back where there is room.
        Preempted = "preempted" => "free capacity, add a node, or raise its priority in `x-plimsoll`",
        /// No node has room; replicas of lower priority are making way for the replica on one of them.
        Preempting = "preempting" => "",
        /// The replicated state refused twice what the scheduler decided for the service. It waits alone; this is a bug in plimsoll.
        DecisionRefused = "decision_refused"
            => "apply the deployment again to retry at once, and report the message with `plimsoll snapshot export`",
        /// The service is placed on listed hosts, and too few of them are ready.
        CannotSatisfyHostPlacement = "cannot_satisfy_host_placement"
            => "start the nodes it names, or change the service's hosts",
        /// The service is stopped while its volumes move to another node.
        VolumeMoving = "volume_moving" => "`plimsoll volume inspect VOLUME` shows how far the move is",
        /// The service is stopped while a volume of it is backed up or restored.
        VolumeHeld = "volume_held" => "`plimsoll volume inspect VOLUME` shows since when; it starts again by itself once that is over",

        "Placement filters":
        /// The node is down.
        NotReady = "not_ready" => "bring the node back, or wait: replicas are placed elsewhere where they can be",
        /// The node is cordoned: unschedulable by an operator.
        Cordoned = "cordoned" => "`plimsoll node uncordon NODE` makes it schedulable again",
        /// The node is being drained.
        Draining = "draining" => "",
        /// The node is not among the hosts the service lists.
        NotListed = "not_listed" => "add it to the service's hosts to allow it",
        /// The node does not match a placement constraint of the service.
        Constraint = "constraint" => "label the node to match, or change the constraint",
        /// The node's runtime lacks something that the container needs.
        RuntimeLacks = "runtime_lacks" => "use a node with another runtime, or change the compose file",
        /// A volume of the service is on another node, and its data is there.
        VolumeElsewhere = "volume_elsewhere" => "bring the node that has the volume back, uncordon it or free capacity there, or `plimsoll volume move VOLUME NODE`",
        /// Several nodes have the volume, and the service is meant to use one: nothing chooses between them by itself.
        VolumeSplit = "volume_split" => "choose the copy to keep and remove the other: `plimsoll volume rm VOLUME --node NODE`",
        /// The node has an old copy of a volume, which nothing may use: the volume has moved away, or could not move there.
        VolumeCopy = "volume_copy" => "`plimsoll volume rm VOLUME --node NODE` removes the old copy",
        /// Services that share a volume run on one node, and another of them cannot run on this one.
        VolumeSharer = "volume_sharer" => "make room for all of them on one node, or give each a volume of its own",
        /// The service asks for GPUs, and the node has too few.
        NoGpu = "no_gpu" => "use a node with GPUs, or lower the reservation",
        /// The node's unreserved CPU, memory or GPUs do not cover the reservation.
        InsufficientCapacity = "insufficient_capacity" => "lower the reservation, free capacity, or add a node",
        /// Another replica on the node holds the host port.
        PortTaken = "port_taken" => "publish another port, or let the router share it: remove `mode: host`",
        /// The node holds as many replicas of the service as `max_replicas_per_node` allows.
        MaxPerNode = "max_per_node" => "raise `max_replicas_per_node`, or add a node",
        /// The service failed on this node several times recently, so it is the last choice.
        RecentFailures = "recent_failures" => "`plimsoll logs REPLICA` shows why it failed there",
        /// Another replica already goes by the id this one would have.
        IdTaken = "id_taken" => "rename the service or deployment whose names run together",

        "Waiting replicas":
        /// The replica has a volume or bind mount on its node, so nothing moves it automatically.
        Stateful = "stateful" => "bring its node back: its data is there",
        /// More than half of the nodes went down at once; replacement pauses, since the fault is more likely ours.
        MassLoss = "mass_loss" => "check the network of the server that leads; replacement resumes by itself",
        /// The replica's node is down, and its grace period is not over: it may come back.
        InGrace = "in_grace" => "",
        /// The replica has to change; others of its service do so first.
        InTurn = "in_turn" => "",
        /// The replica is on its way already.
        Moving = "moving" => "",
        /// The replica is where it should be.
        Settled = "settled" => "",
        /// The new copy would take the place of the old one and does not fit there; the old one keeps running.
        NoRoomInPlace = "no_room_in_place" => "lower the reservation, publish another port, or make room on the node",
        /// The new spec did not become healthy; the old one keeps running and the rollout is not retried.
        Stalled = "stalled" => "`plimsoll logs REPLICA` shows why; correct the spec and apply again",
        /// The replica is a job and runs; to move it is to run it twice, so it stays until it has ended.
        JobRunning = "job_running" => "wait until it has ended; `plimsoll node drain NODE --force` stops it, and it runs again elsewhere",

        "Causes of a move":
        /// The replica's node is down beyond its grace period, or was removed.
        NodeLost = "node_lost" => "",
        /// The container runtime of the replica's node has not answered beyond its grace period, and the replica does not run.
        RuntimeLost = "runtime_lost" => "",
        /// The replica's node may not hold it any more: constraints changed, or the node is draining.
        Misplaced = "misplaced" => "",
        /// The replica runs an older spec; its turn in the rollout will come.
        Outdated = "outdated" => "",
        /// The replica's node stays above its pressure line while another is below it.
        Pressure = "pressure" => "",
        /// Another node suits the replica better by more than its threshold, or a node that joined or came back is filled.
        Reschedule = "reschedule" => "",
        /// The replica is being restarted on request, or its turn for that will come.
        Restart = "restart" => "",
        /// The replica is moved for a better layout that an operator asked for with `plimsoll optimize --apply`.
        Optimize = "optimize" => "",

        "Abandoned moves":
        /// The replica failed at its destination; the original kept running.
        SuccessorFailed = "successor_failed" => "`plimsoll logs REPLICA` shows why it failed there",
        /// The replica did not become healthy at its destination in time; the original kept running.
        TimedOut = "timed_out" => "`plimsoll logs REPLICA` shows what it was doing",
        /// The destination went down before the move was done.
        DestinationLost = "destination_lost" => "",
        /// The cause of the move went away: the node came back, or the spec changed again.
        Needless = "needless" => "",

        "Reports of a node":
        /// The image cannot be pulled; it is retried with backoff.
        ImagePullFailed = "image_pull_failed"
            => "check the image's name and tag, and that the node can reach its registry; then apply again",
        /// The image is used by its tag, or by an older digest: the registry did not say which image the tag stands for.
        ImageNotPinned = "image_not_pinned"
            => "apply the file again once its registry answers; for a private one, `plimsoll registry login HOST` first",
        /// The image declares volumes that the file does not mount: each replica keeps its own, and stays on its node.
        ImageVolumes = "image_volumes"
            => "mount a named volume or a tmpfs there in the file, to say what is meant",
        /// A service in `depends_on` is not that far yet.
        AwaitsService = "awaits_service" => "",
        /// The container cannot be created or started.
        StartFailed = "start_failed" => "correct what the error names, then apply again",
        /// The node has no addresses left for the replica's network; it is retried with backoff, and not counted as a failure.
        SubnetPoolExhausted = "subnet_pool_exhausted"
            => "remove unused networks on the node (`docker network prune`), add `default-address-pools` to its engine, or start it with a larger `--address-pool`",
        /// The health check fails.
        Unhealthy = "unhealthy" => "`plimsoll logs REPLICA` shows why; applying again, also the same file, retries",
        /// The container exited on its own.
        Exited = "exited" => "`plimsoll logs REPLICA` shows why; applying again, also the same file, retries",
        /// The kernel killed the container: it ran out of memory.
        OutOfMemory = "out_of_memory"
            => "raise the memory limit; `plimsoll logs REPLICA` shows what it was doing",
        /// The container was removed, and not by plimsoll.
        Vanished = "vanished" => "",
        /// The replica failed three times in a row and is not restarted any more.
        RestartExhausted = "restart_exhausted"
            => "`plimsoll logs REPLICA` shows why; applying again, also the same file, retries",
        /// The container ran to its end and exited with status 0.
        Completed = "completed" => "",
        /// The container ran to its end and exited with another status; its file allows no further attempt.
        JobFailed = "job_failed"
            => "`plimsoll logs REPLICA` shows why; applying again, also the same file, runs it again",
        /// A step of the rollout failed; its node gave no reason.
        StepFailed = "step_failed" => "`plimsoll logs REPLICA` shows why",

        "Replica states":
        /// Accepted by its node, or waiting for the next retry.
        Pending = "pending" => "",
        /// The node is pulling the image.
        Pulling = "pulling" => "",
        /// The container is starting and not healthy yet.
        Starting = "starting" => "",
        /// Running and healthy.
        Running = "running" => "",
        /// Running, and its health check fails.
        Degraded = "degraded" => "`plimsoll logs REPLICA` shows why; it is restarted",
        /// The container failed and will be restarted.
        Failed = "failed" => "`plimsoll logs REPLICA` shows why",
        /// The container stopped.
        Stopped = "stopped" => "",
        /// The old container is stopping.
        Stopping = "stopping" => "",
        /// The service or replica is no longer part of its deployment and ends.
        Retired = "retired" => "",
        /// The service has more or fewer replicas than it should.
        Scaling = "scaling" => "",
        /// There are more reasons than fit the list.
        More = "more" => "`plimsoll status DEPLOYMENT` shows each replica's own",

        "Rollouts":
        /// The rollout is paused.
        Paused = "paused"
            => "`plimsoll rollout resume DEPLOYMENT` continues, `plimsoll rollout abort DEPLOYMENT` rolls back",
        /// The rollout failed or was aborted and is being rolled back.
        Undoing = "undoing" => "",
        /// The rollout failed and was rolled back; the previous revision runs.
        RolledBack = "rolled_back"
            => "`plimsoll rollout status DEPLOYMENT` shows what failed; correct it and apply again",

        "Nodes, ports and runtimes":
        /// The node is down: no heartbeat within its TTL.
        NodeDown = "node_down" => "bring the node back, or `plimsoll node remove NODE`",
        /// Replicas on the node did not move in time; the node stays cordoned and its replicas keep running.
        DrainTimeout = "drain_timeout"
            => "`plimsoll node drain NODE` tries again, with `--force` it stops them, `plimsoll node uncordon NODE` lets \
                it take replicas again",
        /// A published port cannot be bound on a node.
        PortUnavailable = "port_unavailable" => "stop what holds the port on that node, or publish another one",
        /// The container runtime of the node does not answer.
        RuntimeUnavailable = "runtime_unavailable"
            => "start the container engine of the node; replicas that do not run there are replaced after a minute, and \
                the node resumes by itself",
        /// The runtime does not isolate what the file asks to isolate.
        NotIsolated = "not_isolated" => "use a node with Docker where isolation matters",
        /// The node was started without a port for HTTP routes.
        RoutesNotServed = "routes_not_served" => "start it with `--http` or `--https`",
        /// There is no certificate for the route's host.
        NoCertificate = "no_certificate" => "put the certificate where the message says",

        "Endpoints":
        /// The container is healthy and receives requests.
        TakesRequests = "takes_requests" => "",
        /// The container is draining: it finishes open requests and gets no new ones.
        Leaves = "leaves" => "",
        /// The node has not reported on this container yet.
        Unseen = "unseen" => "",
        /// The container is healthy and receives requests once the one it replaces is drained.
        TakesOver = "takes_over" => "",
        /// Connections from this node's router to the container fail, so it is left out for a while.
        Ejected = "ejected" => "check the network between the two nodes, and `plimsoll logs REPLICA`",

        "Rebalancer":
        /// The replica was moved or placed too recently.
        CooldownReplica = "cooldown_replica" => "",
        /// The destination received a replica too recently.
        CooldownNode = "cooldown_node" => "",
        /// The replica would overcommit the destination.
        ResourceLimits = "resource_limits" => "add capacity",
        /// Replicas of one service would share a node, or the service does not list the destination.
        AntiAffinity = "anti_affinity" => "add a node without a replica of this service",
        /// The destination would get too hot itself.
        DstCap = "dst_cap" => "add capacity",
        /// The move would relieve the node too little to be worth it.
        ReliefFloor = "relief_floor" => "",
        /// Every destination is blocked, not all for one reason.
        NoEligibleDst = "no_eligible_dst" => "`plimsoll explain NODE` shows each gate with its numbers",
        /// Nothing on the node may be moved.
        NoCandidate = "no_candidate" => "its replicas are stateful or global: move the load another way",
        /// Most of the rebalancer's latest moves brought less than half of what was predicted, so it moves less often.
        SlowedDown = "slowed_down" => "`plimsoll reschedule status` shows what its moves were worth",

        "Readiness of a node":
        /// No server leads.
        NoLeader = "no_leader" => "",
        /// Too few servers answer to elect a leader.
        QuorumLost = "quorum_lost"
            => "bring servers back; if they are lost for good, see `plimsoll cell recover --help`",
        /// What keeps the log has lost acknowledged writes.
        LogLost = "log_lost" => "keep the servers running, and see `plimsoll cell recover --help`",
        /// The disk of the data directory is full.
        DiskFull = "disk_full" => "free space there; the daemon resumes by itself",
        /// The data directory cannot be read or written.
        DiskFailed = "disk_failed" => "see that the data directory can be written, then restart the daemon",
        /// What keeps the log is out of space.
        StoreFull = "store_full"
            => "compact and defragment etcd, or raise its quota, then disarm its NOSPACE alarm",
        /// The cell was recovered without this server.
        Superseded = "superseded" => "join it again with a new token",
        /// This node is too old for its cell.
        NodeOutdated = "node_outdated" => "upgrade plimsoll on it",
        /// This server is far behind the leader.
        Lagging = "lagging" => "",
    }
}
