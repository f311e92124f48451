//! The API over a real socket: a store on disk, a runtime that only pretends, and states written as the loops would.

mod bad_input;
mod coordinator;
mod faulty_engine;
mod fuzz;
mod generated;
mod images;
mod impaired;
mod listeners;
mod logs;
mod openapi;
mod optimize;
mod parts;
mod read;
mod reschedule;
mod routes;
mod speed;
mod statuses;
mod streams;
mod support;
mod what_if;
mod write;
