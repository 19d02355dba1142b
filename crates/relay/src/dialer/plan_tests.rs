use std::net::Ipv4Addr;

use drover_wire::limits::LANES_MAX;

use super::*;
use crate::limits::ROOM_AGAIN;

const CARRIED: Use = Use {
    tried: true,
    carried: true,
    small_only: false,
};
const STALLED: Use = Use {
    tried: true,
    carried: false,
    small_only: true,
};
const CUT: Use = Use {
    small_only: false,
    ..STALLED
};

fn ms(count: u64) -> Time {
    Time::from_millis(count)
}

fn end(name: &str) -> PathEnd {
    PathEnd {
        interface: name.into(),
        address: Ipv4Addr::LOCALHOST.into(),
    }
}

fn path(number: u16) -> Path {
    Path {
        id: PathId(number),
        source: end("near"),
        destination: end("far"),
        rate: None,
        mtu: 1500,
    }
}

/// Paths whose lanes are all up: lane `n` is on path `n % paths`.
fn all_up(paths: u16, lanes_per_path: u16) -> Plan {
    let lanes = LaneId::from(paths * lanes_per_path);
    let mut plan = Plan::new(lanes_per_path..=lanes_per_path, lanes);
    for number in 0..paths {
        plan.add_path(ms(0), path(number));
    }
    for (lane, path) in (0..lanes).zip((0..paths).cycle()) {
        plan.opened(ms(0), lane, PathId(path));
    }
    assert_eq!((plan.next(ms(0)), plan.deadline()), (None, None));
    plan
}

fn all(plan: &mut Plan, now: Time) -> Vec<Dial> {
    std::iter::from_fn(|| plan.next(now)).collect()
}

fn unreachable() -> Answer {
    Answer::Unreachable("no route".into())
}

#[test]
fn a_lost_lane_is_dialled_again_at_once_by_a_number_of_its_own() {
    let mut plan = all_up(2, 2);
    plan.lost(ms(50), 1, CARRIED, "reset");
    let dials = all(&mut plan, ms(50));
    assert_eq!(dials.len(), 1);
    assert_eq!((dials[0].lane, dials[0].path.id), (4, PathId(1)));
    assert_eq!(plan.changes(), [], "the path has another lane");
    plan.answered(ms(60), &dials[0], Answer::Up);
    assert_eq!((plan.next(ms(60)), plan.deadline()), (None, None));
}

#[test]
fn a_path_without_a_lane_is_dialled_once_and_whole_as_soon_as_it_answers() {
    let mut plan = all_up(2, 3);
    for lane in [0, 2, 4] {
        plan.lost(ms(50), lane, CARRIED, "reset");
    }
    assert_eq!(plan.changes(), [Change::Lost(PathId(0))]);
    let first = all(&mut plan, ms(50));
    assert_eq!(first.len(), 1);
    plan.answered(ms(250), &first[0], Answer::Up);
    assert_eq!(plan.changes(), [Change::Back(PathId(0), ms(200))]);
    assert_eq!(all(&mut plan, ms(250)).len(), 2);
}

#[test]
fn a_path_that_does_not_answer_is_dialled_for_ever_at_bounded_intervals() {
    let mut plan = all_up(1, 2);
    plan.lost(ms(0), 0, CARRIED, "reset");
    plan.lost(ms(0), 1, CARRIED, "reset");
    let mut now = ms(0);
    for round in 0..1000 {
        let dials = all(&mut plan, now);
        assert_eq!(dials.len(), 1, "round {round}");
        plan.answered(now, &dials[0], unreachable());
        let due = plan.deadline().unwrap();
        assert!(due - now <= ms(1000), "round {round}: {:?}", due - now);
        assert!(round > 0 || due - now == ms(100));
        now = due;
    }
    let report = &plan.report()[0];
    assert_eq!((report.state, report.attempts), (PathState::Dialling, 1000));
    assert_eq!(report.cause.as_deref(), Some("no route"));
}

