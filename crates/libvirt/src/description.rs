//! What a domain's XML says of what it has of its host. Pure: the text in, facts out.
//!
//! Source: libvirt's `docs/formatdomain.rst`. What is not named here (clocks, controllers, displays' heads) any host gives alike.

use std::path::PathBuf;

use roxmltree::{Document, Node, ParsingOptions};

use crate::error::excerpt;
use crate::limits;

/// What a domain has of its host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// Its machine type, such as `pc-q35-10.0`.
    pub machine: Option<String>,
    /// The QEMU that runs it.
    pub emulator: Option<PathBuf>,
    /// Its disks, CD-ROM drives and floppies.
    pub disks: Vec<Disk>,
    /// Its network cards.
    pub cards: Vec<Card>,
    /// What else ties it to a host.
    pub ties: Vec<Tie>,
    /// What keeps its hypervisor from what is not its own, beside users and groups: `apparmor`, `selinux`.
    pub confined_by: Vec<String>,
}

/// A disk, or a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Its name for the guest, such as `vda`.
    pub target: String,
    /// Where its contents are.
    pub source: Source,
    /// The guest cannot write to it.
    pub read_only: bool,
    /// The host's cache, where one is named: `none`, `writeback`, `writethrough`, `directsync`, `unsafe`.
    pub cache: Option<String>,
    /// What is written to it is given up when the guest ends.
    pub transient: bool,
    /// It is being copied elsewhere.
    pub mirrored: bool,
}

/// Where the contents of a disk are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: a drive without a medium.
    Nothing,
    /// In a file.
    File(PathBuf),
    /// On a block device.
    Block(PathBuf),
    /// In a volume of a pool of libvirt's.
    Volume {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// On another machine, by this protocol, such as `rbd`.
    Network(String),
    /// Somewhere else, by libvirt's word for it.
    Other(String),
}

/// What a network card is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Card {
    /// A network of libvirt's, by name.
    Network(String),
    /// A bridge of the host.
    Bridge(String),
    /// An interface of the host, which it shares (macvtap).
    Interface(String),
    /// Something that is the same on every host, such as QEMU's own network.
    Anything,
    /// A device of the host's that the guest has for itself.
    Device,
    /// Something else, by libvirt's word for it.
    Other(String),
}

/// What ties a domain to its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tie {
    /// A device of the host: its kind, such as `pci`, and its address, where it has one.
    Device {
        /// libvirt's word for the kind.
        kind: String,
        /// Where it is.
        address: String,
    },
    /// A folder of the host that the guest uses, by the guest's name for it.
    Folder(String),
    /// Memory that it shares with others, by name.
    SharedMemory(String),
    /// The host's own TPM.
    Tpm,
    /// Memory that is encrypted for one processor, by the kind.
    EncryptedMemory(String),
    /// A feature of its processor that differs from host to host.
    CpuFeature(String),
    /// A file of the host's in place of memory.
    MemoryFile(PathBuf),
    /// Arguments for QEMU that libvirt does not know.
    Arguments,
}

/// Why an XML says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoDescription {
    /// It is no XML.
    #[error("libvirt's XML cannot be read: {0}")]
    Xml(String),
    /// It is another document.
    #[error("libvirt's XML is of another kind: {0:?}")]
    Other(String),
}

impl Description {
    /// Reads a domain's XML.
    ///
    /// # Errors
    /// It is no XML, has more than [`limits::XML_NODES`] nodes, or is no domain.
    pub fn read(xml: &str) -> Result<Self, NoDescription> {
        let document = parse(xml)?;
        let domain = root(&document, "domain")?;
        let devices = child(domain, "devices");
        let all = |name: &'static str| devices.into_iter().flat_map(move |at| children(at, name));
        let machine = child(domain, "os").and_then(|os| attribute(child(os, "type")?, "machine"));
        Ok(Self {
            machine,
            emulator: devices.and_then(|at| text(child(at, "emulator")?)),
            disks: all("disk").map(disk).collect(),
            cards: all("interface").map(card).collect(),
            ties: ties(domain, devices),
            confined_by: children(domain, "seclabel").filter_map(model).collect(),
        })
    }
}

