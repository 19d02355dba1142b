//! What has to be so of a domain's disk before it moves to another file. Words only.

use std::path::PathBuf;

use drover_api::{ErrorCode, Refusal};
use drover_libvirt::{Beside, Description, Disk, DomainState, Look, Source};

use super::super::conditions::of_domain;
use crate::libvirt::domains::words as state_words;
use crate::libvirt::virsh::Place;

/// The disk that somebody named: by its name for the guest, or by its file.
///
/// # Errors
/// There is none.
pub fn named<'a>(
    place: Place<'_>,
    called: &str,
    description: &'a Description,
    wanted: &str,
) -> Result<&'a Disk, Refusal> {
    let mut disks = description.disks.iter();
    let found = disks.find(|disk| {
        let by_file = matches!(&disk.source, Source::File(path) if path.as_os_str() == wanted);
        disk.target == wanted || by_file
    });
    found.ok_or_else(|| {
        let all = description.disks.iter();
        let all = all.map(|disk| format!("{} ({})", disk.target, words(&disk.source)));
        let all: Vec<_> = all.collect();
        let why = format!("it has no disk {wanted:?}");
        of_domain(place.host, ErrorCode::NoSuchDisk, called, &why).next(match all.is_empty() {
            true => "it has no disks at all".to_owned(),
            false => format!("it has {}", all.join(", ")),
        })
    })
}

/// Where the contents of a disk are.
pub fn words(source: &Source) -> String {
    match source {
        Source::Nothing => "nothing".to_owned(),
        Source::File(path) | Source::Block(path) => path.display().to_string(),
        Source::Volume { pool, volume } => format!("volume {volume:?} of pool {pool:?}"),
        Source::Network(protocol) => format!("by {protocol}"),
        Source::Other(kind) => format!("of kind {kind:?}"),
    }
}

/// The file of a disk that can move.
///
/// # Errors
/// It cannot, and why.
pub fn file(
    place: Place<'_>,
    called: &str,
    disk: &Disk,
    defined: Option<&Source>,
) -> Result<PathBuf, Refusal> {
    let target = &disk.target;
    let stays = |why: &str| {
        let why = format!("its disk {target} {why}");
        of_domain(place.host, ErrorCode::DiskStays, called, &why)
    };
    let Source::File(path) = &disk.source else {
        let at = words(&disk.source);
        return Err(stays(&format!("is {at}: only disks in files move so")));
    };
    if disk.read_only {
        return Err(stays(
            "cannot be written to by the guest: what it has is moved with `cp`, and changed with `virsh change-media` or `virsh edit`",
        ));
    }
    if disk.mirrored {
        let job = place.command(&format!("blockjob {{}} {target} --info"), called);
        let abort = place.command(&format!("blockjob {{}} {target} --abort"), called);
        let why = format!("its disk {target} is being copied already");
        return Err(
            of_domain(place.host, ErrorCode::VmBusy, called, &why).next(format!(
                "wait for the end of that, which {job} tells, or give it up with {abort}"
            )),
        );
    }
    if disk.transient {
        return Err(stays(
            "is transient: what is written to it is given up when the guest ends",
        ));
    }
    if let Some(why) = super::super::disks::not_copied(disk) {
        return Err(stays(&why));
    }
    match defined {
        Some(defined) if *defined != disk.source => {
            let edit = place.command("edit {}", called);
            let why = format!(
                "is {} now, and {} in its definition, which was edited since the domain was started",
                path.display(),
                words(defined)
            );
            Err(stays(&why).next(format!(
                "have the domain be started anew with its definition, or put the path back there with {edit}"
            )))
        }
        _ => Ok(path.clone()),
    }
}

/// Whether a domain is there to be copied from.
///
/// # Errors
/// It is off: nobody has its disks open, and nothing of this is needed.
pub fn in_memory(place: Place<'_>, look: &Look) -> Result<(), Refusal> {
    let called = &look.domain.name;
    match look.domain.state {
        DomainState::ShutOff => {
            let edit = place.command("edit {}", called);
            let why = "it is off, and only a disk of one that runs or is paused is moved";
            Err(
                of_domain(place.host, ErrorCode::VmNotRunning, called, why).next(format!(
                    "nobody has its disks open: copy the file with `cp --sparse=always`, and have the definition name the copy with {edit}"
                )),
            )
        }
        DomainState::Running | DomainState::Paused => Ok(()),
        other => {
            let why = format!(
                "it is {}, and only a disk of one that runs or is paused is moved",
                state_words(other)
            );
            let reason = place.command("domstate --reason {}", called);
            Err(of_domain(place.host, ErrorCode::VmNotRunning, called, &why)
                .next(format!("{reason} tells more")))
        }
    }
}

