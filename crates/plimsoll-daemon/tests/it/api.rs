//! The API over a real socket: a store on disk, a runtime that only pretends, and states written as the loops would.

mod bad_input;
mod faulty_engine;
mod fuzz;
mod generated;
mod images;
mod impaired;
mod listeners;
mod logs;
mod openapi;
mod parts;
mod read;
mod routes;
mod speed;
mod statuses;
mod streams;
mod support;
mod write;
