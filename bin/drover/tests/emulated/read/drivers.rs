//! What real drivers say of themselves and of their adapters' firmware.

use std::collections::BTreeMap;

use drover_tune::facts::{Fact, Teller};

use crate::here::{ALL, afresh, host, sh, unknown};

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn drivers_tell_their_version_and_their_firmware_as_another_program_hears_it() {
    afresh();
    let host = host().await;
    let kernel = sh("uname -r");
    assert_eq!(host.setting("kernel.osrelease"), Ok(kernel.trim()));
    let mut told = Vec::new();
    for name in ALL {
        let nic = host.nic(name).unwrap();
        let heard = sh(&format!("ethtool -i {name}"));
        let heard: BTreeMap<&str, &str> = heard
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key, value.trim()))
            .collect();
        let version = Fact::Known(heard["version"].to_owned());
        assert_eq!(nic.driver_version, version, "{name}");
        let firmware = heard["firmware-version"];
        match nic.versions.get(&Teller::Driver) {
            Some(told) => assert_eq!(told, firmware, "{name}"),
            // vmxnet3 has none to tell.
            None => assert!(matches!(firmware, "" | "N/A"), "{name}: {firmware}"),
        }
        if nic.versions.is_empty() {
            let why = unknown(&nic.firmware);
            assert!(
                why.starts_with("its driver tells no version"),
                "{name}: {why}"
            );
        } else {
            told.push(heard["driver"].to_owned());
        }
    }
    assert!(told.iter().any(|driver| driver == "igb"), "{told:?}");
}
