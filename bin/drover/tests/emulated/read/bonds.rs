//! Bonds of real adapters, by the kernel's module.

use drover_tune::examine;
use drover_tune::facts::{Bond, Host, Kind};

use crate::here::{NEAR, Said, Until, afresh, far, far_host, host, ip, link, report, said, until};

/// Makes the bond of both near adapters, with an address. It is gone with what comes back.
fn bonded(options: &str) -> Until {
    afresh();
    let bond = Until("ip link del bond0");
    ip(&[
        &format!("link add bond0 type bond miimon 100 {options}"),
        "link set dev near0 master bond0",
        "link set dev near1 master bond0",
        "link set dev bond0 up",
        "addr add 10.9.0.1/24 dev bond0",
    ]);
    bond
}

/// The same of both at the other ends of their wires.
fn far_bonded(options: &str) -> Until {
    let bond = Until("ip -n far link del bond0");
    far(&[
        &format!("link add bond0 type bond miimon 100 {options}"),
        "link set dev far0 down",
        "link set dev far1 down",
        "link set dev far0 master bond0",
        "link set dev far1 master bond0",
        "link set dev bond0 up",
        "addr add 10.9.0.2/24 dev bond0",
    ]);
    bond
}

fn bond(host: &Host) -> &Bond {
    host.nic("bond0")
        .unwrap()
        .bond
        .as_ref()
        .unwrap()
        .get()
        .unwrap()
}

/// The bond, once it is as wanted.
async fn bond_when(accept: impl Fn(&Bond) -> bool) -> Bond {
    let host = until(host, |host| accept(bond(host))).await;
    bond(&host).clone()
}

fn both() -> Vec<String> {
    NEAR.map(str::to_owned).into()
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_bond_of_which_one_member_carries_is_told_with_that_and_found() {
    let _bond = bonded("mode active-backup");
    let told = bond_when(|bond| bond.active == both()).await;
    assert_eq!(told.mode, "active-backup");
    assert_eq!(told.carrying.as_deref(), Some("near0"));
    assert_eq!(told.aggregator, None);
    let read = host().await;
    let nic = read.nic("bond0").unwrap();
    assert_eq!((nic.kind, nic.lower.clone()), (Kind::Bond, both()));
    let report = report().await;
    let found = Said::Found("mode active-backup".to_owned());
    assert_eq!(said(&report, "bond-mode", "bond0"), found);
    assert_eq!(said(&report, "bond-members", "bond0"), Said::Right);
    // Its members are judged as adapters, and it is not.
    assert_eq!(said(&report, "link-speed", "near0"), Said::Right);
    assert_eq!(said(&report, "link-speed", "bond0"), Said::Nothing);

    link("near0", false).await;
    let told = bond_when(|bond| bond.active == ["near1"]).await;
    assert_eq!(told.carrying.as_deref(), Some("near1"));
    link("near0", true).await;
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_bond_whose_members_take_turns_is_right_until_one_has_no_link() {
    let _bond = bonded("mode balance-rr");
    let told = bond_when(|bond| bond.active == both()).await;
    assert_eq!((told.mode.as_str(), told.carrying), ("balance-rr", None));
    let all = report().await;
    assert_eq!(said(&all, "bond-mode", "bond0"), Said::Right);
    assert_eq!(said(&all, "bond-members", "bond0"), Said::Right);

    link("near1", false).await;
    bond_when(|bond| bond.active == ["near0"]).await;
    let found = Said::Found("near1 does not carry".to_owned());
    assert_eq!(said(&report().await, "bond-members", "bond0"), found);
    link("near1", true).await;
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn members_in_one_group_are_right_and_one_whose_switch_leaves_it_is_found() {
    let _bond = bonded("mode 802.3ad lacp_rate fast xmit_hash_policy layer3+4");
    let _far = far_bonded("mode 802.3ad lacp_rate fast");
    let in_one = |bond: &Bond| {
        let groups: Vec<_> = bond.aggregators.values().collect();
        bond.active == both() && groups == [bond.aggregator.as_ref().unwrap(); 2]
    };
    let told = bond_when(in_one).await;
    assert_eq!(told.hash.as_deref(), Some("layer3+4"));
    let all = report().await;
    assert_eq!(said(&all, "bond-mode", "bond0"), Said::Right);
    assert_eq!(said(&all, "bond-members", "bond0"), Said::Right);

    // It has its link still, and is in a group of its own.
    far(&["link set dev far1 nomaster", "link set dev far1 up"]);
    let told = bond_when(|bond| !in_one(bond)).await;
    let all = report().await;
    let Said::Found(read) = said(&all, "bond-members", "bond0") else {
        panic!("{told:?}: {all:#?}");
    };
    assert!(read.starts_with("near1 "), "{read}");
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn bonds_at_both_ends_that_use_their_members_otherwise_are_found() {
    let _bond = bonded("mode balance-rr");
    let other = far_bonded("mode active-backup");
    bond_when(|bond| bond.active == both()).await;
    let of_two = async || {
        let all = examine(&[host().await, far_host()], &[]);
        said(&all, "pair-bond", "bond0")
    };
    let found =
        Said::Found("emulated bond0 has mode balance-rr, far bond0 active-backup".to_owned());
    assert_eq!(of_two().await, found);
    drop(other);

    let _alike = far_bonded("mode balance-rr");
    assert_eq!(of_two().await, Said::Right);
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn a_vlan_and_a_bridge_on_a_bond_carry_by_its_members() {
    let _bond = bonded("mode balance-xor xmit_hash_policy layer2");
    let _upper = Until("ip link del br0; ip link del bond0.7");
    ip(&[
        "addr flush dev bond0",
        "link add link bond0 name bond0.7 type vlan id 7",
        "link add br0 type bridge",
        "link set dev bond0.7 master br0",
        "link set dev bond0.7 up",
        "link set dev br0 up",
        "addr add 10.9.7.1/24 dev br0",
    ]);
    bond_when(|bond| bond.active == both()).await;
    let read = host().await;
    let kind = |nic: &str| read.nic(nic).unwrap().kind;
    assert_eq!((kind("br0"), kind("bond0.7")), (Kind::Bridge, Kind::Vlan));
    let all = report().await;
    let found = Said::Found("mode balance-xor, members chosen by layer2".to_owned());
    assert_eq!(said(&all, "bond-mode", "bond0"), found);
    for nic in NEAR {
        assert_eq!(said(&all, "link-speed", nic), Said::Right);
    }
}
