//! The daemon, its API and its command line on real parts: a Docker engine, a registry, and processes of this host.
//! Where `PLIMSOLL_TEST_DOCKER` names no engine, tests that need one say so and pass; `lab/engine` starts one, and
//! `./test` always does.

mod adoption;
mod backups;
mod behind;
pub(crate) mod compose;
mod crashes;
mod depends;
mod engines;
mod failures;
pub(crate) mod found;
mod grace;
mod handover;
pub(crate) mod harness;
mod image_volumes;
mod images;
mod moves;
mod published;
mod refusals;
mod specs;
mod volumes;
