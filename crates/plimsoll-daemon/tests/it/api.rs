//! The API over a real socket: a store on disk, a runtime that only pretends, and states written as the loops would.

mod bad_input;
mod doors;
mod logs;
mod openapi;
mod read;
mod routes;
mod speed;
mod streams;
mod support;
mod write;
