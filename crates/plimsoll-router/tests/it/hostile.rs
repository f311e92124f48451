//! Attacks on the router, one test each: as a stranger on the network would make them, over sockets.

mod frames;
mod fuzz;
mod heads;
mod paths;
mod shares;
mod slow;
