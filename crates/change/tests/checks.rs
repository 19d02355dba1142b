//! What is refused of a plan, wherever it comes from.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod reports;

use drover_change::{Plan, PlanError};
use drover_tune::{Disruption, NicSetting, Step};
use reports::{all, file, nic, planned, report, rules};

/// What becomes of a plan with one step.
fn checked(disruption: Disruption, step: Step) -> Result<(), PlanError> {
    let (mut plan, _) = planned(&all(), true);
    plan.changes.truncate(1);
    plan.changes[0].disruption = disruption;
    plan.changes[0].steps = vec![step];
    plan.check()
}

#[test]
fn packets_get_no_larger_and_never_so_small_that_addresses_go() {
    let mtu = |from, to| checked(Disruption::BouncesLink, nic(NicSetting::Mtu, from, to));
    assert_eq!(mtu("9000", "1500"), Ok(()));
    assert_eq!(mtu("9000", "1280"), Ok(()));
    assert!(matches!(
        mtu("1500", "9000"),
        Err(PlanError::RaisesMtu { .. })
    ));
    for small in ["1279", "67", "1", "0"] {
        let refused = mtu("9000", small);
        assert!(
            matches!(refused, Err(PlanError::SmallMtu { .. })),
            "{refused:?}"
        );
    }
    assert!(mtu("9000", "-1").is_err() && mtu("9000", "").is_err());
}

#[test]
fn nothing_is_set_but_what_rules_set_and_to_nothing_that_they_do_not_want() {
    let set = |path: &str, to| checked(Disruption::Safe, file(path, to));
    let (wmem, irq) = ("proc/sys/net/ipv4/tcp_wmem", "proc/irq/7/smp_affinity_list");
    let rps = "sys/class/net/ens1f0/queues/rx-0/rps_cpus";
    let stamps = "proc/sys/net/ipv4/tcp_timestamps";
    let xps = "sys/class/net/ens1f0/queues/tx-0/xps_cpus";
    let policy = "sys/devices/system/cpu/cpufreq/policy0";
    let governor = format!("{policy}/scaling_governor");
    let preference = format!("{policy}/energy_performance_preference");
    for (path, fits, not) in [
        (wmem, "4096 16384 8388608", "4096 8388608 16384"),
        (wmem, "4096 16384 4194304", "1 1 1"),
        (wmem, "8192 16384 8388608", "4096 16384"),
        (irq, "0-3,8", ""),
        (rps, "0", "f"),
        (stamps, "1", "0"),
        (xps, "0", "f"),
        (governor.as_str(), "performance", "powersave"),
        (preference.as_str(), "performance", "power"),
    ] {
        assert_eq!(set(path, fits), Ok(()), "{path}");
        let refused = set(path, not);
        assert!(
            matches!(refused, Err(PlanError::Value { .. })),
            "{path}: {refused:?}"
        );
    }
    for path in [
        "proc/sys/kernel/core_pattern",
        "proc/sys/net//ipv4/./tcp_timestamps",
    ] {
        let refused = set(path, "1");
        assert!(
            matches!(refused, Err(PlanError::Setting { .. })),
            "{refused:?}"
        );
    }
    let feature = nic(NicSetting::Feature("rx-all".into()), "off", "on");
    let refused = checked(Disruption::Safe, feature);
    assert!(
        matches!(refused, Err(PlanError::Setting { .. })),
        "{refused:?}"
    );
}