/// What confines hypervisors on a host beside users and groups, by the XML that libvirt tells of the host.
///
/// # Errors
/// It is no XML, has more than [`limits::XML_NODES`] nodes, or is of something else.
pub fn confining(capabilities: &str) -> Result<Vec<String>, NoDescription> {
    let document = parse(capabilities)?;
    let root = root(&document, "capabilities")?;
    let models = child(root, "host").into_iter();
    let models = models.flat_map(|host| children(host, "secmodel"));
    let models = models.filter_map(|node| Some(excerpt(child(node, "model")?.text()?)));
    Ok(models.filter(|model| confines(model)).collect())
}

/// The model of a label that a domain has.
fn model(label: Node<'_, '_>) -> Option<String> {
    let model = attribute(label, "model")?;
    let has_one = label.attribute("type") != Some("none");
    (has_one && confines(&model)).then_some(model)
}

/// Users and groups are libvirt's `dac`.
fn confines(model: &str) -> bool {
    !matches!(model, "none" | "dac")
}

fn parse(xml: &str) -> Result<Document<'_>, NoDescription> {
    let options = ParsingOptions {
        nodes_limit: limits::XML_NODES,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(xml, options);
    document.map_err(|error| NoDescription::Xml(excerpt(&error.to_string())))
}

fn root<'a, 'i>(document: &'a Document<'i>, name: &str) -> Result<Node<'a, 'i>, NoDescription> {
    let root = document.root_element();
    match root.tag_name().name() {
        found if found == name => Ok(root),
        other => Err(NoDescription::Other(excerpt(other))),
    }
}

fn child<'a, 'i>(of: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    of.children().find(|node| node.has_tag_name(name))
}

fn children<'a, 'i: 'a>(
    of: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> {
    of.children().filter(move |node| node.has_tag_name(name))
}

/// A word: at most as much of somebody else's text as an error would repeat.
fn attribute(of: Node<'_, '_>, name: &str) -> Option<String> {
    of.attribute(name).map(excerpt)
}

/// A path, whole.
fn path(of: Node<'_, '_>, name: &str) -> Option<PathBuf> {
    of.attribute(name).map(PathBuf::from)
}

fn text(of: Node<'_, '_>) -> Option<PathBuf> {
    of.text().map(PathBuf::from)
}

fn disk(node: Node<'_, '_>) -> Disk {
    let target = child(node, "target").and_then(|target| attribute(target, "dev"));
    let driver = child(node, "driver");
    Disk {
        target: target.unwrap_or_default(),
        source: source(node),
        read_only: child(node, "readonly").is_some(),
        cache: driver.and_then(|driver| attribute(driver, "cache")),
        transient: child(node, "transient").is_some(),
        mirrored: child(node, "mirror").is_some(),
    }
}

fn source(disk: Node<'_, '_>) -> Source {
    let of = child(disk, "source");
    let said = |name: &str| of.and_then(|of| attribute(of, name));
    let at = |name: &str| of.and_then(|of| path(of, name));
    // One without a type is a file, as libvirt's own default is.
    match disk.attribute("type").unwrap_or("file") {
        "file" => at("file").map_or(Source::Nothing, Source::File),
        "block" => at("dev").map_or(Source::Nothing, Source::Block),
        "network" => Source::Network(said("protocol").unwrap_or_default()),
        "volume" => Source::Volume {
            pool: said("pool").unwrap_or_default(),
            volume: said("volume").unwrap_or_default(),
        },
        other => Source::Other(excerpt(other)),
    }
}

fn card(node: Node<'_, '_>) -> Card {
    let of = child(node, "source");
    let said = |name: &str| of.and_then(|of| attribute(of, name)).unwrap_or_default();
    match node.attribute("type").unwrap_or_default() {
        "network" => Card::Network(said("network")),
        "bridge" => Card::Bridge(said("bridge")),
        "direct" => Card::Interface(said("dev")),
        "user" | "ethernet" | "null" => Card::Anything,
        "hostdev" | "vdpa" => Card::Device,
        other => Card::Other(excerpt(other)),
    }
}

fn ties(domain: Node<'_, '_>, devices: Option<Node<'_, '_>>) -> Vec<Tie> {
    let of_devices = devices.into_iter().flat_map(|devices| devices.children());
    let mut ties: Vec<Tie> = of_devices.filter_map(tie_of_device).collect();
    ties.extend(
        child(domain, "launchSecurity")
            .map(|node| Tie::EncryptedMemory(attribute(node, "type").unwrap_or_default())),
    );
    let features = child(domain, "cpu").into_iter();
    let features = features.flat_map(|cpu| children(cpu, "feature"));
    let tied = |node: &Node<'_, '_>| {
        node.attribute("name") == Some("invtsc")
            && matches!(node.attribute("policy"), Some("require" | "force"))
    };
    let tied = features.filter(tied);
    ties.extend(tied.filter_map(|node| attribute(node, "name").map(Tie::CpuFeature)));
    ties.extend(child(domain, "commandline").map(|_| Tie::Arguments));
    ties
}

