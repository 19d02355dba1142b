//! Switches that nobody hears.

use drover_tune::examine;
use drover_tune::facts::{Fact, Host, Listening};

use crate::hosts::{healthy, value};

/// A host whose agent listens since it ran for 10 minutes, and hears nobody at the first of its adapters.
fn silent(uptime_s: u64) -> Host {
    let mut host = healthy("a", 1);
    host.uptime_s = Fact::Known(uptime_s);
    let since = "2026-11-27T09:00:00Z".to_owned();
    host.nics[0].neighbours = Fact::unknown(format!("nobody was heard by LLDP since {since}"));
    host.nics[0].listening = Some(Listening {
        since,
        uptime_s: 600,
    });
    host
}

/// Why `switch-frames` was skipped.
fn because(host: Host) -> String {
    let skipped = examine(&[host], &[]).skipped.into_iter();
    let mut of = skipped.filter(|one| one.rule == "switch-frames");
    of.next().unwrap().because
}

#[test]
fn whom_an_agent_does_not_hear_is_skipped_with_how_long_it_listened() {
    let report = examine(&[silent(3600)], &[]);
    let rules: Vec<_> = report.skipped.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(rules, ["switch-frames", "switch-negotiation", "switch-one"]);
    let nobody = "nobody was heard by LLDP in 3000 s, since 2026-11-27T09:00:00Z";
    assert_eq!(because(silent(3600)), nobody);
    let mut host = silent(3600);
    host.uptime_s = Fact::unknown("it is not told");
    let since = "nobody was heard by LLDP since 2026-11-27T09:00:00Z";
    assert_eq!(because(host), since);
}

#[test]
fn before_a_switch_must_have_spoken_nothing_is_said_of_its_silence() {
    let early = because(silent(629));
    let listens = "its agent listens for LLDP since 2026-11-27T09:00:00Z, for 29 s";
    assert!(early.starts_with(listens), "{early}");
    assert!(because(silent(630)).starts_with("nobody"));
    // Nor of firmware that may keep it.
    let kept = |mut host: Host| {
        host.nics[0].driver = Fact::Known("i40e".into());
        value(&mut host.nics[0].dcb).dcbx = None;
        because(host).contains("disable-fw-lldp")
    };
    assert_eq!((kept(silent(629)), kept(silent(630))), (false, true));
}

#[test]
fn whom_systemd_networkd_heard_counts_where_the_agent_hears_nobody_yet() {
    let mut host = silent(601);
    host.nics[0].neighbours = healthy("a", 1).nics[0].neighbours.clone();
    assert_eq!(examine(&[host], &[]).skipped, []);
}
