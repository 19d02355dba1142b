//! Teams of real adapters, by the kernel's module and by teamd.

use std::path::PathBuf;

use drover_lab::emulated::cache;
use drover_tune::Report;
use drover_tune::facts::{Bond, Host, Kind};

use crate::here::{NEAR, Said, Until, afresh, host, ip, report, said, sh, unknown, until};

/// Its daemon, as `scripts/setup --for-tests` unpacks it.
pub fn teamd() -> Option<PathBuf> {
    let folder = cache().join("team");
    let there = folder.join("usr/bin/teamd").is_file();
    if !there {
        println!(
            "\nskipped, because teamd is not in {}: run scripts/setup --for-tests",
            folder.display()
        );
    }
    there.then_some(folder)
}

/// Ends the daemon and its team. A next one may have both names only when it has put its things in order: a minute at most.
const END: &str = "pid=$(cat /run/team0.pid); kill $pid
for turn in $(seq 600); do
    grep -q '(teamd) [^Z]' /proc/$pid/stat 2>/dev/null || break
    sleep 0.1
done
ip link del team0 2>/dev/null; rm -f /run/team0.pid";

/// Has the daemon make the team of both near adapters, with an address. It is gone with what comes back.
pub async fn teamed(teamd: &std::path::Path, runner: &str) -> Until {
    afresh();
    let team = Until(END);
    let ports = r#"{"near0":{},"near1":{}}"#;
    let watch = r#"{"name":"ethtool"}"#;
    let config = format!(
        r#"{{"device":"team0","runner":{{"name":"{runner}"}},"link_watch":{watch},"ports":{ports}}}"#
    );
    let root = teamd.display();
    sh(&format!(
        "LD_LIBRARY_PATH={root}/usr/lib/x86_64-linux-gnu:{root}/lib/x86_64-linux-gnu {root}/usr/bin/teamd -d -r -p /run/team0.pid -c '{config}'"
    ));
    ip(&["link set dev team0 up", "addr add 10.9.0.1/24 dev team0"]);
    // It takes its members one after the other.
    until(host, |host| {
        host.nic("team0").is_some_and(|nic| nic.lower == NEAR)
    })
    .await;
    team
}

fn team(host: &Host) -> Option<&Bond> {
    let nic = host.nic("team0")?;
    nic.bond.as_ref()?.known()
}

/// The team, once it is as wanted.
pub async fn team_when(accept: impl Fn(&Bond) -> bool) -> Bond {
    let host = until(host, |host| team(host).is_some_and(&accept)).await;
    team(&host).unwrap().clone()
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_team_that_no_daemon_looks_after_is_no_adapter_and_what_is_not_known_of_it_is_skipped() {
    afresh();
    let _team = Until("ip link del team0");
    ip(&[
        "link add team0 type team",
        "link set dev near0 master team0",
        "link set dev near1 master team0",
        "link set dev team0 up",
        "addr add 10.9.0.1/24 dev team0",
    ]);
    let read = host().await;
    let nic = read.nic("team0").unwrap();
    assert_eq!(nic.kind, Kind::Bond);
    assert_eq!(nic.lower, NEAR);
    let why = unknown(nic.bond.as_ref().unwrap());
    assert!(why.contains("has no mode"), "{why}");
    let all = report().await;
    for rule in ["bond-mode", "bond-members"] {
        let skipped = Said::Skipped(why.to_owned());
        assert_eq!(said(&all, rule, "team0"), skipped);
    }
    for rule in ["link-speed", "nic-queues", "nic-ring"] {
        assert_eq!(said(&all, rule, "team0"), Said::Nothing, "{rule}");
    }
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_team_is_told_by_its_runner_and_judged_as_a_bond() {
    let Some(teamd) = teamd() else {
        return;
    };
    let running = teamed(&teamd, "activebackup").await;
    let told = team_when(|team| team.carrying.is_some()).await;
    assert_eq!(told.mode, "activebackup");
    let found = Said::Found("mode activebackup".to_owned());
    assert_eq!(said(&report().await, "bond-mode", "team0"), found);
    drop(running);

    let _running = teamed(&teamd, "roundrobin").await;
    let told = team_when(|team| team.active == NEAR).await;
    assert_eq!(told.mode, "roundrobin");
    // A member is enabled before it has its link, and a rate.
    let is_right = |all: &Report| said(all, "bond-members", "team0") == Said::Right;
    let all = until(report, is_right).await;
    assert_eq!(said(&all, "bond-mode", "team0"), Said::Right);
    assert_eq!(said(&all, "link-speed", "near0"), Said::Right);
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_team_that_does_not_tell_which_member_takes_a_connection_is_skipped() {
    let Some(teamd) = teamd() else {
        return;
    };
    let _running = teamed(&teamd, "loadbalance").await;
    team_when(|team| team.active == NEAR).await;
    let skipped = Said::Skipped("it does not tell what decides".to_owned());
    assert_eq!(said(&report().await, "bond-mode", "team0"), skipped);
}
