//! What a domain needs of the host that it goes to, as far as it can be looked for before libvirt is asked.

use std::collections::BTreeSet;
use std::path::PathBuf;

use drover_api::{DomainMachine, DomainNeed};
use drover_libvirt::{Machine, Secret};

use super::files;
use super::limits;
use crate::libvirt::preflight::Need;

/// What another host can look for: these files that are written to, before all, and of the rest as much as may be asked for; what is to be
/// known of what is beyond that. All else libvirt finds out itself.
pub fn told(written: Vec<DomainNeed>, needs: &[Need]) -> (Vec<DomainNeed>, Option<String>) {
    let needs = needs.iter().filter_map(|need| {
        Some(match need.clone() {
            Need::File(path) | Need::Storage(path) => DomainNeed::Path { path },
            Need::Bridge(name) | Need::Interface(name) => DomainNeed::Interface { name },
            Need::Network(name) => DomainNeed::Network { name },
            Need::Volume { pool, volume } => DomainNeed::Volume { pool, volume },
            Need::Secret(Secret::Id(id)) => DomainNeed::Secret { id },
            Need::Secret(Secret::Of { kind, usage }) => DomainNeed::SecretFor {
                usage_type: kind,
                usage,
            },
            Need::Machine(of) => DomainNeed::Machine {
                machine: machine(of),
            },
            Need::Processor {
                machine: of,
                processor,
            } => DomainNeed::Processor {
                machine: machine(of),
                model: processor.model,
                xml: processor.xml,
            },
            Need::Tpm { machine: of, tpm } => DomainNeed::Tpm {
                machine: machine(of),
                model: tpm.model,
                version: tpm.version,
            },
            Need::Protocol(_) => return None,
        })
    });
    let mut paths: BTreeSet<_> = written.iter().filter_map(files::path).cloned().collect();
    paths.extend(written.iter().flat_map(copied));
    let is_written = |need: &DomainNeed| files::path(need).is_some_and(|path| paths.contains(path));
    let needs = needs.filter(|need| !is_written(need));
    // Of those none is left out: too many of them keep the domain here.
    let most = limits::DOMAIN_NEEDS.max(written.len());
    let mut all: Vec<_> = written.into_iter().chain(needs).collect();
    let count = all.len();
    all.truncate(most);
    let note = (count > most).then(|| {
        format!("it needs {count} things of another host, of which {most} are looked for before it moves")
    });
    (all, note)
}

/// Where files are made for disks that are copied.
fn copied(need: &DomainNeed) -> Vec<PathBuf> {
    match need {
        DomainNeed::NewDisks { disks, .. } => disks.iter().map(|disk| disk.path.clone()).collect(),
        _ => Vec::new(),
    }
}

fn machine(of: Machine) -> DomainMachine {
    DomainMachine {
        machine: of.name,
        domain_type: of.kind,
        emulator: of.emulator,
        arch: of.arch,
    }
}

#[cfg(test)]
mod tests {
    use drover_api::{DiskLayout, FileSeen, NewDisk};
    use drover_types::Bytes;

    use super::*;

    #[test]
    fn all_that_another_host_can_look_for_is_told_to_it_and_the_rest_is_left_to_libvirt() {
        let machine = Machine {
            name: "pc-q35-10.0".to_owned(),
            emulator: None,
            arch: None,
            kind: "kvm".to_owned(),
        };
        let needs = [
            Need::Machine(machine),
            Need::File("/usr/bin/qemu".into()),
            Need::Bridge("br0".to_owned()),
            Need::Interface("eth0".to_owned()),
            Need::Storage("/shared/web.qcow2".into()),
            Need::Network("default".to_owned()),
            Need::Protocol("rbd".to_owned()),
        ];
        let (needs, note) = told(Vec::new(), &needs);
        assert_eq!(note, None);
        let words: Vec<_> = needs.iter().map(ToString::to_string).collect();
        let expected = [
            "machine type pc-q35-10.0 of its hypervisor (kvm)",
            "/usr/bin/qemu",
            "interface br0",
            "interface eth0",
            "/shared/web.qcow2",
            "libvirt's network \"default\"",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn what_is_beyond_the_bound_is_told_and_not_forgotten_and_files_that_are_written_to_come_first()
    {
        let file = |number: usize| Need::File(format!("/{number}").into());
        let needs: Vec<_> = (0..limits::DOMAIN_NEEDS).map(file).collect();
        let written = |number: usize| DomainNeed::SameFile {
            path: format!("/images/{number}").into(),
            seen: FileSeen {
                file_system: "nfs4".to_owned(),
                fsid: None,
                server: None,
                inode: Some(12),
            },
        };
        let (told_first, note) = told(vec![written(0)], &needs);
        assert_eq!(told_first.len(), limits::DOMAIN_NEEDS);
        assert!(told_first[0].must_be_known());
        let note = note.unwrap();
        assert!(
            note.starts_with("it needs 257 things of another host, of which 256"),
            "{note}"
        );
        let same = Need::Storage("/images/0".into());
        assert_eq!(told(vec![written(0)], &[same]).0, [written(0)], "once");
        let many = (0..=limits::DOMAIN_NEEDS).map(written).collect();
        let (all, _) = told(many, &needs);
        assert_eq!(all.len(), limits::DOMAIN_NEEDS + 1);
        assert!(all.iter().all(DomainNeed::must_be_known));
    }

    #[test]
    fn what_is_made_for_a_disk_there_is_not_asked_for_as_a_file_that_is_there() {
        let disk = NewDisk {
            target: "vda".to_owned(),
            path: "/images/web.img".into(),
            layout: DiskLayout::Raw,
            size: Bytes(1),
            allocated: Bytes(1),
            inode: 12,
            user: 0,
            group: 0,
            mode: 0o600,
        };
        let new = DomainNeed::NewDisks {
            uuid: "7".to_owned(),
            disks: vec![disk],
        };
        let files = ["/images/web.img", "/media/boot.iso"];
        let (needs, _) = told(
            vec![new.clone()],
            &files.map(|path| Need::Storage(path.into())),
        );
        let path = "/media/boot.iso".into();
        assert_eq!(needs, [new, DomainNeed::Path { path }]);
    }
}
