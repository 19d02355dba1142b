//! What is read from XML that real libvirts made of domains: `tests/domains/KIND-VERSION.xml`, as `virsh dumpxml` gave it.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use drover_libvirt::{Card, Description, Source, Tie};

/// The same domain as each version of libvirt tells of it, which is read alike.
fn read(kind: &str) -> Description {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/domains");
    let [old, new] = ["9.0", "11.3"].map(|version| {
        let xml = std::fs::read_to_string(folder.join(format!("{kind}-{version}.xml")));
        Description::read(&xml.unwrap()).unwrap()
    });
    assert_eq!(old.disks, new.disks);
    assert_eq!(old.cards, new.cards);
    assert_eq!(old.ties, new.ties);
    new
}

#[test]
fn a_domain_that_runs_tells_its_machine_and_its_emulator_and_nothing_ties_it() {
    let described = read("plain-running");
    assert!(described.machine.unwrap().starts_with("pc-q35-"));
    let emulator = PathBuf::from("/usr/bin/qemu-system-x86_64");
    assert_eq!(described.emulator, Some(emulator));
    assert_eq!(
        (described.cards, described.ties),
        (vec![Card::Anything], vec![])
    );
}

#[test]
fn disks_are_where_their_xml_says() {
    let disks = read("disks").disks;
    let sources: Vec<_> = disks
        .iter()
        .map(|disk| (disk.target.as_str(), &disk.source))
        .collect();
    let file = Source::File("/srv/images/käfer & 1.qcow2".into());
    let block = Source::Block("/dev/vg/web".into());
    let rbd = Source::Network("rbd".to_owned());
    let volume = Source::Volume {
        pool: "images".to_owned(),
        volume: "web".to_owned(),
    };
    let expected = [
        ("vda", &file),
        ("vdb", &block),
        ("vdc", &rbd),
        ("vdd", &volume),
        // libvirt tells them by their buses.
        ("sda", &Source::Nothing),
    ];
    assert_eq!(sources, expected);
    assert!(disks[4].read_only);
    let formats = disks.iter().map(|disk| disk.format.as_deref());
    let raw = Some("raw");
    assert!(formats.eq([Some("qcow2"), raw, raw, None, raw]));
    let shareable = disks.iter().filter(|disk| disk.shareable);
    assert!(shareable.map(|disk| &disk.target).eq(["vdb"]));
}

#[test]
fn network_cards_are_connected_to_what_their_xml_says() {
    let expected = [
        Card::Network("default".to_owned()),
        Card::Bridge("br0".to_owned()),
        Card::Interface("eth0".to_owned()),
        Card::Other("vhostuser".to_owned()),
    ];
    assert_eq!(read("networks").cards, expected);
}

#[test]
fn devices_folders_and_arguments_tie_a_domain_to_its_host() {
    let described = read("devices");
    assert_eq!(described.cards, [Card::Device]);
    let device = |kind: &str, address: &str| Tie::Device {
        kind: kind.to_owned(),
        address: address.to_owned(),
    };
    let wanted = [
        device("pci", "0000:01:00.1"),
        device("usb", "1234:beef"),
        device("serial", "/dev/ttyS0"),
        Tie::SharedMemory("ring".to_owned()),
        Tie::Tpm,
        Tie::CpuFeature("invtsc".to_owned()),
    ];
    for tie in wanted {
        assert!(described.ties.contains(&tie), "{tie:?}: {described:?}");
    }
    let folders = ["share", "homes"].map(|name| Tie::Folder(name.to_owned()));
    assert_eq!(read("folders").ties, folders);
    assert_eq!(read("arguments").ties, [Tie::Arguments]);
}
