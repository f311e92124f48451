//! Attacks on running daemons, a file for each door. Each is what somebody could do who holds what it says and no more.

mod files;
mod panics;
mod raft;