#[test]
fn attempts_that_nobody_heard_of_use_up_no_numbers() {
    let mut plan = all_up(1, 1);
    plan.lost(ms(0), 0, CARRIED, "reset");
    for round in 0..100_000u64 {
        let dial = plan.next(ms(2000 * round)).unwrap();
        assert_eq!(dial.lane, 1);
        plan.answered(ms(2000 * round), &dial, unreachable());
    }
}

#[test]
fn a_path_that_loses_its_lane_all_the_time_is_dialled_for_ever_by_numbers_of_their_own() {
    let mut plan = all_up(1, 1);
    let mut lane = 0;
    let mut now = ms(0);
    for expected in 1..=200_000 {
        plan.lost(now, lane, CARRIED, "reset");
        let dial = plan.next(now).unwrap();
        assert_eq!(dial.lane, expected);
        plan.answered(now, &dial, Answer::Up);
        (lane, now) = (dial.lane, now + ms(1));
    }
}

#[test]
fn a_lane_that_carried_nothing_is_dialled_again_after_a_pause() {
    let mut plan = all_up(1, 1);
    plan.lost(ms(10), 0, Use::default(), "closed by the peer");
    assert_eq!(plan.next(ms(10)), None);
    assert_eq!(plan.deadline(), Some(ms(110)));
}

#[test]
fn a_lane_that_is_lost_before_its_dial_is_answered_is_dialled_again() {
    let mut plan = all_up(1, 1);
    plan.lost(ms(0), 0, CARRIED, "reset");
    let dial = plan.next(ms(0)).unwrap();
    plan.lost(ms(5), dial.lane, CARRIED, "reset");
    plan.answered(ms(6), &dial, Answer::Up);
    let again = plan.next(ms(6)).unwrap();
    assert_ne!(again.lane, dial.lane);
}

#[test]
fn a_path_whose_interface_is_down_is_not_dialled_and_at_once_when_it_is_back() {
    let mut plan = all_up(2, 2);
    plan.link_lost(PathId(0), "nic0 lost its carrier");
    for lane in [0, 2] {
        plan.lost(ms(10), lane, CARRIED, "nic0 lost its carrier");
    }
    assert_eq!((plan.next(ms(10_000)), plan.deadline()), (None, None));
    let report = &plan.report()[0];
    assert_eq!(report.state, PathState::NoLink);
    assert_eq!(report.cause.as_deref(), Some("nic0 lost its carrier"));

    plan.link_back(ms(10_000), PathId(0), end("renamed"));
    let dial = plan.next(ms(10_000)).unwrap();
    assert_eq!(dial.path.source.interface, "renamed");
}

#[test]
fn a_path_that_joins_is_dialled_like_one_that_was_lost() {
    let mut plan = all_up(1, 2);
    plan.add_path(ms(100), path(1));
    let first = all(&mut plan, ms(100));
    assert_eq!(first.len(), 1);
    plan.answered(ms(101), &first[0], Answer::Up);
    assert_eq!(plan.changes(), [Change::Back(PathId(1), ms(1))]);
    assert_eq!(all(&mut plan, ms(101)).len(), 1);
}

#[test]
fn all_paths_together_never_have_more_lanes_than_a_session_takes() {
    let mut plan = Plan::new(16..=16, 0);
    for number in 0..32 {
        plan.add_path(ms(0), path(number));
    }
    let mut dials = all(&mut plan, ms(0));
    assert_eq!(dials.len(), 32, "one on each path to begin with");
    let mut up = 0;
    while let Some(dial) = dials.pop() {
        plan.answered(ms(1), &dial, Answer::Up);
        up += 1;
        dials.extend(all(&mut plan, ms(1)));
    }
    assert_eq!(up, usize::from(LANES_MAX));
}

