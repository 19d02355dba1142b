//! The hosts that are kept in `captured/`, captured anew. Whoever started this one looks at them. Its name makes it the first: little was
//! done to the host before.

use std::process::Command;

use drover_lab::emulated::OUT;

use super::teams::{team_when, teamd, teamed};
use crate::here::{ALL, Until, afresh, host, ip, sh, until};

fn capture(name: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    let folder = format!("{OUT}/{name}");
    let done = command.args(["doctor", "capture", &folder]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn addressed(nics: &[&str]) {
    let lines = nics.iter().enumerate().map(|(number, nic)| {
        format!("addr add 10.9.{number}.1/24 dev {nic}\nlink set dev {nic} up")
    });
    let lines: Vec<String> = lines.collect();
    ip(&[&lines.join("\n")]);
}

/// Waits until these interfaces have their links, as they would have before somebody asks.
async fn carried(nics: &[&str]) {
    let carries = |host: &drover_tune::facts::Host| {
        let of = |nic: &&str| host.nic(nic).is_some_and(|nic| nic.carrier);
        nics.iter().all(of)
    };
    until(host, carries).await;
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn several_adapters_with_an_address_each() {
    afresh();
    let _device = Until("rdma link delete rxe0");
    addressed(&ALL);
    sh("rdma link add rxe0 type rxe netdev near0");
    carried(&ALL).await;
    capture("several");
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_bond_whose_other_ends_know_nothing_of_it() {
    afresh();
    let _bond = Until("ip link del bond0");
    ip(&[
        "link add bond0 type bond mode 802.3ad xmit_hash_policy layer2 miimon 100",
        "link set dev near0 master bond0",
        "link set dev near1 master bond0",
    ]);
    addressed(&["bond0"]);
    carried(&["near0", "near1", "bond0"]).await;
    capture("bonded");
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_rate_by_hand_and_all_packets_in_one_queue() {
    afresh();
    let _queues = Until("ethtool -X near0 default; ethtool -s intel0 autoneg on");
    let all = ["near0", "intel0"];
    addressed(&all);
    sh("ethtool -X near0 weight 1 0 0 0");
    sh("ethtool -s intel0 speed 100 duplex full autoneg off");
    carried(&all).await;
    until(host, |host| {
        let link = host.nic("intel0").and_then(|nic| nic.link.known());
        link.is_some_and(|link| link.speed.is_some_and(|rate| rate.0 == 100_000_000))
    })
    .await;
    capture("by-hand");
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_team_of_which_one_member_carries() {
    let Some(teamd) = teamd() else {
        return;
    };
    let _team = teamed(&teamd, "activebackup").await;
    carried(&["near0", "near1", "team0"]).await;
    team_when(|team| team.carrying.is_some()).await;
    capture("teamed");
}
