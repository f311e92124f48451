//! `plimsoll demo`: a small cell that loses a node and gets it back, told as a story. Everything told is read off a
//! run of the simulator; only the words between the numbers are written beforehand.

use std::path::Path;

use plimsoll_model::{Millis, NodeId};
use plimsoll_sim::{Action, Scenario};

use crate::output::data;
use crate::scenario;
use crate::snippet::Page;
use crate::trouble::Trouble;

mod tell;
mod watch;
mod why;

use watch::Watch;

const CELL: &str = include_str!("demo/cell.yaml");

/// Any will do; with this one the story is the same for everyone.
const SEED: u64 = 1;

const LOST_AT: Millis = Millis::minutes(10);
const BACK_AT: Millis = Millis::minutes(30);

/// Watch a simulated cell lose a node and recover, told as a short story.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<(), Trouble> {
    let page = Page { name: "the demo's cell".to_owned(), text: CELL.to_owned() };
    let mut scenario = scenario::from_page(&page, Path::new("."), "demo")?.scenario;
    let node = home_of_data(&scenario)?;
    scenario.script.push((LOST_AT, Action::Crash(node.clone())));
    scenario.script.push((BACK_AT, Action::Return(node.clone())));
    let watch = Watch::whole(&scenario, SEED)?;
    data(&tell::story(&scenario, &node, &watch))
}

/// The node whose loss tells most: something there moves, and something waits for its data.
fn home_of_data(scenario: &Scenario) -> Result<NodeId, Trouble> {
    let watch = Watch::until_complete(scenario, SEED)?;
    let is_stateful = |service: &plimsoll_model::ServiceKey| {
        let services = scenario.deployments.get(&service.deployment);
        let spec = services.and_then(|services| services.get(&service.service));
        spec.is_some_and(|spec| spec.is_stateful())
    };
    let data = watch.homes.iter().find(|(replica, _)| is_stateful(&replica.service));
    data.map(|(_, node)| node.clone())
        .ok_or_else(|| Trouble::failed("the demo's cell did not place its database"))
}
