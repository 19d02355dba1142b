//! Profiles of NetworkManager, and the files that have them.

use super::keyfile::{FOLDERS, Found, Keyfile, is_keyfile, is_looked_on_at, keyfile, shadow};
use super::*;

const UUID: &str = "0f2c1d5e-55aa-4a0e-9d5b-1f2e3d4c5b6a";
const LAN: &str = "/etc/NetworkManager/system-connections/lan.nmconnection";
/// As NetworkManager writes one, with a note of somebody.
const TEXT: &str = "# the storage line\n[connection]\nid=lan\nuuid=0f2c1d5e-55aa-4a0e-9d5b-1f2e3d4c5b6a\ntype=ethernet\ninterface-name=ens1\n\n\
    [ethernet]\nmtu=9000\nduplex=half\n\n[ipv4]\nmethod=auto\n";

fn found(path: &str, text: &str) -> Found {
    Found {
        path: path.into(),
        text: text.into(),
    }
}

fn of(found: &[Found]) -> Result<Keyfile, String> {
    keyfile(UUID, found)
}

fn owners(version: Result<Version, &str>, keyfile: Result<Keyfile, String>) -> Owners {
    let mut owners = Owners {
        network_manager: version.map_err(str::to_owned),
        ..Owners::default()
    };
    let profile = UUID.to_owned();
    let by = SetUp::NetworkManager { profile, keyfile };
    owners.nics.insert("ens1".into(), owner(by, DEFAULT));
    owners
}

fn steps() -> [Step; 5] {
    [
        nic("ens1", NicSetting::Mtu, "1500"),
        nic("ens1", NicSetting::Feature("rx-gro".into()), "on"),
        nic("ens1", NicSetting::AdaptiveReceive, "on"),
        nic("ens1", NicSetting::Negotiation, "on"),
        nic("ens1", NicSetting::Pause, "autoneg off rx off tx on"),
    ]
}

/// What a file becomes by these steps.
fn becomes(steps: &[Step], version: Version, text: &str) -> String {
    let owners = owners(Ok(version), of(&[found(LAN, text)]));
    let (told, not_kept) = lasting(steps.iter(), &owners);
    assert_eq!(not_kept, []);
    let look = |path: &str| {
        assert_eq!(path, LAN);
        Ok(Place {
            text: Some(text.into()),
            mode: 0o600,
            uid: 0,
            gid: 0,
            folders: Vec::new(),
        })
    };
    let (files, by_hand) = rewrites(told, look);
    assert_eq!(by_hand, []);
    let [file] = &files[..] else {
        panic!("{files:#?}");
    };
    assert_eq!((file.by.as_str(), file.mode), (NETWORK_MANAGER, 0o600));
    file.after.clone()
}

#[test]
fn a_profile_gets_lines_in_its_file_and_keeps_all_others() {
    let expected = TEXT.replace(
        "mtu=9000\nduplex=half\n",
        "mtu=1500\nduplex=half\nauto-negotiate=true\nspeed=0\n",
    ) + "\n[ethtool]\nfeature-gro=true\ncoalesce-adaptive-rx=1\npause-autoneg=false\npause-rx=false\npause-tx=true\n";
    assert_eq!(becomes(&steps(), (1, 42), TEXT), expected);
    let forced = [nic(
        "ens1",
        NicSetting::Negotiation,
        "off speed 10000 duplex full",
    )];
    let old = TEXT.replace("[ethernet]", "[802-3-ethernet]");
    let expected = old.replace(
        "duplex=half\n",
        "duplex=full\nauto-negotiate=false\nspeed=10000\n",
    );
    assert_eq!(becomes(&forced, (1, 20), &old), expected);
    let rings = [
        nic("ens1", NicSetting::ReceiveRing, "4096"),
        nic("ens1", NicSetting::CombinedChannels, "8"),
    ];
    let with_more = format!("{TEXT}\n[ethtool]\nring-rx = 512\nring-tx=512\n");
    let expected = with_more.replace("ring-rx = 512", "ring-rx=4096") + "channels-combined=8\n";
    assert_eq!(becomes(&rings, (1, 46), &with_more), expected);
}

#[test]
fn pause_frames_of_which_the_driver_tells_no_agreement_are_written_with_none() {
    let with_pause = format!("{TEXT}\n[ethtool]\npause-autoneg=true\n");
    let expected = with_pause.replace("pause-autoneg=true\n", "pause-autoneg=false\n")
        + "pause-rx=false\npause-tx=true\n";
    let pause = [nic("ens1", NicSetting::Pause, "rx off tx on")];
    assert_eq!(becomes(&pause, (1, 42), &with_pause), expected);
}