/// Whether libvirt has nothing of it that names its files, or is written beside them.
///
/// # Errors
/// It has.
pub fn beside(place: Place<'_>, called: &str, beside: &Beside) -> Result<(), Refusal> {
    let stays = |why: &str, list: &str, delete: &str| {
        let (list, delete) = (place.command(list, called), place.command(delete, called));
        of_domain(place.host, ErrorCode::DiskStays, called, why)
            .next(format!("{list} names them, and {delete} deletes one"))
    };
    if beside.snapshots > 0 {
        return Err(stays(
            "libvirt has snapshots of it, to which it could not be set back with its disk in another file",
            "snapshot-list {}",
            "snapshot-delete {} SNAPSHOT",
        ));
    }
    if beside.checkpoints > 0 {
        return Err(stays(
            "libvirt has checkpoints of it, whose bitmaps are in the file and would not be in a copy",
            "checkpoint-list {}",
            "checkpoint-delete {} CHECKPOINT",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on<T>(asked: impl FnOnce(Place<'_>) -> T) -> T {
        let host = "a".parse().unwrap();
        asked(Place {
            host: &host,
            uri: None,
        })
    }

    fn disk() -> Disk {
        Disk {
            target: "vda".to_owned(),
            source: Source::File("/images/web.img".into()),
            format: Some("raw".to_owned()),
            below: Vec::new(),
            read_only: false,
            transient: false,
            mirrored: false,
            shareable: false,
            encrypted: false,
        }
    }

    #[test]
    fn a_disk_is_found_by_its_name_or_file_and_another_one_is_told_of() {
        let description = Description {
            disks: vec![disk()],
            ..Description::default()
        };
        let found = |wanted| on(|place| named(place, "web", &description, wanted).cloned());
        assert_eq!(found("vda"), Ok(disk()));
        assert_eq!(found("/images/web.img"), Ok(disk()));
        let refused = found("vdb").unwrap_err();
        assert_eq!(refused.code, ErrorCode::NoSuchDisk);
        assert_eq!(
            refused.next.as_deref(),
            Some("it has vda (/images/web.img)")
        );
    }

    #[test]
    fn what_a_copy_would_lose_or_nobody_can_move_keeps_a_disk_where_it_is() {
        let refused = |disk: Disk| on(|place| file(place, "web", &disk, None)).unwrap_err();
        let same = Source::File("/images/web.img".into());
        let moves = on(|place| file(place, "web", &disk(), Some(&same)));
        assert_eq!(moves, Ok("/images/web.img".into()));
        let block = Disk {
            source: Source::Block("/dev/vg/web".into()),
            ..disk()
        };
        assert!(refused(block).message.contains("is /dev/vg/web: only"));
        let read_only = Disk {
            read_only: true,
            ..disk()
        };
        assert!(refused(read_only).message.contains("cannot be written to"));
        let chain = Disk {
            below: vec![Source::File("/images/base.qcow2".into())],
            ..disk()
        };
        assert!(refused(chain).message.contains("`virsh blockpull`"));
        let copied = Disk {
            mirrored: true,
            ..disk()
        };
        let copied = refused(copied);
        assert_eq!(copied.code, ErrorCode::VmBusy);
        assert!(
            copied
                .next
                .unwrap()
                .contains("`virsh blockjob web vda --abort`")
        );
        let other = Source::File("/images/other.img".into());
        let edited = on(|place| file(place, "web", &disk(), Some(&other))).unwrap_err();
        assert!(
            edited
                .message
                .contains("/images/other.img in its definition"),
            "{edited}"
        );
    }

    #[test]
    fn snapshots_and_checkpoints_keep_a_disk_with_what_takes_them_away() {
        let kept = |snapshots, checkpoints| {
            let all = Beside {
                snapshots,
                checkpoints,
                is_backed_up: false,
            };
            on(|place| beside(place, "web", &all))
        };
        assert_eq!(kept(0, 0), Ok(()));
        let next = kept(1, 0).unwrap_err().next.unwrap();
        assert!(next.contains("`virsh snapshot-list web`"), "{next}");
        let next = kept(0, 1).unwrap_err().next.unwrap();
        assert!(
            next.contains("`virsh checkpoint-delete web CHECKPOINT`"),
            "{next}"
        );
    }
}
