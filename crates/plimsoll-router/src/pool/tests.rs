use std::time::Duration;

use super::*;
use crate::upstream::{InFlight, MemberState, SLOW_START, UpstreamKey};

const START: Moment = Moment(1_000_000);

fn upstream(name: &str) -> Arc<Upstream> {
    let key = UpstreamKey { replica: name.into(), generation: 1, port: 80 };
    let upstream =
        Upstream::new(key, UpstreamTarget::Local(([127, 0, 0, 1], 80).into()), Arc::default());
    upstream.set_state(Some(MemberState::Ready), START);
    Arc::new(upstream)
}

fn upstreams(count: usize) -> Vec<Arc<Upstream>> {
    (0..count).map(|number| upstream(&format!("web-{number}"))).collect()
}

/// How often each is chosen in many rolls, when what was chosen ends at once.
fn shares(members: &[Arc<Upstream>], now: Moment) -> Vec<usize> {
    let mut counts = vec![0; members.len()];
    for roll in 0..10_000 {
        let chosen = pick(members, &[], now, roll * 7_919).expect("there is one");
        let at = members.iter().position(|one| Arc::ptr_eq(one, chosen)).expect("a member");
        counts[at] += 1;
    }
    counts
}

fn old() -> Moment {
    START.after(SLOW_START)
}

#[test]
fn nobody_is_chosen_from_nobody_and_one_from_one() {
    assert!(pick(&[], &[], old(), 1).is_none());
    let one = upstreams(1);
    assert!(Arc::ptr_eq(pick(&one, &[], old(), 1).unwrap(), &one[0]));
    assert!(pick(&one, &one, old(), 1).is_none(), "it was tried already");
}

#[test]
fn equal_inputs_choose_alike() {
    let members = upstreams(9);
    for roll in 0..1_000 {
        let (a, b) = (pick(&members, &[], old(), roll), pick(&members, &[], old(), roll));
        assert!(Arc::ptr_eq(a.unwrap(), b.unwrap()));
    }
}

#[test]
fn idle_upstreams_get_equal_shares() {
    for count in [2, 3, 7] {
        for share in shares(&upstreams(count), old()) {
            let fair = 10_000 / count;
            assert!(share.abs_diff(fair) < fair / 8, "{share} of 10000 among {count}");
        }
    }
}

#[test]
fn of_two_the_one_with_less_under_way_is_chosen() {
    let members = upstreams(2);
    let _busy = members[0].begin();
    assert_eq!(shares(&members, old()), [0, 10_000]);
}

#[test]
fn what_is_under_way_spreads_evenly() {
    let members = upstreams(10);
    let held: Vec<InFlight> =
        (0..1_000).map(|roll| pick(&members, &[], old(), roll * 31).unwrap().begin()).collect();
    for member in &members {
        assert!(member.in_flight().abs_diff(100) <= 5, "{member:?} has {}", member.in_flight());
    }
    drop(held);
    assert!(members.iter().all(|member| member.in_flight() == 0));
}

#[test]
fn an_upstream_that_refuses_is_left_out_for_longer_each_time_until_it_answers() {
    let members = upstreams(3);
    let mut now = old();
    for (case, quiet) in [("first", 250), ("second", 500), ("third", 1_000)] {
        members[0].note_failure(now);
        members[0].note_failure(now);
        let last = now.after(Duration::from_millis(quiet - 1));
        assert_eq!(shares(&members, last)[0], 0, "{case}");
        now = now.after(Duration::from_millis(quiet));
        assert!(shares(&members, now)[0] > 0, "{case}");
    }
    members[0].note_success();
    members[0].note_failure(now);
    assert!(!members[0].is_ejected(now.after(Duration::from_millis(250))), "it began anew");
}

