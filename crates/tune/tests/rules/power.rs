//! What processors' rates are set to, by their policies.

use drover_tune::examine;
use drover_tune::facts::{Fact, Fact::Known, Host};

use crate::hosts::{healthy, names, policy, value};

/// The rule, and its steps as commands.
fn steps(host: Host) -> (String, Vec<String>) {
    let report = examine(&[host], &[]);
    let [rule] = names(&report)[..] else {
        panic!("{report:#?}");
    };
    let change = report.findings[0].found.change.as_ref();
    let steps = change.map(|change| change.steps.iter().map(ToString::to_string).collect());
    (rule.to_owned(), steps.unwrap_or_default())
}

#[test]
fn slow_governors_are_set_policy_by_policy_to_the_best_that_each_may_have() {
    let mut host = healthy("a", 1);
    host.processors.governors = Known([("powersave".to_owned(), 3)].into());
    let policies = value(&mut host.processors.policies);
    policies.insert(2, policy("powersave", None));
    policies.insert(4, policy("conservative", None));
    let first = policies.get_mut(&4).unwrap();
    first.available.remove("performance");
    policies.insert(6, policy("powersave", None));
    let last = policies.get_mut(&6).unwrap();
    last.available.clear();
    let set = |policy: u32, to: &str| {
        format!("echo {to} > /sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor")
    };
    let expected = vec![set(2, "performance"), set(4, "schedutil")];
    assert_eq!(steps(host.clone()), ("cpu-governor".to_owned(), expected));
    // Where no policy is told it is for people.
    host.processors.policies = Fact::unknown("none is told");
    assert_eq!(steps(host).1, <[&str; 0]>::default());
}

#[test]
fn sparing_preferences_are_set_where_the_kernel_takes_one() {
    let mut host = healthy("a", 1);
    host.processors.drivers = Known([("intel_pstate".to_owned(), 8)].into());
    host.processors.preferences = Known([("power".to_owned(), 8)].into());
    let policies = value(&mut host.processors.policies);
    policies.insert(0, policy("powersave", Some("power")));
    policies.insert(1, policy("powersave", Some("balance_performance")));
    policies.insert(2, policy("performance", Some("power")));
    let file = "/sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";
    let expected = vec![format!("echo performance > {file}")];
    assert_eq!(steps(host), ("cpu-preference".to_owned(), expected));
}

#[test]
fn deep_sleep_is_found_where_nobody_keeps_processors_from_it_while_a_guest_moves() {
    let found = |change: &dyn Fn(&mut Host)| {
        let mut host = healthy("a", 1);
        change(&mut host);
        let report = examine(&[host], &[]);
        let found = report.findings.first().map(|finding| &finding.found);
        found.map(|found| (found.read.clone(), found.cost.clone().unwrap()))
    };
    let off = |host: &mut Host| value(&mut host.waking).wished_us = None;
    let (read, cost) = found(&off).unwrap();
    let off_read = "processors take 133 µs to wake from C6, and migration.cpu_latency is off";
    assert_eq!(read, off_read);
    assert_eq!(cost, "each wake takes up to 133 µs instead of 20");
    let (read, _) = found(&|host| value(&mut host.waking).wished_us = Some(200)).unwrap();
    assert!(read.ends_with("migration.cpu_latency is 200 µs"), "{read}");
    // Somebody else holds them; the state is switched off, or is none; a wish that leaves it out.
    let held = found(&|host| {
        off(host);
        value(&mut host.waking).held_us = Known(2);
    });
    let quick = found(&|host| {
        off(host);
        value(&mut host.processors.idle).remove("C6");
    });
    let wished = found(&|host| value(&mut host.waking).wished_us = Some(132));
    assert_eq!((held, quick, wished), (None, None, None));
}
