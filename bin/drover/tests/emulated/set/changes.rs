//! `drover doctor plan`, `apply` and `undo` on real drivers.

use std::fs;

use drover_tune::facts::Host as Facts;

use super::agent::Host;
use crate::here::{Until, sh};

/// What people may have left behind: small rings, packets that are handed up one by one, a rate by hand, no time stamps.
const BADLY: &str = "ethtool -L near0 combined 1
ethtool -G near0 rx 64
ethtool -K near1 gro off
ethtool -s intel0 speed 100 duplex full autoneg off
echo 0 >/proc/sys/net/ipv4/tcp_timestamps";

const AS_IT_WAS: &str = "ethtool -L near0 combined 4
ethtool -G near0 rx 256
ethtool -K near1 gro on
ethtool -s intel0 autoneg on
echo 1 >/proc/sys/net/ipv4/tcp_timestamps";

/// No rule wants more queues for 1 Gbit/s; a person may write it into a plan.
const QUEUES: &str = r#"
[[changes]]
rule = "nic-queues"
nic = "near0"
disruption = "bounces-link"
why = "it is wanted"

[[changes.steps]]
nic = "near0"
setting = "combined-channels"
from = "1"
to = "4"
"#;

/// The number behind a word of `ethtool`, of what is set now.
fn now(line: &str, word: &str) -> String {
    let said = sh(line);
    let (_, current) = said.split_once("Current hardware settings:").unwrap();
    let found = current.lines().find_map(|line| line.strip_prefix(word));
    found
        .unwrap_or_else(|| panic!("no {word} in {said}"))
        .trim()
        .to_owned()
}

fn mbit(facts: &Facts, nic: &str) -> Option<u64> {
    let link = facts.nic(nic)?.link.known()?;
    Some(link.speed?.0 / 1_000_000)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn what_the_doctor_sets_on_real_drivers_and_undoes_leaves_every_fact_as_before() {
    let host = Host::start().await;
    let _as_it_was = Until(AS_IT_WAS);
    sh(&format!("set -e\n{BADLY}"));
    let before = host.carried().await;
    assert_eq!(mbit(&before, "intel0"), Some(100));

    let file = host.place.path("tune.plan");
    let path = file.to_str().unwrap();
    host.done(&["doctor", "plan", "--bounce", "-o", path]);
    let plan = fs::read_to_string(&file).unwrap();
    for line in [
        "#   ethtool -G near0 rx 256",
        "#   ethtool -K near1 rx-gro on",
        "#   ethtool -s intel0 autoneg on",
        "#   sysctl -w net.ipv4.tcp_timestamps=1",
    ] {
        assert!(plan.lines().any(|found| found == line), "{line}\n{plan}");
    }
    fs::write(&file, plan + QUEUES).unwrap();
    let refused = host.drover(&["doctor", "apply", path]);
    assert_eq!(refused.code, Some(4), "{}", refused.err);

    let said = host.done(&["doctor", "apply", path, "--force"]);
    assert!(
        said.contains("other hosts are reached as before, over 2 paths"),
        "{said}"
    );
    // As another program than ours reads it.
    assert_eq!(now("ethtool -g near0", "RX:"), "256");
    assert_eq!(now("ethtool -l near0", "Combined:"), "4");
    assert!(sh("ethtool -k near1").contains("generic-receive-offload: on"));
    assert!(sh("ethtool intel0").contains("Auto-negotiation: on"));
    let after = host.carried().await;
    assert_eq!(mbit(&after, "intel0"), Some(1000));
    let said = host.done(&["doctor", "plan", "--bounce"]);
    assert!(!said.contains("\n[[changes]]"), "nothing is left: {said}");

    let said = host.done(&["doctor", "undo", "--force"]);
    assert!(said.starts_with("undone: "), "{said}");
    host.settles_to(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn what_a_driver_refuses_has_all_that_was_set_before_it_taken_back() {
    let host = Host::start().await;
    let before = host.facts().await;
    let file = host.place.path("tune.plan");
    let path = file.to_str().unwrap();
    sh("echo 0 >/proc/sys/net/ipv4/tcp_timestamps");
    let _as_it_was = Until("echo 1 >/proc/sys/net/ipv4/tcp_timestamps");
    host.done(&["doctor", "plan", "-o", path]);
    // More queues than the adapter has.
    let queues = QUEUES
        .replace("\"1\"", "\"4\"")
        .replace("to = \"4\"", "to = \"64\"");
    let plan = fs::read_to_string(&file).unwrap() + &queues;
    fs::write(&file, plan).unwrap();
    let ran = host.drover(&["doctor", "apply", path, "--force"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("near0"), "{}", ran.err);
    let timestamps = fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps").unwrap();
    assert_eq!(timestamps.trim(), "0");
    sh("echo 1 >/proc/sys/net/ipv4/tcp_timestamps");
    host.settles_to(&before).await;
}
