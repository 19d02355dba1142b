use super::*;

fn read(devices: &str, rest: &str) -> Description {
    let xml =
        format!("<domain type='kvm'><name>web</name>{rest}<devices>{devices}</devices></domain>");
    Description::read(&xml).unwrap()
}

#[test]
fn what_confines_a_hypervisor_is_told_by_its_labels_and_by_its_host() {
    let labels = "<seclabel type='dynamic' model='apparmor' relabel='yes'><label>libvirt-1</label></seclabel>\
         <seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+64055</label></seclabel>\
         <seclabel type='none' model='selinux'/><seclabel type='none'/>";
    assert_eq!(read("", labels).confined_by, ["apparmor"]);
    assert_eq!(read("", "").confined_by, [""; 0]);
    let host = "<capabilities><host><uuid>1</uuid><secmodel><model>selinux</model><doi>0</doi></secmodel>\
         <secmodel><model>dac</model><doi>0</doi></secmodel></host><guest/></capabilities>";
    assert_eq!(confining(host).unwrap(), ["selinux"]);
    assert_eq!(confining("<capabilities/>").unwrap(), [""; 0]);
    assert!(confining("<domain/>").is_err() && confining("<").is_err());
}

#[test]
fn disks_are_known_by_where_their_contents_are() {
    let described = read(
        "<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>\
         <source file='/images/käfer 1.qcow2'/><target dev='vda' bus='virtio'/></disk>\
         <disk type='file' device='cdrom'><target dev='sda'/><readonly/></disk>\
         <disk type='block'><source dev='/dev/vg/web'/><target dev='vdb'/><mirror type='file'/></disk>\
         <disk type='volume'><source pool='p' volume='v'/><target dev='vdc'/><transient/></disk>\
         <disk type='network'><source protocol='rbd' name='p/v'/><target dev='vdd'/></disk>\
         <disk type='nvme'><source type='pci'/><target dev='vde'/></disk>",
        "",
    );
    let sources: Vec<_> = described.disks.iter().map(|disk| &disk.source).collect();
    let (pool, volume) = ("p".to_owned(), "v".to_owned());
    let expected = [
        &Source::File("/images/käfer 1.qcow2".into()),
        &Source::Nothing,
        &Source::Block("/dev/vg/web".into()),
        &Source::Volume { pool, volume },
        &Source::Network("rbd".to_owned()),
        &Source::Other("nvme".to_owned()),
    ];
    assert_eq!(sources, expected);
    assert_eq!(described.disks[0].target, "vda");
    assert!(described.disks[1].read_only && described.disks[2].mirrored);
    assert!(described.disks[3].transient);
}

#[test]
fn files_below_disks_secrets_and_what_is_booted_are_told() {
    let described = read(
        "<disk type='file'><source file='/top.qcow2'/><target dev='vda'/><shareable/>\
         <backingStore type='file'><source file='/middle.qcow2'/>\
         <backingStore type='block'><source dev='/dev/base'/><backingStore/></backingStore></backingStore>\
         </disk>\
         <disk type='network'><source protocol='rbd' name='p/v'/><target dev='vdb'/>\
         <auth username='u'><secret type='ceph' usage='pool of web'/></auth></disk>\
         <disk type='file'><source file='/luks.img'><encryption format='luks'>\
         <secret type='passphrase' uuid='3e3a'/></encryption></source><target dev='vdc'/></disk>",
        "<os><type arch='x86_64' machine='pc-q35-10.0'>hvm</type>\
         <loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>\
         <nvram template='/usr/share/OVMF/OVMF_VARS.fd'>/var/lib/libvirt/qemu/nvram/web.fd</nvram></os>\
         <cpu mode='custom' match='exact'><model fallback='forbid'>EPYC-Rome</model></cpu>",
    );
    let first = &described.disks[0];
    let below = [
        Source::File("/middle.qcow2".into()),
        Source::Block("/dev/base".into()),
    ];
    assert_eq!(first.below, below);
    let (kind, usage) = ("ceph".to_owned(), "pool of web".to_owned());
    let secrets = [Secret::Of { kind, usage }, Secret::Id("3e3a".to_owned())];
    assert_eq!(described.secrets, secrets);
    // What its firmware keeps libvirt has each host make by itself, of what it begins with, and QEMU carries.
    let firmware =
        ["CODE", "VARS"].map(|of| PathBuf::from(format!("/usr/share/OVMF/OVMF_{of}.fd")));
    assert_eq!(described.boots, firmware);
    let kept = Some("/var/lib/libvirt/qemu/nvram/web.fd".into());
    assert_eq!(described.variables, kept);
    let newer = "<os><nvram type='file'><source file='/kept.fd'/></nvram></os>";
    assert_eq!(read("", newer).variables, Some("/kept.fd".into()));
    let of_kind = (described.kind.as_deref(), described.arch.as_deref());
    assert_eq!(of_kind, (Some("kvm"), Some("x86_64")));
    let processor = described.processor.unwrap();
    assert_eq!(processor.model.as_deref(), Some("EPYC-Rome"));
    assert!(processor.xml.starts_with("<cpu mode='custom'"));
    assert!(processor.xml.ends_with("</cpu>"), "{processor:?}");
}

