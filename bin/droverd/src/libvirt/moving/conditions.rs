//! What has to be so of a domain before it moves, by what libvirt tells of it on either host.

use std::path::{Path, PathBuf};

use drover_api::{DomainNeed, ErrorCode, FileSeen, Refusal};
use drover_libvirt::{Connection, Description, Disk, DomainState, Look, Source, Why};
use drover_types::{HostName, VmName, with_sources};
use uuid::Uuid;

use super::disks::LocalDisk;
use super::files::{Found, Hang, Holds};
use crate::libvirt::domains::{name, words};
use crate::libvirt::preflight::Preflight;
use crate::libvirt::virsh::Place;

/// A refusal that names the domain and its host.
pub fn of_domain(host: &HostName, code: ErrorCode, called: &str, why: &str) -> Refusal {
    let shown = name(called);
    Refusal::new(code, format!("domain {shown:?} of {host}: {why}"))
}

/// Whether it does what one does that may leave; what has to be told of that, where it may.
///
/// # Errors
/// It does not, and what to do.
pub fn by_state(place: Place<'_>, look: &Look) -> Result<Option<String>, Refusal> {
    let (called, state) = (&look.domain.name, look.domain.state);
    let refused = |code, why: &str| of_domain(place.host, code, called, why);
    let command = |text| place.command(text, called);
    match (state, look.why) {
        (DomainState::Running, _) | (DomainState::Paused, Why::Asked) => Ok(None),
        (DomainState::Paused, why @ (Why::Migrating | Why::Postcopy)) => {
            let why = format!(
                "libvirt says that it stands still because {why}: another host may have it, and which of the two is the domain is not \
                 decided"
            );
            let (job, resume) = (command("domjobinfo {}"), command("resume {}"));
            Err(refused(ErrorCode::OfLibvirt, &why).next(format!(
                "{job} tells whether it migrates; if it does not, and no other host has it in memory, {resume} has it run, and then it can \
                 be moved (one that was restored with --paused looks the same)"
            )))
        }
        (DomainState::Paused, Why::StartingUp) => {
            let refusal = refused(ErrorCode::VmNotRunning, "it is being started");
            Err(refusal.next("try again"))
        }
        // It is moved as it is. What stopped it may be mended by that.
        (DomainState::Paused, why) => Ok(Some(format!(
            "it stands still because {why}, and is left so wherever it is then: {} has it run",
            command("resume {}")
        ))),
        _ => {
            let state = words(state);
            let why = format!("it is {state}, and only one that runs or is paused is moved");
            let refusal = refused(ErrorCode::VmNotRunning, &why);
            let reason = command("domstate --reason {}");
            Err(refusal.next(format!("{reason} tells more")))
        }
    }
}

/// What is to be known of the variables of its firmware, where it stands still: QEMU writes them to the destination's file only when it
/// runs there (`postload_update_cb` of its `hw/block/pflash_cfi01.c`).
pub fn of_variables(host: &HostName, look: &Look, description: &Description) -> Option<String> {
    let file = description.variables.as_ref()?.display();
    (look.domain.state == DomainState::Paused).then(|| {
        format!(
            "it stands still, and its UEFI variables are written to {file} there only once it runs: ended before that it has those that are \
             in that file there; {file} of {host} has its own"
        )
    })
}

/// What keeps a domain here that is so described, such as disks that are not known to be the same on another host: libvirt looks at
/// those in files only.
pub fn obstacles(description: &Description) -> Vec<String> {
    let obstacles = Preflight::of(description).obstacles;
    let obstacles = obstacles.iter().map(ToString::to_string);
    let local = description.disks.iter().filter_map(not_known_there);
    obstacles.chain(local).collect()
}

/// Disks in files that both hosts have to share while it moves, by libvirt's own rule: those that are written to, whatever the host's
/// cache is (`qemuMigrationSrcIsSafe`, of 9.0.0 and 11.3.0).
pub fn bound_to_shared_files(description: &Description) -> impl Iterator<Item = (&Disk, &PathBuf)> {
    let disks = description.disks.iter();
    disks.filter_map(|disk| match &disk.source {
        Source::File(path) if !disk.read_only => Some((disk, path)),
        _ => None,
    })
}

