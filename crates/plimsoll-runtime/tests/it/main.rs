//! Real processes under the process runtime: what a person running a stack would notice.

mod adoption;
mod commands;
mod host;
mod logs;
mod stopping;