#[test]
fn network_cards_are_known_by_what_they_are_connected_to() {
    let described = read(
        "<interface type='network'><source network='default' bridge='virbr0'/></interface>\
         <interface type='bridge'><source bridge='br0'/></interface>\
         <interface type='direct'><source dev='eth0' mode='bridge'/></interface>\
         <interface type='bridge'><source network='lan' portid='7' bridge='br1'/></interface>\
         <interface type='direct'><source network='wan' dev='eth1' mode='bridge'/></interface>\
         <interface type='user'/><interface type='hostdev' managed='yes'/>\
         <interface type='vhostuser'><source type='unix' path='/run/ovs'/></interface>",
        "",
    );
    let expected = [
        Card::Network("default".to_owned()),
        Card::Bridge("br0".to_owned()),
        Card::Interface("eth0".to_owned()),
        Card::Network("lan".to_owned()),
        Card::Network("wan".to_owned()),
        Card::Anything,
        Card::Device,
        Card::Other("vhostuser".to_owned()),
    ];
    assert_eq!(described.cards, expected);
}

#[test]
fn what_ties_a_domain_to_its_host_is_told_with_where_it_is() {
    let described = read(
        "<emulator>/usr/bin/qemu-system-x86_64</emulator>\
         <hostdev mode='subsystem' type='pci'><source><address domain='0x0000' bus='0x01' slot='0x00' function='0x1'/></source></hostdev>\
         <hostdev mode='subsystem' type='usb'><source><vendor id='0x1234'/><product id='0xbeef'/></source></hostdev>\
         <hostdev mode='subsystem' type='mdev'><source><address uuid='c2177883'/></source></hostdev>\
         <filesystem type='mount'><driver type='virtiofs'/><source dir='/srv'/><target dir='share'/></filesystem>\
         <serial type='dev'><source path='/dev/ttyS0'/></serial><serial type='pty'/>\
         <shmem name='ring'/><tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>\
         <tpm model='tpm-tis'><backend type='passthrough'/></tpm>\
         <memory model='nvdimm'><source><path>/pmem</path></source></memory><memory model='dimm'/>",
        "<os><type arch='x86_64' machine='pc-q35-10.0'>hvm</type></os><launchSecurity type='sev'/>\
         <cpu mode='host-model'><feature policy='require' name='invtsc'/><feature policy='disable' name='invtsc'/></cpu>\
         <commandline xmlns='http://libvirt.org/schemas/domain/qemu/1.0'/>",
    );
    let device = |kind: &str, address: &str| Tie::Device {
        kind: kind.to_owned(),
        address: address.to_owned(),
    };
    let expected = [
        device("pci", "0000:01:00.1"),
        device("usb", "1234:beef"),
        device("mdev", "c2177883"),
        Tie::Folder("share".to_owned()),
        device("serial", "/dev/ttyS0"),
        Tie::SharedMemory("ring".to_owned()),
        Tie::Tpm,
        Tie::MemoryFile("/pmem".into()),
        Tie::EncryptedMemory("sev".to_owned()),
        Tie::CpuFeature("invtsc".to_owned()),
        Tie::Arguments,
    ];
    assert_eq!(described.ties, expected);
    // Its state goes along.
    let tpm = Tpm {
        model: "tpm-crb".to_owned(),
        version: Some("2.0".to_owned()),
    };
    assert_eq!(described.tpm, Some(tpm));
    assert_eq!(described.machine.as_deref(), Some("pc-q35-10.0"));
    assert_eq!(
        described.emulator,
        Some("/usr/bin/qemu-system-x86_64".into())
    );
}

#[test]
fn what_is_no_domain_is_refused_in_one_line() {
    let refused = |xml: &str| Description::read(xml).unwrap_err().to_string();
    assert!(refused("<domain><a></domain>").contains("cannot be read"));
    assert!(refused("<network/>").contains("of another kind: \"network\""));
    // Entities could make a short text a long one.
    assert!(
        refused("<!DOCTYPE d [<!ENTITY a 'b'>]><domain>&a;</domain>").contains("cannot be read")
    );
    let many = "<a/>".repeat(limits::XML_NODES as usize + 1);
    assert!(refused(&format!("<domain>{many}</domain>")).contains("cannot be read"));
}
