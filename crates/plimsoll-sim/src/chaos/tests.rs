//! The alphabet has every letter, and chaos spells them all.

use std::collections::BTreeSet;

use super::alphabet::{Draw, WEIGHTS};
use super::any_scenario;
use crate::world::{EPOCH, World};

/// So many runs make every change there is, with a wide margin.
const RUNS: u64 = 150;

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
        "begin_acme_order",
        "configure_acme",
        "confirm_authority",
        "copy_volumes",
        "create_backup_key",
        "create_file",
        "create_join_token",
        "declare_volumes",
        "deploy",
        "drain",
        "end_rollout",
        "enrol",
        "fail_acme_order",
        "forget_certificate",
        "forget_volume",
        "found",
        "give_up_drain",
        "give_up_volume_move",
        "issue_certificate",
        "join",
        "login_registry",
        "logout_registry",
        "move_volumes",
        "observe",
        "pause_rollout",
        "place",
        "promote",
        "put_node",
        "put_operator",
        "raise",
        "record",
        "remove_file",
        "remove_node",
        "remove_volume",
        "remove_volumes",
        "renew",
        "resume_rollout",
        "retire",
        "retire_authority",
        "revoke_join_token",
        "revoke_operator",
        "rotate_authority",
        "rotate_backup_key",
        "rotate_file",
        "rotate_without",
        "set_acme_account",
        "set_acme_order",
        "set_availability",
        "set_rescheduling",
        "set_runtime",
        "set_status",
        "set_unplaced",
        "set_waiting",
        "step_late",
        "succeed",
        "survive",
        "switch_authority",
        "undeploy",
        "volume_removed",
        "volumes_copied",
        "volumes_removed",
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
    // The letters are declared in this order, and LogoutRegistry is the last of them.
    assert_eq!(sorted.len(), Draw::LogoutRegistry as usize + 1, "each is listed");
}