#[test]
fn pause_frames_are_turned_off_and_nothing_else() {
    let set = |to| {
        let step = nic(NicSetting::Pause, "autoneg on rx on tx on", to);
        checked(Disruption::BouncesLink, step)
    };
    for to in [
        "rx off tx off",
        "autoneg off rx off tx off",
        "autoneg on rx off tx off",
    ] {
        assert_eq!(set(to), Ok(()), "{to}");
    }
    let refused = set("off").unwrap_err().to_string();
    let expected = "rx off tx off, with autoneg on, off or left out";
    assert!(refused.contains(expected), "{refused}");
    for to in ["rx on tx off", "autoneg on rx on tx on", "off"] {
        let refused = set(to);
        assert!(
            matches!(refused, Err(PlanError::Value { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn a_change_says_at_least_what_its_settings_do_to_others() {
    let queues = || nic(NicSetting::CombinedChannels, "1", "8");
    let refused = checked(Disruption::Safe, queues());
    assert!(
        matches!(refused, Err(PlanError::Understated { .. })),
        "{refused:?}"
    );
    assert_eq!(checked(Disruption::BouncesLink, queues()), Ok(()));
    // Nor is a finding believed.
    let found = report(&[("nic-queues", Disruption::Safe, vec![queues()])]);
    let (plan, left_out) = planned(&found, false);
    assert_eq!(rules(&plan), <[&str; 0]>::default());
    assert_eq!(left_out[0].1, "it may bounce the link");
    assert!(planned(&found, true).0.bounces());
}

#[test]
fn words_of_a_plan_have_nothing_that_a_terminal_takes_for_an_order() {
    let (plan, _) = planned(&all(), true);
    let escape = || "\u{1b}[2J".to_owned();
    let spoils: [fn(&mut Plan, String); 4] = [
        |plan, word| plan.boot = word,
        |plan, word| plan.version = word,
        |plan, word| plan.changes[0].nic = Some(word),
        |plan, word| plan.changes[0].why = word,
    ];
    for spoil in spoils {
        let mut plan = plan.clone();
        spoil(&mut plan, escape());
        assert!(matches!(plan.check(), Err(PlanError::Word { .. })));
    }
}

#[test]
fn no_link_gets_a_rate_or_a_correction_that_is_none_and_no_adapter_less_than_it_has() {
    let set =
        |what: &NicSetting, from, to| checked(Disruption::BouncesLink, nic(what.clone(), from, to));
    let by_hand = "off speed 10 duplex half";
    let feature = |name: &str| NicSetting::Feature(name.into());
    for (what, from, fits, not) in [
        (NicSetting::Negotiation, "on", "on", by_hand),
        (
            NicSetting::Negotiation,
            "on",
            "off speed 1000 duplex full",
            "on advertise 1000baseT/Full on",
        ),
        (NicSetting::Fec, "rs", "off", "none"),
        (NicSetting::CombinedChannels, "2", "8", "1"),
        (NicSetting::ReceiveRing, "512", "1024", "512"),
        (NicSetting::AdaptiveReceive, "off", "on", "off"),
        (feature("rx-checksum"), "off", "on", "off"),
        (feature("rx-gro"), "off", "on", "off"),
        (feature("rx-lro"), "on", "off", "on"),
    ] {
        assert_eq!(set(&what, from, fits), Ok(()), "{what:?}");
        let refused = set(&what, from, not);
        assert!(
            matches!(refused, Err(PlanError::Value { .. })),
            "{what:?}: {refused:?}"
        );
    }
    // One by hand comes up only if the other end is so, too: its link is to be there afterwards.
    let (mut plan, _) = planned(&all(), true);
    for (what, to, is_by_hand) in [
        (NicSetting::Negotiation, "on", false),
        (NicSetting::Negotiation, "on speed 1000 duplex full", true),
        (NicSetting::Fec, "auto", false),
        (NicSetting::Fec, "rs", true),
        (NicSetting::Mtu, "1500", false),
    ] {
        plan.changes[0].steps = vec![nic(what, "x", to)];
        plan.changes.truncate(1);
        assert_eq!(!plan.links_by_hand().is_empty(), is_by_hand, "{to}");
    }
    for feature in ["rx-checksum", "rx-lro"].map(feature) {
        let step = nic(feature, "off", "off");
        let refused = checked(Disruption::Safe, step);
        assert!(
            matches!(refused, Err(PlanError::Understated { .. })),
            "{refused:?}"
        );
    }
}
