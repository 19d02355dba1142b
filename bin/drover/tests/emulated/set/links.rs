//! `drover nic set` on real drivers: with success, with a link that does not come up, and refused.

use drover_api::ChangeState;

use super::agent::Host;
use crate::here::{link, sh};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_rate_is_offered_alone_and_all_rates_again_when_it_is_undone() {
    let host = Host::start().await;
    let before = host.facts().await;
    let said = host.done(&["nic", "set", "a", "near0", "speed", "100M", "--force"]);
    assert!(said.contains("other hosts are reached as before"), "{said}");
    let told = sh("ethtool near0");
    let (_, advertised) = told.split_once("Advertised link modes:").unwrap();
    let modes = advertised.lines().next().unwrap_or_default();
    assert_eq!(modes.trim(), "100baseT/Full", "{told}");
    assert_ne!(host.facts().await, before);
    host.done(&["doctor", "undo", "--force"]);
    host.settles_to(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_link_that_is_to_come_up_and_does_not_is_as_before_without_anybodys_word() {
    let host = Host::start().await;
    let before = host.facts().await;
    // Cut before anything is set: it need not be cut in time.
    link("near0", false).await;
    let ran = host.drover(&["nic", "set", "a", "near0", "speed", "100M", "--force"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    let change = host.changes().await.remove(0);
    assert_eq!(change.state, ChangeState::RolledBack, "{change:#?}");
    let why = change.why.unwrap_or_default();
    assert!(why.contains("near0"), "{why}");
    link("near0", true).await;
    host.settles_to(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn what_an_adapter_cannot_have_is_refused_and_nothing_is_begun() {
    let host = Host::start().await;
    let before = host.facts().await;
    for (nic, setting, to, why) in [
        ("near0", "speed", "25G", "it supports"),
        ("near0", "speed", "auto", "is set to that already"),
        ("vmx0", "speed", "1G", "vmx0"),
        ("near0", "fec", "rs", "near0"),
    ] {
        let ran = host.drover(&["nic", "set", "a", nic, setting, to, "--force"]);
        assert_eq!(
            ran.code,
            Some(4),
            "{nic} {setting} {to}: {}{}",
            ran.out,
            ran.err
        );
        assert!(ran.err.contains(why), "{}", ran.err);
    }
    assert!(host.changes().await.is_empty());
    host.settles_to(&before).await;
}
