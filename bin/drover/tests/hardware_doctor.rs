//! `drover doctor` on captured hosts: those that were made from documentation (`hardware`), and those of emulated adapters (`captured`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod captured;
mod hardware;

use std::process::Command;

use captured::{HOSTS, doctor, found, names, rules, unpacked};
use hardware::Machine;
use hardware::cards::{
    Card, connectx4, connectx5, e810_with_a_cable_for_10g, x550_on_a_switch_of_1g,
};
use hardware::fabric::{connectx5_with_roce, connectx5_with_roce_gone_wrong};
use serde_json::Value;

fn alone(card: &Card) -> Value {
    let folder = tempfile::tempdir().unwrap();
    doctor(&[&Machine::new(folder.path(), "a").with(card).done()])
}

#[test]
fn cards_with_nothing_wrong_have_no_findings() {
    for card in [
        connectx4(),
        connectx5(),
        connectx5_with_roce(),
        x550_on_a_switch_of_1g(),
    ] {
        let document = alone(&card);
        assert_eq!(rules(&document, "findings"), names(&[]), "{document:#}");
    }
    // Of a card that tells everything, nothing is skipped but what only an agent knows, and paths.
    let document = alone(&connectx5_with_roce());
    let mut skipped = rules(&document, "skipped");
    skipped.retain(|rule| !rule.starts_with("guest-") && rule != "cpu-sleep");
    assert_eq!(skipped, names(&["path-reach"]), "{document:#}");
}

#[test]
fn a_cable_for_less_than_the_card_is_the_one_thing_found() {
    let document = alone(&e810_with_a_cable_for_10g());
    assert_eq!(rules(&document, "findings"), names(&["link-module"]));
}

#[test]
fn what_is_wrong_with_rdma_and_the_switch_is_found_in_what_the_kernel_tells() {
    let document = alone(&connectx5_with_roce_gone_wrong());
    let expected = [
        "dcb-pause",
        "dcb-peer",
        "dcb-pressure",
        "dcb-share",
        "dcb-willing",
        "nic-health",
        "rdma-kind",
        "rdma-lost",
        "switch-frames",
    ];
    assert_eq!(
        rules(&document, "findings"),
        names(&expected),
        "{document:#}"
    );
}

#[test]
fn firmware_of_two_hosts_is_compared_by_what_devlink_tells() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, address: &'static str, version: &'static str| {
        let mut card = Card {
            address,
            rdma: None,
            ..connectx5_with_roce()
        };
        card.versions = hardware::fabric::firmware(version);
        Machine::new(folder.path(), name).with(&card).done()
    };
    let a = of("a", "10.0.1.1/24", "16.35.2000");
    let b = of("b", "10.0.1.2/24", "16.26.1040");
    let document = doctor(&[&a, &b]);
    assert_eq!(rules(&document, "findings"), names(&["pair-adapter"]));
    assert_eq!(
        document["findings"][0]["read"],
        "firmware 16.35.2000, and 16.26.1040"
    );
}

#[test]
fn real_drivers_on_emulated_adapters_are_read_as_they_tell() {
    let folder = tempfile::tempdir().unwrap();
    for captured in HOSTS {
        let document = doctor(&[&unpacked(folder.path(), captured.name)]);
        let found = found(&document);
        assert_eq!(found, names(captured.findings), "{document:#}");
    }
    let several = folder.path().join("several");
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    let output = command
        .args(["nic", "list", "--captured"])
        .arg(&several)
        .output();
    insta::assert_snapshot!(String::from_utf8(output.unwrap().stdout).unwrap());
}

#[test]
fn a_rate_by_hand_and_a_table_of_one_queue_are_found_in_what_drivers_tell() {
    let folder = tempfile::tempdir().unwrap();
    let document = doctor(&[&unpacked(folder.path(), "by-hand")]);
    let step = &document["findings"][0]["change"]["steps"][0]["nic"];
    assert_eq!(
        (&step["to"], &step["from"]),
        (&"on".into(), &"off speed 100 duplex full".into())
    );
}
