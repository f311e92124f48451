//! The alphabet has every letter, and chaos spells them all.

use std::collections::BTreeSet;

use super::alphabet::{Draw, WEIGHTS};
use super::any_scenario;
use crate::world::{EPOCH, World};

/// So many runs make every change there is, with a wide margin.
const RUNS: u64 = 400;

#[test]
fn chaos_makes_every_change_there_is() {
    let mut made = BTreeSet::new();
    for seed in 0..RUNS {
        let scenario = any_scenario(seed);
        let mut world = World::new(&scenario, seed);
        while world.step(EPOCH.plus(scenario.length)) {}
        made.extend(world.made);
    }
    let expected = [
        "abandon",
        "abort_rollout",
        "abort_rotation",
        "adopt_machine",
        "begin_acme_order",
        "close_shard_cycle",
        "configure_acme",
        "confirm_authority",
        "copy_volumes",
        "create_backup_key",
        "create_file",
        "create_join_token",
        "declare_volumes",
        "deploy",
        "drain",
        "drop_machine",
        "end_rollout",
        "end_volume_hold",
        "enrol",
        "evict",
        "fail_acme_order",
        "finish_instruction",
        "forget_acks",
        "forget_certificate",
        "forget_volume",
        "found",
        "give_up_drain",
        "give_up_volume_move",
        "hold_volume",
        "issue_certificate",
        "join",
        "leave_fleet",
        "login_registry",
        "logout_registry",
        "miss_slots",
        "move_volumes",
        "obey_instruction",
        "observe",
        "open_volume_hold",
        "pause_machines",
        "pause_rollout",
        "place",
        "preempt",
        "promote",
        "put_machine",
        "put_node",
        "put_operator",
        "raise",
        "record",
        "remove_file",
        "remove_node",
        "remove_volume",
        "remove_volumes",
        "renew",
        "renew_volume_hold",
        "reserve_machine",
        "resume_rollout",
        "retire",
        "retire_authority",
        "review_move",
        "revoke_join_token",
        "revoke_operator",
        "rotate_authority",
        "rotate_backup_key",
        "rotate_file",
        "rotate_without",
        "set_acme_account",
        "set_acme_order",
        "set_availability",
        "set_fleet_membership",
        "set_rescheduling",
        "set_runtime",
        "set_status",
        "set_unplaced",
        "set_waiting",
        "start_run",
        "step_late",
        "step_machine",
        "succeed",
        "survive",
        "switch_authority",
        "undeploy",
        "unreserve_machine",
        "volume_removed",
        "volumes_copied",
        "volumes_removed",
        "withdraw_preemption",
    ];
    assert_eq!(made.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn every_letter_is_drawn() {
    let drawn: Vec<Draw> = WEIGHTS.iter().map(|(draw, _)| *draw).collect();
    let mut sorted = drawn.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), drawn.len(), "each is listed once");
    // The letters are declared in this order, and MistakeForCoordinator is the last of them.
    assert_eq!(sorted.len(), Draw::MistakeForCoordinator as usize + 1, "each is listed");
}