/// What such a disk binds its domain to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bond {
    /// Another host has to have the very same file.
    Same(DomainNeed),
    /// No other host has it: its file is on a file system of this one alone, and nobody said otherwise.
    Local(LocalDisk),
}

/// That of a disk, by what was found here.
///
/// # Errors
/// Why the disk keeps its domain here: nothing is known of its file, or its hypervisor of this pid has another one open.
pub fn bond(
    disk: &Disk,
    path: &Path,
    pid: Option<u32>,
    found: Result<Found, Hang>,
) -> Result<Bond, String> {
    let path = path.to_owned();
    Ok(match whose(&disk.target, &path, pid, found)? {
        Whose::Shared(seen) => Bond::Same(DomainNeed::SameFile { path, seen }),
        Whose::Local { file_system } => Bond::Local(LocalDisk {
            disk: disk.clone(),
            path,
            file_system,
        }),
    })
}

/// Whose the file of a disk is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// Other hosts may have it, as is seen here.
    Shared(FileSeen),
    /// It is this host's alone, and nobody said otherwise.
    Local {
        /// The kind of file system that it is on.
        file_system: String,
    },
}

/// By what was found here, of a disk that goes by this name.
///
/// # Errors
/// Nothing is known of the file, or the hypervisor of this pid has another one open.
pub fn whose(
    target: &str,
    path: &Path,
    pid: Option<u32>,
    found: Result<Found, Hang>,
) -> Result<Whose, String> {
    match found {
        Ok(Found::File {
            seen,
            is_local,
            is_shared_by_word,
            held,
        }) => {
            let held = pid.and_then(|pid| Some((pid, held.get(&pid)?)));
            is_open(target, path, held)?;
            Ok(match is_local && !is_shared_by_word {
                true => Whose::Local {
                    file_system: seen.file_system,
                },
                false => Whose::Shared(seen),
            })
        }
        Ok(Found::Nothing) => Err(format!(
            "there is no file {} of its disk {target}",
            path.display()
        )),
        Ok(Found::Other(what)) => Err(format!(
            "{} of its disk {target} is {what}, of which it is not known whether it is the same on another host",
            path.display()
        )),
        Ok(Found::NotKnown(why)) => Err(not_known(target, &why)),
        Err(hang) => Err(not_known(target, &hang.to_string())),
    }
}

/// What is at the path now may be another file than the one that is written to.
fn is_open(target: &str, path: &Path, held: Option<(u32, &Holds)>) -> Result<(), String> {
    let path = path.display();
    match held {
        Some((_, Holds::It)) => Ok(()),
        Some((pid, Holds::Others)) => Err(format!(
            "its disk {target} is another file than the one that is at {path} now, which its hypervisor (pid {pid}) does not have open: somebody \
             mounted other storage there or replaced the file, so no other host can be asked for it. Once it was stopped and started it \
             writes to what is there"
        )),
        Some((_, Holds::NotKnown(why))) => Err(not_known(target, why)),
        None => Err(not_known(
            target,
            "the process of its hypervisor is not found",
        )),
    }
}

fn not_known(target: &str, why: &str) -> String {
    format!("by what file another host would know its disk {target} is not known: {why}")
}

/// The refusal of one that these keep here.
///
/// # Errors
/// There is one.
pub fn by_obstacles(host: &HostName, called: &str, all: &[String]) -> Result<(), Refusal> {
    if all.is_empty() {
        return Ok(());
    }
    let why = format!("it cannot be moved: {}", all.join("; "));
    Err(of_domain(host, ErrorCode::OfLibvirt, called, &why))
}

