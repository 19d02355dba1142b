//! An RDMA device in software on a real adapter, and what real drivers do not tell.

use std::collections::BTreeMap;

use drover_tune::facts::Rdma;

use crate::here::{Said, Until, afresh, ip, nic, report, said, sh, unknown, until};

async fn rdma() -> Option<Rdma> {
    nic("near0").await.rdma?.known().cloned()
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn an_rdma_device_is_told_with_the_kinds_of_its_addresses_and_judged_by_its_interface() {
    afresh();
    let _device = Until("rdma link delete rxe0");
    ip(&["addr add 10.9.0.1/24 dev near0", "link set dev near0 up"]);
    sh("rdma link add rxe0 type rxe netdev near0");
    let is_active = |told: &Option<Rdma>| told.as_ref().is_some_and(|told| told.state == "ACTIVE");
    let told = until(rdma, is_active).await.unwrap();
    assert_eq!((told.device.as_str(), told.port), ("rxe0", 1));
    assert_eq!(told.physical, "LinkUp");
    assert_eq!(told.layer, "Ethernet");
    // One for IPv4 at least; that of the link comes once it is known that nobody else has it.
    let kinds: Vec<&str> = told.kinds.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["RoCE v2"]);
    let by_file = sh("cat /sys/class/infiniband/rxe0/ports/1/gid_attrs/types/* 2>/dev/null; true");
    assert!(by_file.contains("RoCE v2"), "{by_file}");
    let all = report().await;
    for rule in ["rdma-port", "rdma-kind"] {
        assert_eq!(said(&all, rule, "near0"), Said::Right, "{rule}");
    }
    let Said::Found(_) = said(&all, "rdma-pieces", "near0") else {
        panic!("{all:#?}");
    };
    ip(&["link set dev near0 mtu 9000"]);
    assert_eq!(said(&report().await, "rdma-pieces", "near0"), Said::Right);
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn what_emulated_adapters_do_not_have_is_not_known_of_them() {
    afresh();
    let mut dcb = BTreeMap::new();
    for name in ["near0", "intel0", "vmx0"] {
        ip(&[&format!("link set dev {name} up")]);
        let nic = nic(name).await;
        dcb.insert(name, unknown(&nic.dcb).to_owned());
        assert!(nic.fec.known().is_none(), "{name}");
        assert!(nic.neighbours.known().is_none(), "{name}");
    }
    // QEMU emulates no adapter whose driver has it: `dcb.rs` has one of ours.
    let expected = "its driver does not tell";
    assert!(dcb.values().all(|why| why == expected), "{dcb:?}");
}
