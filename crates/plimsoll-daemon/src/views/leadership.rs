//! What leadership rests on, as the store says it.

use plimsoll_api::view::LeadershipInfo;
use plimsoll_api::view::leadership::millis;

pub fn leadership_info(info: &plimsoll_store::LeadershipInfo, holds_log: bool) -> LeadershipInfo {
    LeadershipInfo {
        engine: holds_log.then(|| info.engine.to_owned()),
        led_ms: info.since.map(millis),
        elections: info.elections,
        lease_left_ms: info.lease_left.map(millis),
        hindrance: info.hindrance.as_deref().map(str::to_owned),
    }
}
