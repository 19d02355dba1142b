//! What of a domain's description keeps it on its host, and what another host has to have for it. Pure.
//!
//! ```text
//!   Description ─▶ Preflight ─▶ obstacles: whatever the other host has
//!                           └─▶ needs:     to be looked for on the other host
//! ```
//! Says nothing of whether libvirt would refuse: it has reasons of its own, which it tells when it is asked to move a domain.

use std::fmt;
use std::path::PathBuf;

use drover_libvirt::{Card, Description, Disk, Machine, Processor, Secret, Source, Tie, Tpm};

/// The kind of domain whose processor is the hardware's.
const ACCELERATED: &str = "kvm";

/// Before each of its obstacles, where nobody has ordered it to move.
pub const COULD_NOT_BE_MOVED: &str = "it could not be moved: ";

/// Why a domain cannot leave its host, with what would change that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// It has a device of the host's.
    #[error("it has {0} of its host: detach it first")]
    Device(String),
    /// It uses a part of its host's files or memory.
    #[error("it uses {0} of its host, which another host does not have")]
    Shared(String),
    /// Its memory can be read by one processor only.
    #[error("its memory is encrypted ({0}) for its host's processor")]
    EncryptedMemory(String),
    /// Its processor has something that differs from host to host.
    #[error(
        "its processor has {0}, which differs from host to host: take it out of its definition"
    )]
    CpuFeature(String),
    /// Nobody can say what they use.
    #[error(
        "it has arguments for QEMU that libvirt does not know: what of its host they use is not known"
    )]
    Arguments,
    /// A disk that does not go along.
    #[error("its disk {target} {why}")]
    Disk {
        /// Its name for the guest.
        target: String,
        /// What is the matter with it.
        why: String,
    },
    /// A network card of which nothing is known.
    #[error("it has a network card of kind {0:?}, of which it is not known what it needs")]
    Card(String),
    /// Without one QEMU's default would be taken, which differs from version to version.
    #[error("its description names no machine type")]
    NoMachine,
}

/// Something that a host has to have so that it can take a domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A machine type of QEMU's.
    Machine(Machine),
    /// A QEMU that can give it its processor.
    Processor {
        /// With what it is started.
        machine: Machine,
        /// The processor.
        processor: Processor,
    },
    /// A QEMU that can give it its TPM, which is emulated.
    Tpm {
        /// With what it is started.
        machine: Machine,
        /// The TPM.
        tpm: Tpm,
    },
    /// What it is started with: QEMU, firmware, a kernel.
    File(PathBuf),
    /// A network of libvirt's.
    Network(String),
    /// A bridge.
    Bridge(String),
    /// An interface.
    Interface(String),
    /// The same file or block device, by this path.
    Storage(PathBuf),
    /// The same volume, in a pool of libvirt's.
    Volume {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// A secret of libvirt's.
    Secret(Secret),
    /// The storage that is reached by this protocol.
    Protocol(String),
}

/// What is known of a domain's move before another host is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    /// Why it cannot leave its host.
    pub obstacles: Vec<Obstacle>,
    /// What another host has to have, each once.
    pub needs: Vec<Need>,
}

impl Preflight {
    /// Of a domain that is so described.
    pub fn of(description: &Description) -> Self {
        let Description {
            machine,
            emulator,
            kind,
            arch,
            processor,
            boots,
            // libvirt has each host make it.
            variables: _,
            tpm,
            secrets,
            disks,
            cards,
            ties,
            // Told by the host where it is, when it is asked for a move.
            confined_by: _,
        } = description;
        let mut obstacles: Vec<_> = ties.iter().map(tie).collect();
        obstacles.extend(cards.iter().filter_map(card));
        obstacles.extend(disks.iter().filter_map(disk));
        if machine.is_none() {
            obstacles.push(Obstacle::NoMachine);
        }
        let machine = machine.clone().map(|name| Machine {
            name,
            emulator: emulator.clone(),
            arch: arch.clone(),
            kind: kind.clone().unwrap_or_else(|| ACCELERATED.to_owned()),
        });
        let mut needs: Vec<_> = machine.iter().cloned().map(Need::Machine).collect();
        let with_tpm = machine.clone().zip(tpm.clone());
        needs.extend(with_tpm.map(|(machine, tpm)| Need::Tpm { machine, tpm }));
        needs.extend(machine.zip(processor.as_ref()).and_then(given));
        needs.extend(emulator.iter().chain(boots).cloned().map(Need::File));
        needs.extend(cards.iter().filter_map(wired));
        let layers = disks
            .iter()
            .flat_map(|disk| std::iter::once(&disk.source).chain(&disk.below));
        needs.extend(layers.filter_map(stored));
        needs.extend(secrets.iter().cloned().map(Need::Secret));
        needs.sort();
        needs.dedup();
        Self { obstacles, needs }
    }