#[test]
fn what_the_version_that_runs_would_pass_over_in_silence_does_not_last() {
    let owners = owners(Ok((1, 42)), of(&[found(LAN, TEXT)]));
    let queues = [nic("ens1", NicSetting::CombinedChannels, "8")];
    let (told, not_kept) = lasting(queues.iter(), &owners);
    assert_eq!(told, []);
    let why =
        "NetworkManager 1.42 has no word for ethtool.channels-combined: 1.46 is the first that has";
    assert_eq!(not_kept[0].why, why);
    let agreed = [nic("ens1", NicSetting::Pause, "autoneg on rx on tx on")];
    let (_, not_kept) = lasting(agreed.iter(), &owners);
    assert!(
        not_kept[0].why.starts_with("a profile says"),
        "{not_kept:?}"
    );
}

#[test]
fn a_profile_that_is_not_written_is_told_with_a_command_and_with_the_reason() {
    let expected = format!(
        "nmcli connection modify uuid {UUID} 802-3-ethernet.mtu 1500 ethtool.feature-gro on ethtool.coalesce-adaptive-rx 1 \
         802-3-ethernet.auto-negotiate yes 802-3-ethernet.speed 0 802-3-ethernet.duplex '' ethtool.pause-autoneg off \
         ethtool.pause-rx off ethtool.pause-tx on"
    );
    for (owners, why) in [
        (owners(Ok((1, 42)), of(&[])), "no file of"),
        (
            owners(Err("it does not run"), of(&[found(LAN, TEXT)])),
            "it does not run",
        ),
    ] {
        let (told, _) = lasting(steps().iter(), &owners);
        let how = How::Commands(vec![expected.clone()]);
        assert_eq!(told.iter().map(|one| &one.how).collect::<Vec<_>>(), [&how]);
        let (files, by_hand) = rewrites(told, |_| Err("nothing is looked at".to_owned()));
        assert_eq!(files, []);
        assert!(by_hand[0].why.starts_with(why), "{by_hand:?}");
    }
}

#[test]
fn a_rate_that_network_manager_would_not_offer_does_not_last() {
    let owners = owners(Ok((1, 42)), of(&[found(LAN, TEXT)]));
    let copper =
        "on advertise 1000baseT/Full on 10000baseT/Full on 2500baseT/Full on 25000baseCR/Full on";
    let fibre = "on advertise 10000baseSR/Full on";
    for (from, mbit, lasts) in [
        (copper, 1000, true),
        (copper, 10000, true),
        (copper, 2500, false),
        (copper, 25000, false),
        (copper, 100, false),
        (fibre, 10000, false),
        ("off speed 1000 duplex full", 1000, false),
    ] {
        let rate = [Step::Nic {
            nic: "ens1".into(),
            what: NicSetting::Negotiation,
            from: from.into(),
            to: format!("on speed {mbit} duplex full"),
        }];
        let (told, not_kept) = lasting(rate.iter(), &owners);
        if lasts {
            assert_eq!(not_kept, [], "{from} {mbit}");
            let How::Lines { lines, .. } = &told[0].how else {
                panic!("{told:?}");
            };
            let expected = [
                "auto-negotiate=true",
                &format!("speed={mbit}"),
                "duplex=full",
            ];
            assert_eq!(lines, &expected);
        } else {
            assert_eq!(told, [], "{from} {mbit}");
            let mode = format!("is not known to have {mbit}baseT/Full");
            assert!(not_kept[0].why.ends_with(&mode), "{not_kept:?}");
        }
    }
}