#[test]
fn a_path_that_joins_a_full_session_is_made_room_for_and_nothing_is_due_at_once_meanwhile() {
    let mut plan = all_up(4, 16);
    assert_eq!(plan.make_room(ms(0)), [], "nobody waits");
    plan.add_path(ms(100), path(4));
    let spare = plan.make_room(ms(100));
    assert_eq!(spare.len(), 16, "from 16 to 12 on each of four: {spare:?}");
    assert_eq!(plan.make_room(ms(101)), [], "they have time to leave");
    let due = plan.deadline().unwrap();
    assert_eq!((plan.next(ms(101)), due), (None, ms(100) + ROOM_AGAIN));
    assert_eq!(
        plan.make_room(due),
        spare,
        "those that stayed are asked again"
    );
    for lane in spare {
        plan.retired(lane);
    }
    let mut dials = all(&mut plan, due);
    assert_eq!(dials.len(), 1, "one to find out: {dials:?}");
    let mut joined = 0;
    while let Some(dial) = dials.pop() {
        assert_eq!(dial.path.id, PathId(4));
        plan.answered(due, &dial, Answer::Up);
        joined += 1;
        dials.extend(all(&mut plan, due));
    }
    assert_eq!((joined, plan.deadline()), (12, None));
}

/// Everything that is dialled comes up, and what leaves is gone at once; the lanes of each path.
fn settled(plan: &mut Plan, now: Time) -> Vec<u16> {
    loop {
        for dial in all(plan, now) {
            plan.answered(now, &dial, Answer::Up);
        }
        let spare = plan.make_room(now);
        spare.iter().for_each(|lane| plan.retired(*lane));
        if spare.is_empty() && plan.deadline().is_none() {
            return plan.paths.values().map(|path| path.up).collect();
        }
    }
}

#[test]
fn dead_paths_leave_their_part_of_the_lanes_to_the_living_until_they_are_back() {
    let mut plan = Plan::new(16..=16, 0);
    for number in 0..8 {
        plan.add_path(ms(0), path(number));
    }
    assert_eq!(settled(&mut plan, ms(0)), [8; 8]);
    for number in 2..8 {
        plan.link_lost(PathId(number), "pulled");
    }
    let on_dead = plan.open.iter().filter(|(_, open)| open.path.0 >= 2);
    for lane in on_dead.map(|(lane, _)| *lane).collect::<Vec<_>>() {
        plan.lost(ms(10), lane, CARRIED, "pulled");
    }
    assert_eq!(settled(&mut plan, ms(10)), [16, 16, 0, 0, 0, 0, 0, 0]);
    for number in 2..8 {
        plan.link_back(ms(9000), PathId(number), end("near"));
    }
    assert_eq!(settled(&mut plan, ms(9000)), [8; 8]);
}

#[test]
fn a_path_that_is_dialled_in_vain_counts_as_dead_after_some_attempts_and_is_dialled_on() {
    let mut plan = Plan::new(32..=32, 0);
    for number in 0..4 {
        plan.add_path(ms(0), path(number));
    }
    let mut lanes = Vec::new();
    for now in (0..5000).step_by(50).map(ms) {
        while let Some(dial) = plan.next(now) {
            let works = dial.path.id == PathId(0);
            let answer = if works { Answer::Up } else { unreachable() };
            plan.answered(now, &dial, answer);
        }
        lanes.push(plan.open.len());
    }
    assert_eq!((lanes[0], lanes.last()), (16, Some(&32)));
    let attempts = |number: usize| plan.report()[number].attempts;
    assert!((1..4).all(|number| attempts(number) > QUICK_ATTEMPTS));
}

