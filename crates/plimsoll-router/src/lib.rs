//! The data plane of a node: published ports and HTTP routes, to healthy replicas wherever they run.
//!
//! It is fed [`Wanted`]: which ports and routes there are, and which upstreams stand behind each. It knows neither the
//! cell nor the log nor the runtime, and goes on with the last table it was given when nobody feeds it. Whether a replica
//! is healthy is settled elsewhere; whether it can be reached just now is settled here.

mod clock;
pub mod metrics;
mod pool;
mod table;
mod upstream;

pub use clock::Moment;
pub use pool::pick;
pub use table::{Member, Pool, PoolKey, Protocol, Published, Route, RouteSpec, Table, Tls, Wanted};
pub use upstream::{
    FULL_WEIGHT, InFlight, SLOW_START, Standing, State, Target, Upstream, UpstreamKey,
};