#[test]
fn one_at_a_time_tries_an_upstream_that_failed_and_it_stays_out_until_that_is_done() {
    let members = upstreams(3);
    let at = |millis| old().after(Duration::from_millis(millis));
    let due = |now| (0..100).any(|roll| due_for_probe(&members, &[], now, roll).next().is_some());
    assert!(!due(at(0)) && !members[0].claim_probe(at(0)), "all is well");
    members[0].note_failure(at(0));
    assert!(!due(at(249)) && !members[0].claim_probe(at(249)), "it has just failed");
    assert!(due(at(250)) && members[0].claim_probe(at(250)));
    assert!(!due(at(251)) && !members[0].claim_probe(at(251)), "somebody tries already");
    assert_eq!(shares(&members, at(3_000))[0], 0, "and has not been answered");
    members[0].note_failed_probe(at(3_000));
    assert!(!members[0].claim_probe(at(3_499)) && members[0].claim_probe(at(3_500)));
    members[0].note_success();
    assert!(!members[0].is_suspect() && shares(&members, at(3_501))[0] > 0);
}

#[test]
fn there_is_another_if_it_is_neither_tried_nor_left_out() {
    let members = upstreams(3);
    let other = |tried| has_other(&members, tried, &members[0], old());
    assert!(other(&[]) && other(&members[..2]));
    members[2].note_failure(old());
    assert!(other(&[]) && !other(&members[..2]));
    assert!(!has_other(&members[..1], &[], &members[0], old()), "it is alone");
}

#[test]
fn an_ejection_ends_within_seconds_however_often_it_failed() {
    let one = upstream("web-0");
    let mut now = old();
    for _ in 0..100 {
        one.note_failure(now);
        assert!(one.ejected_until().since(now) <= Duration::from_secs(8));
        now = one.ejected_until();
    }
}

#[test]
fn the_last_one_is_never_left_out() {
    let members = upstreams(3);
    for member in &members {
        member.note_failure(old());
    }
    let all = shares(&members, old());
    assert!(all.iter().all(|share| *share > 0), "with all failing, all are tried: {all:?}");
}

#[test]
fn what_was_tried_is_not_tried_again() {
    let members = upstreams(4);
    for roll in 0..1_000 {
        let chosen = pick(&members, &members[..3], old(), roll).unwrap();
        assert!(Arc::ptr_eq(chosen, &members[3]));
    }
}

#[test]
fn an_ejected_one_is_tried_before_none() {
    let members = upstreams(2);
    members[1].note_failure(old());
    let chosen = pick(&members, &members[..1], old(), 5).unwrap();
    assert!(Arc::ptr_eq(chosen, &members[1]));
}

#[test]
fn a_newcomer_gets_its_share_by_and_by() {
    let members = upstreams(2);
    members[1].set_state(Some(MemberState::Joining), old());
    members[1].set_state(Some(MemberState::Ready), old());
    let mut before = 0;
    for (case, age, most) in
        [("at once", 0, 1_000), ("half way", 5, 4_000), ("in the end", 10, 5_500)]
    {
        let share = shares(&members, old().after(Duration::from_secs(age)))[1];
        assert!(share > before && share < most, "{case}: {share}");
        before = share;
    }
}

#[test]
fn newcomers_among_themselves_are_equals() {
    let members = upstreams(4);
    for share in shares(&members, START) {
        assert!(share.abs_diff(2_500) < 300, "{share}");
    }
}

fn elsewhere(name: &str) -> Arc<Upstream> {
    let key = UpstreamKey { replica: name.into(), generation: 1, port: 0 };
    let upstream = Upstream::new(key, UpstreamTarget::Via { node: "birch".into() }, Arc::default());
    upstream.set_state(Some(MemberState::Ready), START);
    Arc::new(upstream)
}

#[test]
fn what_is_on_this_node_comes_first_until_it_has_a_good_deal_more_to_do() {
    let members = [elsewhere("api-1"), upstream("api-2"), elsewhere("api-3")];
    let chosen =
        |roll| pick_local_first(&members, &[], old(), roll).unwrap().key().replica.to_string();
    assert!((0..100).all(|roll| chosen(roll * 7_919) == "api-2"));
    let busy: Vec<InFlight> = (0..=LOCAL_PREFERENCE).map(|_| members[1].begin()).collect();
    assert!((0..100).any(|roll| chosen(roll * 7_919) != "api-2"));
    drop(busy);
    members[1].note_failure(old());
    assert!((0..100).all(|roll| chosen(roll * 7_919) != "api-2"), "its connections fail");
    let tried = [Arc::clone(&members[1])];
    let other = pick_local_first(&members, &tried, START.after(SLOW_START * 9), 1).unwrap();
    assert!(!Arc::ptr_eq(other, &members[1]), "it was tried already");
}