/// Lanes that come up one after the other and on which nothing gets through; the sizes of their
/// segments.
fn stall(plan: &mut Plan, now: &mut Time, lanes: usize) -> Vec<Option<u16>> {
    let mut sizes = Vec::new();
    for _ in 0..lanes {
        *now = plan.deadline().unwrap().max(*now);
        let dial = plan.next(*now).unwrap();
        sizes.push(dial.segment);
        plan.answered(*now, &dial, Answer::Up);
        *now += ms(1000);
        plan.lost(*now, dial.lane, STALLED, "nothing was confirmed for 1 s");
    }
    sizes
}

#[test]
fn a_path_on_which_large_packets_vanish_is_tried_with_smaller_segments_and_then_rarely() {
    let mut plan = all_up(1, 1);
    let mut now = ms(1000);
    plan.lost(now, 0, CARRIED, "silent");
    let sizes = stall(&mut plan, &mut now, 6);
    assert_eq!(
        sizes,
        [None, None, Some(1220), Some(1220), Some(536), Some(536)]
    );
    let told = plan.changes();
    assert!(
        told.contains(&Change::Narrowed(PathId(0), 1220)),
        "{told:?}"
    );
    assert!(told.contains(&Change::GivenUp(PathId(0))), "{told:?}");
    let report = &plan.report()[0];
    assert_eq!(report.state, PathState::GivenUp);
    assert!(report.cause.as_ref().unwrap().contains("536"));
    assert_eq!(
        plan.deadline(),
        Some(now + GIVEN_UP_PAUSE),
        "rarely, but tried"
    );
    assert_eq!(stall(&mut plan, &mut now, 2), [None, None]);
    assert_eq!(plan.deadline(), Some(now + GIVEN_UP_PAUSE));
}

#[test]
fn smaller_segments_that_carry_stay_in_use_and_are_told() {
    let mut plan = all_up(1, 1);
    let mut now = ms(1000);
    plan.lost(now, 0, CARRIED, "silent");
    stall(&mut plan, &mut now, 2);
    let dial = plan.next(now).unwrap();
    plan.answered(now, &dial, Answer::Up);
    let report = &plan.report()[0];
    assert_eq!((report.state, report.segment), (PathState::Up, Some(1220)));
    assert!(report.cause.as_ref().unwrap().contains("1220"));
    plan.lost(now + ms(5000), dial.lane, CARRIED, "reset");
    assert_eq!(plan.next(now + ms(5000)).unwrap().segment, Some(1220));
}

#[test]
fn lanes_that_die_together_before_anything_got_through_count_once() {
    let mut plan = all_up(1, 4);
    for lane in 0..4 {
        plan.lost(ms(2000), lane, STALLED, "silent");
    }
    let dial = plan.next(ms(2100)).unwrap();
    assert_eq!(dial.segment, None);
}

#[test]
fn lanes_that_are_cut_young_or_unused_say_nothing_about_packets() {
    for (used, age) in [(STALLED, ms(200)), (Use::default(), ms(60_000))] {
        let mut plan = all_up(1, 1);
        plan.lost(ms(0), 0, CARRIED, "reset");
        let mut now = ms(0);
        for _ in 0..50 {
            now = plan.deadline().unwrap().max(now);
            let dial = plan.next(now).unwrap();
            assert_eq!(dial.segment, None);
            plan.answered(now, &dial, Answer::Up);
            now += age;
            plan.lost(now, dial.lane, used, "reset");
        }
    }
}

#[test]
fn a_greeting_that_vanishes_counts_as_a_large_packet() {
    let mut plan = all_up(1, 1);
    plan.lost(ms(0), 0, CARRIED, "silent");
    let mut now = ms(0);
    for expected in [None, None, Some(1220)] {
        now = plan.deadline().unwrap().max(now);
        let dial = plan.next(now).unwrap();
        assert_eq!(dial.segment, expected);
        plan.answered(now, &dial, Answer::Silent("no answer in 5 s".into()));
    }
}