/// Why a disk keeps a domain from being moved, where this agent cannot tell whether the destination has the same one.
fn not_known_there(disk: &Disk) -> Option<String> {
    if disk.read_only {
        return None;
    }
    let mut layers = std::iter::once(&disk.source).chain(&disk.below);
    let what = layers.find_map(|source| match source {
        Source::Block(path) => Some(format!("on {}", path.display())),
        Source::Volume { pool, volume } => Some(format!("volume {volume:?} of pool {pool:?}")),
        Source::File(_) | Source::Network(_) | Source::Nothing | Source::Other(_) => None,
    })?;
    let target = &disk.target;
    Some(format!(
        "its disk {target}, or what that is changes of, is {what}, of which it is not known whether it is the same on another host: only \
         disks in files that hosts share, and those over a network, are moved by the agent"
    ))
}

/// Another host has this very domain: moved from here as well, one of the two would be lost or both run.
pub fn in_memory_there(place: Place<'_>, vm: &VmName, there: &HostName) -> Refusal {
    let why = format!("libvirt of {there} has the same domain in memory, by its id");
    let refusal = of_domain(place.host, ErrorCode::VmElsewhere, vm.as_str(), &why);
    let tells = place.command("domstate --reason {}", vm.as_str());
    let own = place.host;
    refusal.next(format!(
        "`drover status` on both hosts tells of migrations of it; make sure which of the two is the domain, and end the other: {tells} \
         on {own} and on {there} tells what each does"
    ))
}

/// No domain of that id or name is here.
///
/// # Errors
/// One is, or libvirt does not tell.
pub async fn not_here(
    place: Place<'_>,
    connection: &Connection,
    uuid: Uuid,
    called: &str,
) -> Result<(), Refusal> {
    let unknown = |error: drover_libvirt::CallError| {
        let why = with_sources(&error);
        of_domain(place.host, ErrorCode::LibvirtNotKnown, called, &why)
    };
    let domains = connection.domains().await.map_err(unknown)?;
    let told = domains
        .told
        .iter()
        .map(|domain| (&domain.name, domain.uuid));
    let untold = domains
        .untold
        .iter()
        .map(|domain| (&domain.name, domain.uuid));
    let mut all = told.chain(untold);
    match all.find(|(name, id)| *name == called || *id == uuid) {
        Some((there, id)) => Err(has_one(place, there, id, uuid)),
        None => Ok(()),
    }
}

