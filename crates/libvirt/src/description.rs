//! What a domain's XML says of what it has of its host. Pure: the text in, facts out.
//!
//! Source: libvirt's `docs/formatdomain.rst`. What is not named here (clocks, controllers, displays' heads) any host gives alike.

use std::path::PathBuf;

use roxmltree::{Document, Node, ParsingOptions};

use crate::error::excerpt;
use crate::limits;
use crate::offered::Secret;
pub use tpm::Tpm;
pub(crate) use tpm::gives;

mod tpm;

/// What a domain has of its host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// Its machine type, such as `pc-q35-10.0`.
    pub machine: Option<String>,
    /// The QEMU that runs it.
    pub emulator: Option<PathBuf>,
    /// The kind of domain: `kvm`, or `qemu` where its processor is emulated.
    pub kind: Option<String>,
    /// Its architecture, such as `x86_64`.
    pub arch: Option<String>,
    /// Its processor, where something is said of it.
    pub processor: Option<Processor>,
    /// Files that its QEMU is started with beside its disks: firmware, what the firmware's variables begin with, a kernel and what is
    /// given to that.
    pub boots: Vec<PathBuf>,
    /// The file with the variables of its firmware, where it is named. libvirt makes it on each host.
    pub variables: Option<PathBuf>,
    /// Its TPM, where that is emulated.
    pub tpm: Option<Tpm>,
    /// Secrets of libvirt's with which its disks are opened.
    pub secrets: Vec<Secret>,
    /// Its disks, CD-ROM drives and floppies.
    pub disks: Vec<Disk>,
    /// Its network cards.
    pub cards: Vec<Card>,
    /// What else ties it to a host.
    pub ties: Vec<Tie>,
    /// What keeps its hypervisor from what is not its own, beside users and groups: `apparmor`, `selinux`.
    pub confined_by: Vec<String>,
}

/// A domain's processor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Processor {
    /// How it is chosen: `custom`, `host-model`, `host-passthrough`, `maximum`. Of a domain that runs `host-model` has become
    /// `custom`.
    pub mode: String,
    /// The model that it is named.
    pub model: Option<String>,
    /// All that is said of it: the element `cpu`.
    pub xml: String,
}