    /// As an operator is told.
    pub fn notes(&self) -> Vec<String> {
        let obstacles = self.obstacles.iter();
        let mut notes: Vec<_> = obstacles
            .map(|obstacle| format!("{COULD_NOT_BE_MOVED}{obstacle}"))
            .collect();
        let needs: Vec<_> = self.needs.iter().map(ToString::to_string).collect();
        if !needs.is_empty() {
            notes.push(format!("another host needs {} for it", needs.join(", ")));
        }
        notes
    }
}

/// Whether it has all of its host's processor, which only the same one can give it.
pub fn has_hosts_processor(description: &Description) -> bool {
    let mode = description
        .processor
        .as_ref()
        .map(|processor| processor.mode.as_str());
    is_accelerated(description.kind.as_deref())
        && matches!(mode, Some("host-passthrough" | "maximum"))
}

fn is_accelerated(kind: Option<&str>) -> bool {
    kind.is_none_or(|kind| kind == ACCELERATED)
}

/// A processor that is emulated any QEMU can give, and all of a host's is told by its name.
fn given((machine, processor): (Machine, &Processor)) -> Option<Need> {
    let is_named = processor.mode == "custom" && processor.model.is_some();
    (is_accelerated(Some(&machine.kind)) && is_named).then(|| Need::Processor {
        machine,
        processor: processor.clone(),
    })
}

fn tie(tie: &Tie) -> Obstacle {
    match tie {
        Tie::Device { kind, address } => {
            Obstacle::Device(format!("the {kind} device {address}").trim().to_owned())
        }
        Tie::Tpm => Obstacle::Device("the TPM".to_owned()),
        Tie::Folder(name) => Obstacle::Shared(format!("a folder (as {name:?})")),
        Tie::SharedMemory(name) => Obstacle::Shared(format!("shared memory ({name:?})")),
        Tie::MemoryFile(path) => {
            Obstacle::Shared(format!("a file for memory ({})", path.display()))
        }
        Tie::EncryptedMemory(kind) => Obstacle::EncryptedMemory(kind.clone()),
        Tie::CpuFeature(name) => Obstacle::CpuFeature(name.clone()),
        Tie::Arguments => Obstacle::Arguments,
    }
}

fn card(card: &Card) -> Option<Obstacle> {
    match card {
        Card::Device => Some(Obstacle::Device("a network device".to_owned())),
        Card::Other(kind) => Some(Obstacle::Card(kind.clone())),
        Card::Network(_) | Card::Bridge(_) | Card::Interface(_) | Card::Anything => None,
    }
}

fn disk(disk: &Disk) -> Option<Obstacle> {
    let why = match &disk.source {
        _ if disk.mirrored => "is being copied: wait for the end of that, or end it".to_owned(),
        _ if disk.transient => "is given up when the guest ends, and stays behind".to_owned(),
        Source::Other(kind) => format!("is of kind {kind:?}, which no other host has"),
        _ => return None,
    };
    let target = disk.target.clone();
    Some(Obstacle::Disk { target, why })
}

fn wired(card: &Card) -> Option<Need> {
    match card {
        Card::Network(name) => Some(Need::Network(name.clone())),
        Card::Bridge(name) => Some(Need::Bridge(name.clone())),
        Card::Interface(name) => Some(Need::Interface(name.clone())),
        Card::Anything | Card::Device | Card::Other(_) => None,
    }
}

