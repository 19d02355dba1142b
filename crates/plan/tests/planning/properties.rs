//! What holds for every plan.

use std::hash::{BuildHasher, RandomState};

use drover_plan::plan::Step;
use drover_plan::plan::Then;
use drover_plan::policy::CannotMove;
use drover_plan::refusal::Unmovable;
use drover_plan::request::Avoid;
use drover_plan::{Plan, Progress, Refusal, Request, check_move, plan, text};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::checker::{Run, takers};
use crate::models::{Case, case};

fn planned(case: &Case) -> Result<Plan, Refusal> {
    plan(&case.inventory, &case.policy, &case.request)
}

/// How many cases each property is tried with, where no number is given.
const CASES: u32 = 3_000;

/// Other cases in each run; the seed is printed, and shown when a property fails.
fn config() -> ProptestConfig {
    let given = |name| std::env::var(name).ok();
    let seed = given("DROVER_PLAN_SEED").and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one(()));
    let cases = given("DROVER_PLAN_CASES").and_then(|cases| cases.parse().ok());
    let cases = cases.unwrap_or(CASES);
    eprintln!("the same {cases} cases: DROVER_PLAN_SEED={seed} DROVER_PLAN_CASES={cases}");
    ProptestConfig {
        rng_seed: RngSeed::Fixed(seed),
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_limit_is_exceeded_at_any_moment_in_whatever_order_a_wave_is_carried_out(
        case in case(),
        choices in prop::collection::vec(any::<u8>(), 24),
    ) {
        if let Ok(plan) = planned(&case) {
            let kept = plan.afterwards.losses.kept && (is_drain(&case.request) || is_kept_now(&case));
            Run::new(&case.inventory, &case.policy, &plan).check(&choices, kept);
        }
    }

    #[test]
    fn the_same_facts_in_another_order_give_the_same_answer(
        case in case(),
        seed in any::<u64>(),
    ) {
        let mut other = case.clone();
        let turn = |len: usize| usize::try_from(seed).unwrap_or(7) % len.max(1);
        let (hosts, vms) = (turn(other.inventory.hosts.len()), turn(other.inventory.vms.len()));
        other.inventory.hosts.rotate_left(hosts);
        other.inventory.vms.rotate_left(vms);
        other.inventory.vms.reverse();
        prop_assert_eq!(planned(&case), planned(&other));
    }

    #[test]
    fn a_plan_may_begin_while_all_is_as_it_was(case in case()) {
        let Ok(plan) = planned(&case) else { return Ok(()) };
        for step in plan.steps.iter().filter(|step| step.wave == 1) {
            let waits = |step: &Step| (step.vm.clone(), (step.to.clone(), Progress::Waits));
            let others = plan.steps.iter().map(waits).collect();
            let way = (&step.vm, &step.from, &step.to);
            let may = check_move(&case.inventory, &case.policy, &case.request, way, &others);
            prop_assert_eq!(may, Ok(()), "{}", step.vm);
        }
    }

    #[test]
    fn every_guest_of_a_drained_host_moves_stays_or_is_told_why_it_cannot(case in case()) {
        let Request::Drain { hosts, .. } = &case.request else { return Ok(()) };
        let Ok(plan) = planned(&case) else { return Ok(()) };
        for vm in case.inventory.vms.iter().filter(|vm| hosts.contains(&vm.host)) {
            let times = plan.steps.iter().filter(|step| step.vm == vm.name).count()
                + plan.stays.iter().filter(|stay| stay.vm == vm.name).count()
                + plan.unmoved.iter().filter(|guest| guest.vm == vm.name).count();
            prop_assert_eq!(times, 1, "{}", vm.name);
        }
        let others = plan.steps.iter().filter(|step| !hosts.contains(&step.from)).count();
        prop_assert!(others == 0 || case.policy.allow_displacing);
        prop_assert_eq!(plan.cordon.iter().collect::<Vec<_>>(), hosts.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_guest_that_cannot_move_is_refused_by_each_other_host_for_a_reason(case in case()) {
        let unmoved = match planned(&case) {
            Ok(plan) => plan.unmoved,
            Err(Refusal::Blocked { unmoved, .. }) => {
                prop_assert!(unmoved.iter().any(|guest| guest.then == Then::Blocks));
                unmoved
            }
            Err(_) => return Ok(()),
        };
        for guest in &unmoved {
            let vm = case.inventory.vms.iter().find(|vm| vm.name == guest.vm).unwrap();
            let avoid = case.request.avoid();
            let follows_a_failure = is_drain(&case.request) && guest.then == Then::RunsOn && !avoid.is_empty();
            let nor_suspended = is_drain(&case.request)
                && vm.policy.cannot_move == CannotMove::Suspend
                && matches!(guest.why, Unmovable::Blockers { .. });
            let expected = nor_suspended || blocks(&case.request, vm.policy.cannot_move);
            prop_assert!(follows_a_failure || (guest.then == Then::Blocks) == expected, "{guest:?}");
            if avoid.get(&guest.vm).is_some_and(|hosts| !hosts.is_empty()) {
                prop_assert!(matches!(guest.then, Then::RunsOn | Then::NotHome), "{guest:?}");
            }
            let Unmovable::NoHost { hosts } = &guest.why else { continue };
            let named: usize = hosts.iter().map(|hosts| hosts.count).sum();
            let expected = match case.request {
                Request::Drain { .. } => case.inventory.hosts.len() - 1,
                _ => 1,
            };
            let bundle = !vm.policy.together.is_empty();
            prop_assert!(named == expected || bundle, "{named} of {expected}: {hosts:?}");
            prop_assert!(hosts.iter().all(|hosts| hosts.count == hosts.hosts.len()));
        }
    }

    #[test]
    fn nobody_is_sent_to_a_host_that_takes_no_guests_and_all_is_said_in_words(case in case()) {
        match planned(&case) {
            Ok(plan) => {
                let takers = takers(&case.inventory, &case.policy, &case.request);
                prop_assert!(plan.steps.iter().all(|step| takers.contains(&&step.to)));
                let words = text::plan(&plan);
                prop_assert!(plan.steps.iter().all(|step| words.contains(step.vm.as_str())));
            }
            Err(refusal) => {
                let words = text::refusal(&refusal, &case.inventory);
                prop_assert!(words.starts_with("No plan: "));
            }
        }
    }

    #[test]
    fn a_higher_priority_never_starts_later_between_the_same_hosts(case in case()) {
        let Ok(plan) = planned(&case) else { return Ok(()) };
        if matches!(case.request, Request::Resume { .. }) {
            return Ok(());
        }
        let priority = |step: &drover_plan::plan::Step| {
            case.inventory.vms.iter().find(|vm| vm.name == step.vm).unwrap().policy.priority
        };
        for one in &plan.steps {
            for other in plan.steps.iter().filter(|other| other.wave == one.wave) {
                let same = one.from == other.from && one.to == other.to;
                prop_assert!(!same || priority(one) <= priority(other) || one.starts_ms <= other.starts_ms);
            }
        }
    }

    #[test]
    fn a_rebalancing_gains_what_was_asked_for_or_moves_nothing(case in case()) {
        let Request::Rebalance { most_moves, .. } = case.request else { return Ok(()) };
        let plan = planned(&case);
        prop_assert!(plan.as_ref().is_ok_and(|plan| plan.steps.len() <= most_moves as usize)
            || matches!(plan, Err(Refusal::TooManyLosses { .. })), "{plan:?}");
    }
}

fn is_drain(request: &Request) -> bool {
    matches!(request, Request::Drain { .. })
}

/// Whether the cluster can lose now what the policy wants. Where it cannot, a return or a rebalancing
/// is planned all the same.
fn is_kept_now(case: &Case) -> bool {
    let nothing = Request::Rebalance {
        min_gain: u32::MAX,
        most_moves: 1,
        avoid: Avoid::new(),
        with_disks: false,
    };
    let now = plan(&case.inventory, &case.policy, &nothing);
    now.is_ok_and(|now| now.steps.is_empty() && now.afterwards.losses.kept)
}

fn blocks(request: &Request, policy: CannotMove) -> bool {
    is_drain(request) && policy == CannotMove::Block
}