fn tie_of_device(node: Node<'_, '_>) -> Option<Tie> {
    let kind = |name: &str| attribute(node, name).unwrap_or_default();
    match node.tag_name().name() {
        "hostdev" => Some(Tie::Device {
            kind: kind("type"),
            address: child(node, "source").map(address).unwrap_or_default(),
        }),
        "redirdev" if node.attribute("type") == Some("dev") => Some(device(node, "redirected")),
        "serial" | "parallel" | "console" if node.attribute("type") == Some("dev") => {
            Some(device(node, node.tag_name().name()))
        }
        "smartcard" if node.attribute("mode") == Some("host") => Some(device(node, "smartcard")),
        "filesystem" => {
            let target = child(node, "target").and_then(|target| attribute(target, "dir"));
            Some(Tie::Folder(target.unwrap_or_default()))
        }
        "shmem" => Some(Tie::SharedMemory(kind("name"))),
        "tpm" => {
            let backend = child(node, "backend")?;
            (backend.attribute("type") == Some("passthrough")).then_some(Tie::Tpm)
        }
        "memory" if matches!(node.attribute("model"), Some("nvdimm" | "virtio-pmem")) => {
            let path = child(child(node, "source")?, "path")?;
            text(path).map(Tie::MemoryFile)
        }
        _ => None,
    }
}

fn device(node: Node<'_, '_>, kind: &str) -> Tie {
    let address = child(node, "source").and_then(|source| attribute(source, "path"));
    Tie::Device {
        kind: excerpt(kind),
        address: address.unwrap_or_default(),
    }
}

/// What a device's source says of where it is: `0x0000:0x01:0x00.0x1`, a vendor and product, a bus and its device.
fn address(source: Node<'_, '_>) -> String {
    let number = |node: Node<'_, '_>, name: &str| {
        let value = node.attribute(name).unwrap_or_default();
        excerpt(value.trim_start_matches("0x"))
    };
    if let Some(at) = child(source, "address") {
        if at.attribute("slot").is_some() {
            let [domain, bus, slot, function] =
                ["domain", "bus", "slot", "function"].map(|name| number(at, name));
            return format!("{domain}:{bus}:{slot}.{function}");
        }
        let said = at.attributes().map(|one| excerpt(one.value()));
        return said.collect::<Vec<_>>().join(":");
    }
    let vendor = child(source, "vendor").map(|node| number(node, "id"));
    let product = child(source, "product").map(|node| number(node, "id"));
    let said = [vendor, product].into_iter().flatten();
    said.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(devices: &str, rest: &str) -> Description {
        let xml = format!(
            "<domain type='kvm'><name>web</name>{rest}<devices>{devices}</devices></domain>"
        );
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
        let first = &described.disks[0];
        assert_eq!(
            (first.target.as_str(), first.cache.as_deref()),
            ("vda", Some("none"))
        );
        assert!(described.disks[1].read_only && described.disks[2].mirrored);
        assert!(described.disks[3].transient);
    }

    #[test]
    fn network_cards_are_known_by_what_they_are_connected_to() {
        let described = read(
            "<interface type='network'><source network='default' bridge='virbr0'/></interface>\
             <interface type='bridge'><source bridge='br0'/></interface>\
             <interface type='direct'><source dev='eth0' mode='bridge'/></interface>\
             <interface type='user'/><interface type='hostdev' managed='yes'/>\
             <interface type='vhostuser'><source type='unix' path='/run/ovs'/></interface>",
            "",
        );
        let expected = [
            Card::Network("default".to_owned()),
            Card::Bridge("br0".to_owned()),
            Card::Interface("eth0".to_owned()),
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
             <shmem name='ring'/><tpm model='tpm-crb'><backend type='emulator'/></tpm>\
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
            refused("<!DOCTYPE d [<!ENTITY a 'b'>]><domain>&a;</domain>")
                .contains("cannot be read")
        );
        let many = "<a/>".repeat(limits::XML_NODES as usize + 1);
        assert!(refused(&format!("<domain>{many}</domain>")).contains("cannot be read"));
    }
}
