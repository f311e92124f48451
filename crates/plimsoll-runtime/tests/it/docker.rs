//! Containers on a real engine. Where `PLIMSOLL_TEST_DOCKER` names none, these tests say so and pass; `lab/engine`
//! starts one, and `./test` always does.

mod commands;
mod engine;
mod events;
pub(crate) mod harness;
mod interrupted;
mod lifecycle;
mod logs;
mod networks;
mod pulling;
mod secrets;
mod settings;
mod stopping;
mod volumes;