/// A domain with the name or the id of one that comes is here.
fn has_one(place: Place<'_>, called: &str, id: Uuid, comes: Uuid) -> Refusal {
    let (host, shown) = (place.host, name(called));
    let likeness = match id == comes {
        true => "that id",
        false => "that name",
    };
    let message = format!("libvirt of {host} already has a domain of {likeness}: {shown:?} ({id})");
    let undefine = place.command("undefine {}", &id.to_string());
    Refusal::new(ErrorCode::VmExists, message).next(format!(
        "if it is not wanted there any more, {undefine} on {host} removes its definition"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::domain;
    use drover_api::FileSeen;

    fn disk(source: Source, read_only: bool) -> Disk {
        Disk {
            target: "vda".to_owned(),
            source,
            format: Some("raw".to_owned()),
            below: Vec::new(),
            read_only,
            transient: false,
            mirrored: false,
            shareable: false,
            encrypted: false,
        }
    }

    /// A host whose libvirt is not the system's.
    fn on<T>(asked: impl FnOnce(Place<'_>) -> T) -> T {
        let host = "a".parse().unwrap();
        asked(Place {
            host: &host,
            uri: Some("qemu:///other"),
        })
    }

    fn stands(state: DomainState, why: Why) -> Result<Option<String>, Refusal> {
        let look = Look {
            domain: domain("it's 1", state),
            why,
        };
        on(|place| by_state(place, &look))
    }

    #[test]
    fn a_domain_moves_that_runs_or_stands_still_for_a_reason_of_its_own() {
        assert_eq!(stands(DomainState::Running, Why::Other(1)), Ok(None));
        assert_eq!(stands(DomainState::Paused, Why::Asked), Ok(None));
        for why in [Why::DiskFailed, Why::Watchdog, Why::Other(7)] {
            let note = stands(DomainState::Paused, why).unwrap().unwrap();
            let told = format!("stands still because {why}, and is left so");
            assert!(note.contains(&told), "{note}");
            let resume = r"`virsh -c qemu:///other resume 'it'\''s 1'` has it run";
            assert!(note.ends_with(resume), "{note}");
        }
    }

    #[test]
    fn of_one_with_variables_of_its_firmware_it_is_told_where_they_are_while_it_stands_still() {
        let described = |variables| Description {
            variables,
            ..Description::default()
        };
        let told = |state, description: &Description| {
            let look = Look {
                domain: domain("web", state),
                why: Why::Asked,
            };
            on(|place| of_variables(place.host, &look, description))
        };
        let uefi = described(Some("/nvram/web.fd".into()));
        let note = told(DomainState::Paused, &uefi).unwrap();
        let words = "written to /nvram/web.fd there only once it runs";
        assert!(note.contains(words), "{note}");
        assert!(note.ends_with("/nvram/web.fd of a has its own"), "{note}");
        assert_eq!(told(DomainState::Running, &uefi), None);
        assert_eq!(told(DomainState::Paused, &described(None)), None);
    }

    #[test]
    fn one_of_two_that_nobody_decided_between_is_not_moved() {
        for why in [Why::Migrating, Why::Postcopy] {
            let refused = stands(DomainState::Paused, why).unwrap_err();
            assert_eq!(refused.code, ErrorCode::OfLibvirt);
            assert!(
                refused.message.contains("another host may have it"),
                "{refused}"
            );
            let next = refused.next.unwrap();
            assert!(next.contains(r"domjobinfo 'it'\''s 1'`"), "{next}");
        }
    }

    #[test]
    fn a_domain_that_does_not_run_is_not_moved() {
        for state in [
            DomainState::ShutOff,
            DomainState::ShuttingDown,
            DomainState::Crashed,
            DomainState::Asleep,
            DomainState::Other(0),
        ] {
            let refused = stands(state, Why::Other(0)).unwrap_err();
            assert_eq!(refused.code, ErrorCode::VmNotRunning, "{state:?}");
            let next = refused.next.unwrap();
            assert!(next.contains(r"domstate --reason 'it'\''s 1'`"), "{next}");
        }
        let starts = stands(DomainState::Paused, Why::StartingUp).unwrap_err();
        assert_eq!(starts.code, ErrorCode::VmNotRunning);
    }

    #[test]
    fn a_domain_that_is_in_the_way_is_named_with_what_takes_it_away() {
        let (id, other) = (Uuid::from_u128(7), Uuid::from_u128(8));
        let by_id = on(|place| has_one(place, "it's 1", id, id));
        assert!(by_id.message.contains("of that id"), "{by_id}");
        let by_name = on(|place| has_one(place, "it's 1", other, id));
        assert!(by_name.message.contains("of that name"), "{by_name}");
        let next = by_name.next.unwrap();
        let undefine = format!("`virsh -c qemu:///other undefine {other}`");
        assert!(next.contains(&undefine), "{next}");
        let (vm, b) = ("web".parse().unwrap(), "b".parse().unwrap());
        let there = on(|place| in_memory_there(place, &vm, &b));
        assert_eq!(there.code, ErrorCode::VmElsewhere);
        let next = there.next.unwrap();
        assert!(
            next.contains("domstate --reason web` on a and on b"),
            "{next}"
        );
    }

    #[test]
    fn a_disk_that_may_be_another_one_there_keeps_a_domain_here() {
        let why = |source, read_only| not_known_there(&disk(source, read_only));
        let block = || Source::Block("/dev/vg/web".into());
        let volume = || Source::Volume {
            pool: "images".to_owned(),
            volume: "web".to_owned(),
        };
        assert!(why(block(), false).unwrap().contains("/dev/vg/web"));
        assert!(why(volume(), false).unwrap().contains("\"images\""));
        assert_eq!(why(block(), true), None);
        let upon = Disk {
            below: vec![block()],
            ..disk(Source::File("/shared/web.qcow2".into()), false)
        };
        assert!(not_known_there(&upon).unwrap().contains("/dev/vg/web"));
        for known in [
            Source::File("/shared/web.qcow2".into()),
            Source::Network("rbd".to_owned()),
            Source::Nothing,
        ] {
            assert_eq!(why(known, false), None);
        }
    }

    #[test]
    fn what_is_written_to_has_to_be_in_a_file_that_hosts_share() {
        let file = |read_only| disk(Source::File("/images/web.qcow2".into()), read_only);
        let description = |disk| Description {
            disks: vec![disk],
            ..Description::default()
        };
        let bound = |disk| bound_to_shared_files(&description(disk)).count() > 0;
        assert!(bound(file(false)) && !bound(file(true)));
        let network = disk(Source::Network("rbd".to_owned()), false);
        assert!(!bound(network));
    }

    #[test]
    fn another_host_has_to_have_the_same_file_and_what_no_other_has_keeps_a_domain_here() {
        let path = Path::new("/images/web.qcow2");
        let disk = disk(Source::File(path.to_owned()), false);
        let on = |file_system: &str, is_shared_by_word| Found::File {
            seen: FileSeen {
                file_system: file_system.to_owned(),
                fsid: None,
                server: None,
                inode: Some(12),
            },
            is_local: file_system == "ext4",
            is_shared_by_word,
            held: [(7, Holds::It)].into(),
        };
        let needed = |found| bond(&disk, path, Some(7), found);
        for shared in [on("nfs4", false), on("fuse.sshfs", false), on("ext4", true)] {
            let Bond::Same(need) = needed(Ok(shared)).unwrap() else {
                panic!("it is taken for this host's alone");
            };
            assert_eq!(need.to_string(), "the same /images/web.qcow2");
            assert!(need.must_be_known());
        }
        let Bond::Local(local) = needed(Ok(on("ext4", false))).unwrap() else {
            panic!("it is taken for one that others share");
        };
        let local = local.obstacle();
        assert!(
            local.starts_with("its disk vda is in a file on ext4, which"),
            "{local}"
        );
        assert!(local.contains("--with-disks"), "{local}");
        let why = |found| needed(found).unwrap_err();
        assert!(why(Ok(Found::Nothing)).contains("no file /images/web.qcow2"));
        assert!(why(Ok(Found::Other("a block device"))).contains("is a block device"));
        assert!(why(Ok(Found::NotKnown("why".to_owned()))).ends_with("not known: why"));
        assert!(why(Err(Hang::Before)).contains("has not ended"));
    }

    #[test]
    fn a_domain_whose_hypervisor_has_another_file_open_than_the_one_at_its_path_stays() {
        let path = Path::new("/images/web.qcow2");
        let disk = disk(Source::File(path.to_owned()), false);
        let with = |pid, holds| {
            let found = Found::File {
                seen: FileSeen {
                    file_system: "nfs4".to_owned(),
                    fsid: None,
                    server: None,
                    inode: Some(12),
                },
                is_local: false,
                is_shared_by_word: true,
                held: [(7, holds)].into(),
            };
            bond(&disk, path, pid, Ok(found))
        };
        assert!(with(Some(7), Holds::It).is_ok());
        let why = with(Some(7), Holds::Others).unwrap_err();
        assert!(
            why.contains(
                "at /images/web.qcow2 now, which its hypervisor (pid 7) does not have open"
            ),
            "{why}"
        );
        let why = with(Some(7), Holds::NotKnown("no answer".to_owned())).unwrap_err();
        assert!(why.ends_with("not known: no answer"), "{why}");
        for pid in [None, Some(8)] {
            let why = with(pid, Holds::It).unwrap_err();
            assert!(
                why.ends_with("the process of its hypervisor is not found"),
                "{why}"
            );
        }
    }
}
