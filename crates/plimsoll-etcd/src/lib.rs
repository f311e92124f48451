//! A small client of etcd's version 3 API: keys and transactions, leases, watches, and the few questions about the
//! cluster itself that we ask.
//!
//! It is given several endpoints of one cluster and uses whichever answers. Every call has a deadline, and every error
//! says whether the call may have had its effect all the same. What the keys mean is left to others. The messages are
//! made from `proto/etcd.proto`, which holds what we use of etcd's API and nothing else.

mod access;
mod auth;
mod calls;
mod config;
mod error;
mod kv;
mod lease;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod watch;

/// The messages as they travel.
#[expect(
    clippy::all,
    clippy::pedantic,
    unreachable_pub,
    unused_qualifications,
    reason = "made by tonic-prost-build"
)]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

pub use access::EtcdClient;
pub use calls::{Alarm, MemberHealth};
pub use config::{EtcdConfig, EtcdCredentials, EtcdTls, is_exposed};
pub use error::Error;
pub use kv::{Keys, Op, Range, Ranged, Reply, Txn, TxnReply, When};
pub use lease::{KeepAlive, Lease, LeaseId};
pub use proto::KeyValue;
pub use watch::{Changes, KeyChange, Watching};