/// A disk, or a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Its name for the guest, such as `vda`.
    pub target: String,
    /// Where its contents are.
    pub source: Source,
    /// How they are laid out there, such as `raw` or `qcow2`, where that is said.
    pub format: Option<String>,
    /// Where that is which these are changes of, and what that is changes of, and so on.
    pub below: Vec<Source>,
    /// The guest cannot write to it.
    pub read_only: bool,
    /// What is written to it is given up when the guest ends.
    pub transient: bool,
    /// It is being copied elsewhere.
    pub mirrored: bool,
    /// Other domains may write to it, too.
    pub shareable: bool,
    /// What is there is encrypted, by the hypervisor.
    pub encrypted: bool,
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
        let os = child(domain, "os");
        let of_type = |name: &str| os.and_then(|os| attribute(child(os, "type")?, name));
        let booted = ["loader", "kernel", "initrd", "dtb"];
        let boots = os.into_iter().flat_map(|os| {
            let all = booted.into_iter();
            all.filter_map(move |name| text(child(os, name)?))
        });
        let nvram = os.and_then(|os| child(os, "nvram"));
        let template = nvram.and_then(|nvram| path(nvram, "template"));
        Ok(Self {
            machine: of_type("machine"),
            kind: attribute(domain, "type"),
            arch: of_type("arch"),
            processor: child(domain, "cpu").map(|node| processor(node, xml)),
            boots: boots.chain(template).collect(),
            variables: nvram.and_then(variables),
            tpm: all("tpm").find_map(tpm::of),
            secrets: all("disk").flat_map(secrets).collect(),
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

pub(crate) fn parse(xml: &str) -> Result<Document<'_>, NoDescription> {
    let options = ParsingOptions {
        nodes_limit: limits::XML_NODES,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(xml, options);
    document.map_err(|error| NoDescription::Xml(excerpt(&error.to_string())))
}

pub(crate) fn root<'a, 'i>(
    document: &'a Document<'i>,
    name: &str,
) -> Result<Node<'a, 'i>, NoDescription> {
    let root = document.root_element();
    match root.tag_name().name() {
        found if found == name => Ok(root),
        other => Err(NoDescription::Other(excerpt(other))),
    }
}

pub(crate) fn child<'a, 'i>(of: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    of.children().find(|node| node.has_tag_name(name))
}

pub(crate) fn children<'a, 'i: 'a>(
    of: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> {
    of.children().filter(move |node| node.has_tag_name(name))
}

/// A word: at most as much of somebody else's text as an error would repeat.
pub(crate) fn attribute(of: Node<'_, '_>, name: &str) -> Option<String> {
    of.attribute(name).map(excerpt)
}

/// A path, whole.
fn path(of: Node<'_, '_>, name: &str) -> Option<PathBuf> {
    of.attribute(name).map(PathBuf::from)
}

fn text(of: Node<'_, '_>) -> Option<PathBuf> {
    of.text().map(PathBuf::from)
}

/// Of newer libvirts a file may be a source, as that of a disk.
fn variables(nvram: Node<'_, '_>) -> Option<PathBuf> {
    let file = child(nvram, "source").and_then(|source| path(source, "file"));
    file.or_else(|| text(nvram))
}

fn processor(node: Node<'_, '_>, whole: &str) -> Processor {
    let model = child(node, "model").and_then(|model| model.text());
    let xml = whole.get(node.range()).unwrap_or_default();
    Processor {
        // One without a mode is of the model that it names.
        mode: attribute(node, "mode").unwrap_or_else(|| "custom".to_owned()),
        model: model.map(excerpt),
        xml: xml.to_owned(),
    }
}

/// Those that a disk's contents, and those that these are changes of, are opened with.
fn secrets(disk: Node<'_, '_>) -> Vec<Secret> {
    let named = disk
        .descendants()
        .filter(|node| node.has_tag_name("secret"));
    let secrets = named.filter_map(|node| match attribute(node, "uuid") {
        Some(id) => Some(Secret::Id(id)),
        None => Some(Secret::Of {
            // Those of encrypted volumes are of passphrases, by their own kind.
            kind: match attribute(node, "type")?.as_str() {
                "passphrase" => "volume".to_owned(),
                other => other.to_owned(),
            },
            usage: attribute(node, "usage")?,
        }),
    });
    secrets.collect()
}

fn disk(node: Node<'_, '_>) -> Disk {
    let target = child(node, "target").and_then(|target| attribute(target, "dev"));
    Disk {
        target: target.unwrap_or_default(),
        source: source(node),
        format: child(node, "driver").and_then(|driver| attribute(driver, "type")),
        below: below(node),
        read_only: child(node, "readonly").is_some(),
        transient: child(node, "transient").is_some(),
        mirrored: child(node, "mirror").is_some(),
        shareable: child(node, "shareable").is_some(),
        // libvirt says it at either place.
        encrypted: [Some(node), child(node, "source")]
            .into_iter()
            .flatten()
            .any(|at| child(at, "encryption").is_some()),
    }
}

pub(crate) fn source(disk: Node<'_, '_>) -> Source {
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

/// Only of a domain that runs all of them are told.
fn below(disk: Node<'_, '_>) -> Vec<Source> {
    let layers = std::iter::successors(child(disk, "backingStore"), |layer| {
        child(*layer, "backingStore")
    });
    let sources = layers.map(source);
    sources
        .filter(|source| *source != Source::Nothing)
        .collect()
}

fn card(node: Node<'_, '_>) -> Card {
    let of = child(node, "source");
    let said = |name: &str| of.and_then(|of| attribute(of, name)).unwrap_or_default();
    match node.attribute("type").unwrap_or_default() {
        // Of one of libvirt's networks, while it runs: what that is made of on this host, which may be another bridge there.
        "network" => Card::Network(said("network")),
        "bridge" | "direct" if !said("network").is_empty() => Card::Network(said("network")),
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
mod tests;