#[test]
fn a_lane_too_many_is_named_once_and_not_dialled_again() {
    let mut plan = Plan::new(1..=4, 1);
    plan.add_path(ms(0), path(0));
    plan.opened(ms(0), 0, PathId(0));
    // What the path carries does not depend on its lanes.
    let mut now = ms(0);
    let spare = loop {
        now += ms(100);
        let bytes = now.as_millis() as u64 * 100_000;
        if let Some(lane) = plan.look(now, PathId(0), [bytes, 0], true) {
            break lane;
        }
        while let Some(dial) = plan.next(now) {
            plan.answered(now, &dial, Answer::Up);
        }
        assert!(now < ms(5000));
    };
    assert_eq!(spare, 1);
    assert_eq!(plan.look(now + ms(100), PathId(0), [0; 2], true), None);
    plan.retired(spare);
    assert_eq!(plan.next(now + ms(200)), None);
    assert_eq!(plan.report()[0].state, PathState::Up);
}

#[test]
fn lanes_that_were_not_opened_at_first_are_dialled_at_once_and_their_silence_counts_once() {
    let mut plan = Plan::new(2..=2, 4);
    for number in [0, 1] {
        plan.add_path(ms(0), path(number));
    }
    for lane in [0, 2] {
        plan.opened(ms(0), lane, PathId(0));
        plan.not_opened(PathId(1), "no answer", true);
    }
    let mut now = ms(0);
    for expected in [None, Some(1220)] {
        let dials = all(&mut plan, now);
        assert_eq!(dials.len(), 1);
        assert_eq!((dials[0].path.id, dials[0].segment), (PathId(1), expected));
        now += ms(2000);
        plan.answered(now, &dials[0], Answer::Silent("no answer in 2 s".into()));
    }
}

#[test]
fn a_path_that_was_just_lost_is_asked_often_and_a_slow_one_is_waited_for() {
    let mut plan = all_up(1, 1);
    plan.lost(ms(0), 0, CARRIED, "silent");
    let mut now = ms(0);
    let mut patience = Vec::new();
    while patience.len() < 8 {
        if let Some(dial) = plan.next(now) {
            patience.push(dial.patience);
            plan.answered(now, &dial, unreachable());
        }
        now += ms(50);
    }
    assert!(patience[..4].iter().all(|p| *p == QUICK_PATIENCE));
    assert!(patience[4..].iter().all(|p| *p == REDIAL_PATIENCE));
}

#[test]
fn a_path_that_is_cut_again_and_again_just_after_a_lane_opened_is_not_taken_for_one_of_small_packets()
 {
    let mut plan = all_up(1, 1);
    let (mut lane, mut now) = (0, ms(0));
    for _ in 0..20 {
        plan.lost(now + ms(1000), lane, CUT, "nothing came back for 1000 ms");
        now += ms(3000);
        let dial = plan.next(now).unwrap();
        assert_eq!(dial.segment, None);
        plan.answered(now, &dial, Answer::Up);
        lane = dial.lane;
    }
    let changes = plan.changes();
    let verdict = |change: &Change| matches!(change, Change::Narrowed(..) | Change::GivenUp(_));
    assert!(!changes.iter().any(verdict), "{changes:?}");
}

#[test]
fn a_link_that_is_back_is_tried_with_whole_segments_again() {
    let mut plan = all_up(1, 1);
    let (mut lane, mut now) = (0, ms(0));
    while plan.report()[0].segment.is_none() {
        plan.lost(
            now + ms(1000),
            lane,
            STALLED,
            "nothing came back for 1000 ms",
        );
        now += ms(3000);
        let dial = plan.next(now).unwrap();
        plan.answered(now, &dial, Answer::Up);
        lane = dial.lane;
    }
    plan.link_lost(PathId(0), "down");
    plan.lost(now, lane, STALLED, "down");
    plan.link_back(now + ms(5000), PathId(0), end("near"));
    assert_eq!(plan.next(now + ms(5000)).unwrap().segment, None);
    assert_eq!(plan.report()[0].cause, Some("down".into()));
}
