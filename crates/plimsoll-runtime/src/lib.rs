//! What runs replicas on a node.
//!
//! [`Runtime`] is all that a node asks of whatever runs its containers: pull, start, stop, remove, list, events, usage,
//! logs and exec, each for one [`Tag`]. [`docker`] runs services as containers of an engine, [`process`] as processes
//! of this host; [`fake`] runs nothing and is for tests. [`health`] turns a spec's healthcheck into transitions over any runtime, and [`pressure`] reads how
//! busy the node is. What to do next about a replica is decided in `plimsoll-kernel`; here it is only done.

mod attach;
pub mod bind_roots;
pub mod bridge;
pub mod docker;
pub mod error;
pub mod fake;
pub mod files;
pub mod health;
pub mod logs;
mod memory_dir;
pub mod pressure;
pub mod process;
mod refusal;
pub mod runtime;
pub mod usage;

pub use attach::{AttachInput, AttachRequest, AttachSignal, AttachStreams, WindowSize};
pub use bind_roots::BindRoots;
pub use bridge::{Block, Bridge, Names};
pub use docker::DockerRuntime;
pub use error::{Error, Operation, PullError, Reason, Result, chain};
pub use fake::FakeRuntime;
pub use logs::{LogLine, LogQuery, Logs, Output};
pub use process::ProcessRuntime;
pub use process::table::ProcessIdentity;
pub use refusal::invalid;
pub use runtime::{
    Binding, BoxFuture, ContainerInfo, ContainerStatus, DEFAULT_STOP_GRACE, Description, Events,
    ExecOutcome, ExecOutput, ExecRequest, Exit, ImageResolution, Pull, Runtime, RuntimeEvent,
    StartRequest, Tag, VolumeRef,
};
pub use usage::{CpuTime, Meter, Usage};