fn stored(source: &Source) -> Option<Need> {
    match source {
        Source::File(path) | Source::Block(path) => Some(Need::Storage(path.clone())),
        Source::Volume { pool, volume } => Some(Need::Volume {
            pool: pool.clone(),
            volume: volume.clone(),
        }),
        Source::Network(protocol) => Some(Need::Protocol(protocol.clone())),
        Source::Nothing | Source::Other(_) => None,
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(machine) => write!(f, "machine type {}", machine.name),
            Self::Processor { processor, .. } => {
                let model = processor.model.as_deref().unwrap_or_default();
                write!(f, "processor {model}")
            }
            Self::Tpm { tpm, .. } => write!(f, "an emulated TPM ({}), by swtpm", tpm.model),
            Self::Secret(Secret::Id(id)) => write!(f, "libvirt's secret {id}"),
            Self::Secret(Secret::Of { kind, usage }) => {
                write!(f, "libvirt's secret for {kind} {usage:?}")
            }
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Network(name) => write!(f, "libvirt's network {name:?}"),
            Self::Bridge(name) => write!(f, "bridge {name}"),
            Self::Interface(name) => write!(f, "interface {name}"),
            Self::Storage(path) => write!(f, "the same {}", path.display()),
            Self::Volume { pool, volume } => write!(f, "volume {volume:?} of pool {pool:?}"),
            Self::Protocol(protocol) => write!(f, "access to the storage by {protocol}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a domain that real libvirts described, which each says alike but for the machine type.
    fn of(kind: &str) -> (Vec<String>, Vec<String>) {
        let [old, new] = ["9.0", "11.3"].map(|version| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/libvirt/tests");
            let file = format!("{folder}/domains/{kind}-{version}.xml");
            let xml = std::fs::read_to_string(file).unwrap();
            let Preflight { obstacles, needs } = Preflight::of(&Description::read(&xml).unwrap());
            let obstacles: Vec<_> = obstacles.iter().map(ToString::to_string).collect();
            let needs = needs.iter().map(ToString::to_string);
            let beside =
                |need: &String| !need.starts_with("machine type") && !need.contains("/qemu-");
            (obstacles, needs.filter(beside).collect::<Vec<_>>())
        });
        assert_eq!(old, new);
        new
    }

    fn contain(texts: &[String], words: &[&str]) {
        for word in words {
            let found = texts.iter().any(|text| text.contains(word));
            assert!(found, "no {word:?} in {texts:#?}");
        }
    }

    #[test]
    fn nothing_keeps_a_plain_domain_and_it_needs_its_machine_type_and_qemu() {
        assert_eq!(of("plain-running"), (vec![], vec![]));
        let firmware = "<domain type='kvm'><os><type machine='q35'>hvm</type><loader type='pflash'>/CODE.fd</loader>\
                        <nvram template='/VARS.fd'>/web.fd</nvram></os><devices><tpm model='tpm-crb'>\
                        <backend type='emulator' version='2.0'/></tpm></devices></domain>";
        let firmware = Preflight::of(&Description::read(firmware).unwrap());
        assert_eq!(firmware.obstacles, []);
        let needs: Vec<_> = firmware.needs.iter().map(ToString::to_string).collect();
        let expected = [
            "machine type q35",
            "an emulated TPM (tpm-crb), by swtpm",
            "/CODE.fd",
            "/VARS.fd",
        ];
        assert_eq!(needs, expected);
        let nothing = Preflight::of(&Description::default());
        assert_eq!(nothing.obstacles, [Obstacle::NoMachine]);
        let described = Description {
            machine: Some("pc-q35-10.0".to_owned()),
            emulator: Some("/usr/bin/qemu-system-x86_64".into()),
            ..Description::default()
        };
        let plain = Preflight::of(&described);
        assert_eq!(plain.obstacles, []);
        let needs: Vec<_> = plain.needs.iter().map(ToString::to_string).collect();
        let expected = ["machine type pc-q35-10.0", "/usr/bin/qemu-system-x86_64"];
        assert_eq!(needs, expected);
        let words = format!("another host needs {} for it", expected.join(", "));
        assert_eq!(plain.notes(), [words]);
        let names_none = "it could not be moved: its description names no machine type";
        assert_eq!(nothing.notes(), [names_none]);
    }

    #[test]
    fn devices_of_the_host_keep_a_domain_each_by_its_name() {
        let (obstacles, _) = of("devices");
        contain(
            &obstacles,
            &[
                "the pci device 0000:01:00.1 of its host: detach it",
                "the usb device 1234:beef",
                "the serial device /dev/ttyS0",
                "shared memory (\"ring\")",
                "the TPM",
                "invtsc",
                "a network device",
            ],
        );
        let (folders, _) = of("folders");
        contain(&folders, &["a folder (as \"share\")", "\"homes\""]);
        let (arguments, _) = of("arguments");
        contain(&arguments, &["arguments for QEMU"]);
    }

    #[test]
    fn what_disks_and_cards_are_connected_to_is_needed_there_too() {
        let (obstacles, needs) = of("networks");
        contain(
            &needs,
            &["network \"default\"", "bridge br0", "interface eth0"],
        );
        contain(&obstacles, &["of kind \"vhostuser\""]);
        let (obstacles, needs) = of("disks");
        assert_eq!(obstacles, Vec::<String>::new());
        contain(
            &needs,
            &[
                "the same /srv/images/käfer & 1.qcow2",
                "the same /dev/vg/web",
                "by rbd",
                "volume \"web\" of pool \"images\"",
            ],
        );
    }

    #[test]
    fn a_disk_that_is_copied_or_given_up_or_nowhere_else_keeps_a_domain() {
        let disk = |mirrored, transient, source| Disk {
            target: "vda".to_owned(),
            source,
            format: None,
            below: Vec::new(),
            read_only: false,
            transient,
            mirrored,
            shareable: false,
            encrypted: false,
        };
        let described = Description {
            machine: Some("pc-q35-10.0".to_owned()),
            disks: vec![
                disk(true, false, Source::File("/a".into())),
                disk(false, true, Source::File("/a".into())),
                disk(false, false, Source::Other("nvme".to_owned())),
                disk(false, false, Source::Nothing),
            ],
            ..Description::default()
        };
        let preflight = Preflight::of(&described);
        let words: Vec<_> = preflight
            .obstacles
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(words.len(), 3, "{words:?}");
        contain(&words, &["is being copied", "is given up", "\"nvme\""]);
        let file = |need: &&Need| **need == Need::Storage("/a".into());
        assert_eq!(preflight.needs.iter().filter(file).count(), 1, "once");
    }
}
