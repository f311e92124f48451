//! One file a command: its arguments, and what it does with them.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod decide;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod etcd;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod logs;
pub(crate) mod migrate;
pub(crate) mod node;
pub(crate) mod restart;
pub(crate) mod restore;
pub(crate) mod rollback;
pub(crate) mod rollout;
pub(crate) mod scale;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod up;
pub(crate) mod validate;
