//! Real processes under the process runtime and real containers on a Docker engine: what a person running a stack would
//! notice.

mod adoption;
mod attached;
mod commands;
mod docker;
mod harness;
mod logs;
mod stopping;
