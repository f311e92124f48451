//! The binary as people use it: what it prints, where, and how it exits.

// Helpers of tests may unwrap as tests do, and the expectations are written by their tool.
#![allow(clippy::unwrap_used, clippy::needless_raw_string_hashes)]

mod acme;
mod attached;
mod bad_cases;
mod bad_cells;
mod bad_events;
mod bad_scenarios;
mod besieged;
mod cell;
mod cell_people;
mod decide;
mod demo;
mod docs;
mod etcd;
mod explain;
mod guide;
mod harness;
mod heirs;
mod hostile;
mod hosts;
mod http;
mod lab;
mod live;
mod moves;
mod node;
mod quorum;
mod rebalance;
mod recovery;
mod refusals;
mod registry;
mod rejoin;
mod report;
mod rotation;
mod run;
mod shell;
mod sim;
mod steady;
mod trace;
mod unwell;
mod upgrade;
mod upstream;
mod validate;
mod volumes;
mod waiting;
