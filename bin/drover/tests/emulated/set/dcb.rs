//! What the doctor changes of an adapter with data centre bridging.

use std::fs;

use super::agent::Host;
use crate::adapter::{bridged, near_dcb};
use crate::here::sh;

/// Whether pause frames are obeyed, and sent, as another program than ours reads it.
fn pauses() -> [bool; 2] {
    let said = sh("ethtool -a dcb0");
    ["RX:", "TX:"].map(|word| {
        let line = said.lines().find_map(|line| line.strip_prefix(word));
        let is_on = line.unwrap_or_else(|| panic!("no {word} in {said}"));
        is_on.trim() == "on"
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn pause_frames_beside_pfc_are_turned_off_and_are_there_again_when_it_is_undone() {
    let Some(_adapter) = bridged() else { return };
    let host = Host::start().await;
    near_dcb("pfc", "prio-pfc 3:on");
    sh("ethtool -A dcb0 rx on tx on");
    let before = host.facts().await;

    let file = host.place.path("tune.plan");
    let path = file.to_str().unwrap();
    host.done(&["doctor", "plan", "--bounce", "-o", path]);
    let plan = fs::read_to_string(&file).unwrap();
    let line = "#   ethtool -A dcb0 autoneg off rx off tx off";
    assert!(plan.lines().any(|found| found == line), "{plan}");
    host.done(&["doctor", "apply", path, "--force"]);
    assert_eq!(pauses(), [false; 2]);
    assert_ne!(host.facts().await, before);

    host.done(&["doctor", "undo", "--force"]);
    assert_eq!(pauses(), [true; 2]);
    host.settles_to(&before).await;
}