#[test]
fn a_version_that_keeps_what_was_changed_for_now_in_its_memory_alone_is_left_to_people() {
    let packets = [nic("ens1", NicSetting::Mtu, "1500")];
    for (version, is_written) in [((1, 18), false), ((1, 20), true), ((2, 0), true)] {
        let owners = owners(Ok(version), of(&[found(LAN, TEXT)]));
        let (told, not_kept) = lasting(packets.iter(), &owners);
        assert_eq!((told.len(), not_kept), (1, Vec::new()));
        match (&told[0].how, &told[0].because) {
            (How::Lines { .. }, None) => assert!(is_written, "{version:?}"),
            (How::Commands(commands), Some(why)) => {
                assert!(!is_written, "{version:?}");
                let command =
                    format!("nmcli connection modify uuid {UUID} 802-3-ethernet.mtu 1500");
                assert_eq!(commands, &[command]);
                let begins = "NetworkManager 1.18 does not tell what somebody has changed";
                assert!(why.starts_with(begins), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_file_of_a_profile_is_the_one_that_has_precedence_and_written_only_below_etc() {
    let other = found(
        "/etc/NetworkManager/system-connections/other",
        "[connection]\nuuid=1\n",
    );
    let lan = found(LAN, TEXT);
    let lib = found(
        "/usr/lib/NetworkManager/system-connections/lan.nmconnection",
        TEXT,
    );
    let keyfile = of(&[other.clone(), lan.clone(), lib.clone()]).unwrap();
    assert_eq!(
        (keyfile.path.as_str(), keyfile.ethernet.as_str()),
        (LAN, "[ethernet]")
    );
    let twice = found("/etc/NetworkManager/system-connections/copy", TEXT);
    let changed = found(
        "/run/NetworkManager/system-connections/lan.nmconnection",
        TEXT,
    );
    let netplan = found(
        "/run/NetworkManager/system-connections/netplan-ens1.nmconnection",
        TEXT,
    );
    for (found, why) in [
        (
            vec![other],
            "no file of /etc/NetworkManager/system-connections",
        ),
        (vec![lib], "comes with the system"),
        (vec![lan.clone(), twice], "are one profile"),
        (vec![lan.clone(), changed], "in its memory alone"),
        (vec![lan, netplan], "by netplan, in whose files it belongs"),
    ] {
        let said = of(&found).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_profile_that_may_be_about_other_interfaces_or_could_be_misread_is_left_to_people() {
    let with = |from: &str, to: &str| of(&[found(LAN, &TEXT.replace(from, to))]);
    let by_address = with("interface-name=ens1\n", "").unwrap_err();
    assert!(
        by_address.contains("may be about other interfaces"),
        "{by_address}"
    );
    let named = with(
        "interface-name=ens1",
        "#interface-name=ens1\ninterface-name=",
    );
    assert!(named.is_err());
    let text = TEXT
        .replace("interface-name=ens1\n", "")
        .replace("mtu=9000", "mac-address = 02:00:00:00:00:01");
    of(&[found(LAN, &text)]).unwrap();
    with("type=ethernet", "type=bond").unwrap();
    for (from, to, why) in [
        ("type=ethernet", "type=infiniband", "of type \"infiniband\""),
        ("type=ethernet\n", "", "of type \"\""),
        ("[ipv4]", "[802-3-ethernet]", "two parts about Ethernet"),
    ] {
        let said = with(from, to).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn what_is_changed_in_memory_alone_lies_over_a_file_of_the_same_profile() {
    let over = "/run/NetworkManager/system-connections/lan.nmconnection";
    let lan = found(LAN, TEXT);
    let changed = found(over, &TEXT.replace(UUID, &UUID.to_uppercase()));
    assert_eq!(shadow(TEXT, &[lan.clone(), changed]), Some(over));
    let other = found(over, "[connection]\nuuid=1\n");
    assert_eq!(shadow(TEXT, &[lan, other.clone()]), None);
    assert_eq!(shadow("[connection]\nid=lan\n", &[other]), None);
}

#[test]
fn an_interface_that_network_manager_only_looks_on_at_is_somebody_elses() {
    let text = format!("{TEXT}\n[.nmmeta]\nnm-generated=true\nexternal=true\n");
    let path = "/run/NetworkManager/system-connections/ens1.nmconnection";
    assert!(is_looked_on_at(UUID, &[found(path, &text)]));
    assert!(!is_looked_on_at(UUID, &[found(path, TEXT)]));
    assert!(!is_looked_on_at(UUID, &[found(LAN, &text)]));
}

#[test]
fn files_that_network_manager_passes_over_are_none() {
    let [run, etc, lib] = FOLDERS;
    for (folder, name, is_one) in [
        (etc, "lan", true),
        (etc, "Wired connection 1.nmconnection", true),
        (etc, ".lan.nmconnection.drover", false),
        (etc, "lan~", false),
        (etc, "lan.Xa12bC", false),
        (etc, "ca.PEM", false),
        (run, "lan", false),
        (lib, "lan.nmconnection", true),
        (lib, ".nmconnection", false),
    ] {
        assert_eq!(is_keyfile(folder, name), is_one, "{folder}/{name}");
    }
}
