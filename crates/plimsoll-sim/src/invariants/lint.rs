//! Every plan passes lint, the model takes every report, and no batch is refused by the very state it was decided on.

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Lint;

impl Invariant for Lint {
    fn name(&self) -> &'static str {
        "lint"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        world.complaints.first().map_or(Ok(()), |complaint| Err(complaint.clone()))
    }
}
