//! Pausing, resuming and retargeting the background rescheduler.

use plimsoll_model::reschedule::RescheduleSettings;
use plimsoll_model::{Change, Pressure};

use super::{Caller, Error};
use crate::context::NodeContext;
use plimsoll_api::view::{RescheduleAction, SetRescheduling};

/// What is so already is not written again.
pub async fn set_rescheduling(
    cell: &NodeContext,
    caller: &Caller,
    asked: &SetRescheduling,
) -> Result<(), Error> {
    let before = cell.engine.machine().read(plimsoll_model::State::rescheduling);
    let settings = settings(before, asked)?;
    if settings != before {
        caller.write(cell, vec![Change::SetRescheduling { settings }.free()]).await?;
    }
    Ok(())
}

fn settings(
    before: RescheduleSettings,
    asked: &SetRescheduling,
) -> Result<RescheduleSettings, Error> {
    let target = match asked.target_percent {
        _ if asked.clear_target => None,
        None => before.target,
        Some(percent @ 1..=100) => Some(Pressure::percent(percent)),
        Some(percent) => return Err(Error::BadTarget { percent }),
    };
    Ok(RescheduleSettings { is_paused: asked.action == RescheduleAction::Pause, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_stays_until_another_is_named_or_it_is_cleared() {
        let half = Some(Pressure::percent(50));
        let before = RescheduleSettings { is_paused: false, target: half };
        let asked = |target_percent, clear_target| {
            let action = RescheduleAction::Pause;
            settings(before, &SetRescheduling { action, target_percent, clear_target })
        };
        for (case, told, target) in [
            ("left out", asked(None, false), half),
            ("another", asked(Some(100), false), Some(Pressure::percent(100))),
            ("cleared", asked(None, true), None),
        ] {
            let expected = RescheduleSettings { is_paused: true, target };
            assert_eq!(told.expect(case), expected, "{case}");
        }
        for percent in [0, 101, u32::MAX] {
            let refused = asked(Some(percent), false).unwrap_err().to_string();
            assert_eq!(refused, format!("a target of {percent} % is not a share of a node"));
        }
    }
}
