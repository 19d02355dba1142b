//! Whether files for disks that come can be made here.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use drover_api::{DiskLayout, NEW_DISKS, NewDisk, NewDisksRoom};
use drover_types::{Bytes, MigrationId};
use jiff::Timestamp;
use tokio::time::Instant;

use super::identity::FileId;
use super::ledger::{self, Made};
use super::left::{LeftFile, left};
use super::owner::Owner;
use crate::libvirt::{Looks, Offer, holder};

/// Of `st_blocks` (stat(2)).
pub const BLOCK: u64 = 512;

/// What qcow2 has of its own for a cluster: 8 bytes that tell where it is, 2 that count who uses it (QEMU's `docs/interop/qcow2.rst`), and
/// as much again for tables that are not full.
const CLUSTER_BYTES: u64 = 16;

/// What it has however small it is: a header and the first of each table, a cluster of at most 2 MiB each.
const HEADER_BYTES: u64 = 8 << 20;

/// What disks that come take of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The file system's.
    pub device: u64,
    /// Where the file of one of them is to be.
    pub folder: PathBuf,
    /// Less what they replace.
    pub wanted: Bytes,
    pub free: Bytes,
}

impl Share {
    /// To whoever asked whether this host has that need.
    pub fn told(self, need: u32) -> NewDisksRoom {
        let Self {
            device,
            folder,
            wanted,
            free,
        } = self;
        NewDisksRoom {
            need,
            device,
            folder,
            wanted,
            free,
        }
    }
}

/// Where a disk's file is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The file system, by its device.
    device: u64,
    free: Bytes,
    there: Option<There>,
}

/// What is at its path already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct There {
    bytes: Bytes,
    allocated: Bytes,
    modified: Option<SystemTime>,
    /// This very guest left it here.
    is_left: bool,
    /// This migration had it made, which has not ended yet, or has left it for now.
    made_by: Option<MigrationId>,
    /// A process that has it open.
    holder: Option<u32>,
}

/// What is known here of files of disks.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Those that the guest left.
    left: Vec<LeftFile>,
    /// Those that were made for other migrations, which may be written to still.
    made: Vec<(MigrationId, Made)>,
    /// Those with which guests have come.
    given: Vec<Made>,
}

/// What this host says to whoever asks whether they can be made.
pub async fn offer(
    looks: &Looks,
    state: &Path,
    (owner, disks): (&Owner, &[NewDisk]),
    until: Instant,
) -> Offer {
    if disks.len() > NEW_DISKS {
        let count = disks.len();
        return Offer::Lacks(format!(
            "{count} disks come, and at most {NEW_DISKS} are taken"
        ));
    }
    let (state, owner) = (state.to_owned(), owner.clone());
    let known = tokio::task::spawn_blocking(move || Known {
        left: left(&state, &owner),
        made: ledger::all(&state),
        given: ledger::given(&state),
    });
    let known = match known.await {
        Ok(known) => known,
        Err(error) => return Offer::NotKnown(error.to_string()),
    };
    let mut sites = Vec::with_capacity(disks.len());
    for disk in disks {
        let (path, known) = (disk.path.clone(), known.clone());
        let look = move |is_here: &dyn Fn(&Path) -> bool| site(&path, &known, is_here);
        let within = until.saturating_duration_since(Instant::now());
        match looks.on_mount_of(disk.path.clone(), within, look).await {
            Ok(Ok(site)) => sites.push(site),
            Ok(Err(why)) => return Offer::Lacks(why),
            Err(hang) => {
                let path = disk.path.display();
                return Offer::NotKnown(format!("{path} is to be made there, where {hang}"));
            }
        }
    }
    match lacks(disks, &sites) {
        None => Offer::HasRoom(shares(disks, &sites)),
        Some(why) => Offer::Lacks(why),
    }
}

/// Looks at the place of one.
///
/// # Errors
/// None can be made there; why.
fn site(path: &Path, known: &Known, is_here: &dyn Fn(&Path) -> bool) -> Result<Site, String> {
    let shown = path.display();
    let folder = path
        .parent()
        .filter(|_| path.is_absolute() && path.file_name().is_some());
    let folder = folder.ok_or_else(|| format!("{shown} is no path of a file"))?;
    let unseen =
        |error: io::Error| format!("{} cannot be looked at there: {error}", folder.display());
    let found = match std::fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = folder.display();
            return Err(format!(
                "there is no folder {folder} there for its disk's file {shown}: make it"
            ));
        }
        found => found.map_err(unseen)?,
    };
    if !found.is_dir() {
        return Err(format!("{} is no folder there", folder.display()));
    }
    let disk = rustix::fs::statvfs(folder).map_err(|error| unseen(error.into()))?;
    let made = known.made.iter().map(|(_, made)| made);
    let here = made.chain(&known.given).filter(|made| is_here(&made.path));
    let promised = here.map(|made| promised(made, found.dev()));
    let promised = promised.fold(0, u64::saturating_add);
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    Ok(Site {
        device: found.dev(),
        free: Bytes(free.saturating_sub(promised)),
        there: there(path, known).map_err(unseen)?,
    })
}

/// What one that was made may take yet of that file system.
fn promised(made: &Made, device: u64) -> u64 {
    let found = std::fs::symlink_metadata(&made.path);
    let own = found
        .ok()
        .filter(|found| made.file == Some(FileId::of(found)));
    match own {
        Some(own) if own.dev() == device => made.most.0.saturating_sub(own.blocks() * BLOCK),
        _ => 0,
    }
}

fn there(path: &Path, known: &Known) -> io::Result<Option<There>> {
    // A link is something that is there, too.
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    Ok(Some(There {
        bytes: Bytes(found.len()),
        allocated: Bytes(found.blocks() * BLOCK),
        modified: found.modified().ok(),
        is_left: found.is_file() && known.left.iter().any(|left| left.is(path, &found)),
        made_by: known.made.iter().find_map(|(id, made)| {
            (made.path == path && made.file == Some(FileId::of(&found))).then_some(*id)
        }),
        holder: holder(path, &found)?,
    }))
}

/// Why they cannot be made there, where they cannot: something else is there, or too little room for all that a guest may write.
fn lacks(disks: &[NewDisk], sites: &[Site]) -> Option<String> {
    let both = || disks.iter().zip(sites);
    let in_the_way = both().find_map(|(disk, site)| in_the_way(disk, site.there.as_ref()?));
    in_the_way.or_else(|| {
        on_each(disks, sites).into_values().find_map(|on| {
            let paths: Vec<_> = on.paths.iter().map(|path| path.display().to_string()).collect();
            let (wanted, free) = (on.wanted, Bytes(on.free.0.saturating_add(on.replaced.0)));
            (wanted > free).then(|| {
                format!(
                    "its disks may come to {wanted} in {}, where {free} are free: make room for all that it may write",
                    paths.join(", ")
                )
            })
        })
    })
}

/// Disks that are to be on one file system.
struct On<'a> {
    wanted: Bytes,
    free: Bytes,
    /// What is replaced makes room before anything is copied.
    replaced: Bytes,
    paths: Vec<&'a PathBuf>,
}

fn on_each<'a>(disks: &'a [NewDisk], sites: &[Site]) -> BTreeMap<u64, On<'a>> {
    let mut all = BTreeMap::new();
    for (disk, site) in disks.iter().zip(sites) {
        let on = all.entry(site.device).or_insert(On {
            wanted: Bytes(0),
            free: site.free,
            replaced: Bytes(0),
            paths: Vec::new(),
        });
        let replaced = site.there.as_ref().map_or(0, |there| there.allocated.0);
        on.wanted.0 = on.wanted.0.saturating_add(most(disk).0);
        on.replaced.0 = on.replaced.0.saturating_add(replaced);
        on.paths.push(&disk.path);
    }
    all
}

/// What they take of each file system, for whoever has more to put there.
fn shares(disks: &[NewDisk], sites: &[Site]) -> Vec<Share> {
    let on_each = on_each(disks, sites).into_iter();
    let shares = on_each.filter_map(|(device, on)| {
        Some(Share {
            device,
            folder: on.paths.first()?.parent()?.to_owned(),
            wanted: Bytes(on.wanted.0.saturating_sub(on.replaced.0)),
            free: on.free,
        })
    });
    shares.collect()
}

fn in_the_way(disk: &NewDisk, there: &There) -> Option<String> {
    let path = disk.path.display();
    if let (true, Some(pid)) = (there.is_left, there.holder) {
        return Some(format!(
            "{path}, which it left there when it was handed off, is open in process {pid} there"
        ));
    }
    if there.is_left {
        return None;
    }
    if let Some(id) = there.made_by {
        return Some(format!(
            "{path} is there already, as migration {id} had it made: where that has ended it goes within some seconds, once its source has said \
             that it keeps its guest: try again then"
        ));
    }
    let written = there.modified.and_then(|at| Timestamp::try_from(at).ok());
    let written = written.map_or_else(String::new, |at| format!(", last written to at {at:.0}"));
    let bytes = there.bytes;
    Some(format!(
        "{path} is there already ({bytes}{written}), and is none that it left there when it was handed off: move it away, if nobody needs it there"
    ))
}

/// What its file may come to.
pub fn most(disk: &NewDisk) -> Bytes {
    let size = disk.size.0;
    Bytes(match disk.layout {
        DiskLayout::Raw => size,
        DiskLayout::Qcow2 { cluster } => {
            let clusters = size.div_ceil(u64::from(cluster.max(1)));
            let own = clusters
                .saturating_mul(CLUSTER_BYTES)
                .saturating_add(HEADER_BYTES);
            size.saturating_add(own)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const ID: MigrationId = MigrationId(Uuid::from_u128(7));

    fn disk(path: &str, size: u64, layout: DiskLayout) -> NewDisk {
        NewDisk {
            target: "vda".to_owned(),
            path: path.into(),
            layout,
            size: Bytes(size),
            allocated: Bytes(0),
            inode: 1,
            user: 0,
            group: 0,
            mode: 0o600,
        }
    }

    fn site_of(device: u64, free: u64) -> Site {
        Site {
            device,
            free: Bytes(free),
            there: None,
        }
    }

    #[test]
    fn disks_of_one_file_system_share_its_room_and_each_counts_with_all_that_may_be_written() {
        let (raw, mib) = (DiskLayout::Raw, 1 << 20);
        let two = [disk("/a", 60 * mib, raw), disk("/b", 60 * mib, raw)];
        let apart = [site_of(1, 100 * mib), site_of(2, 100 * mib)];
        assert_eq!(lacks(&two, &apart), None);
        let why = lacks(&two, &[site_of(1, 100 * mib), site_of(1, 100 * mib)]).unwrap();
        assert!(
            why.contains("120 MiB in /a, /b, where 100 MiB are free"),
            "{why}"
        );
        let qcow2 = [disk("/c", 64 * mib, DiskLayout::Qcow2 { cluster: 65536 })];
        assert!(lacks(&qcow2, &[site_of(1, 64 * mib)]).is_some());
        assert_eq!(lacks(&qcow2, &[site_of(1, 73 * mib)]), None);
        // Numbers of another host's make nothing overflow.
        let absurd = [disk("/d", u64::MAX, DiskLayout::Qcow2 { cluster: 0 })];
        assert!(lacks(&absurd, &[site_of(1, mib)]).is_some());
    }

    #[test]
    fn only_what_the_guest_left_there_and_nobody_has_open_may_be_in_its_place() {
        let there = |is_left, holder| There {
            bytes: Bytes(5 << 20),
            allocated: Bytes(5 << 20),
            modified: Some(SystemTime::UNIX_EPOCH),
            is_left,
            made_by: None,
            holder,
        };
        let new = disk("/images/web.img", 5 << 20, DiskLayout::Raw);
        let words = |there| {
            let site = Site {
                there: Some(there),
                ..site_of(1, 0)
            };
            lacks(std::slice::from_ref(&new), &[site])
        };
        assert_eq!(words(there(true, None)), None, "its room is free then");
        let open = words(there(true, Some(7))).unwrap();
        assert!(open.contains("open in process 7"), "{open}");
        let others = words(there(false, None)).unwrap();
        assert!(
            others.starts_with(
                "/images/web.img is there already (5 MiB, last written to at 1970-01-01T00:00:00Z)"
            ),
            "{others}"
        );
    }

    #[test]
    fn a_place_is_looked_at_with_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        let found = site(&path, &Known::default(), &|_| true).unwrap();
        assert!(found.there.is_none() && found.free > Bytes(0));
        std::fs::write(&path, "contents").unwrap();
        let _open = std::fs::File::open(&path).unwrap();
        let there = site(&path, &Known::default(), &|_| true)
            .unwrap()
            .there
            .unwrap();
        assert_eq!((there.bytes, there.is_left), (Bytes(8), false));
        assert_eq!(there.holder, Some(std::process::id()));
        // What another migration had made here may grow, and is said to be that.
        let made = Made {
            path: path.clone(),
            file: Some(FileId::of(&std::fs::metadata(&path).unwrap())),
            at_rest: None,
            most: Bytes(u64::MAX),
        };
        let given = Known {
            given: vec![made.clone()],
            ..Known::default()
        };
        let known = Known {
            made: vec![(ID, made)],
            ..Known::default()
        };
        let mine = folder.path().join("mine.img");
        for known in [&known, &given] {
            assert_eq!(site(&mine, known, &|_| true).unwrap().free, Bytes(0));
        }
        assert!(site(&mine, &known, &|_| false).unwrap().free > Bytes(0));
        let again = site(&path, &known, &|_| true).unwrap();
        let disk = disk(path.to_str().unwrap(), 1, DiskLayout::Raw);
        let why = lacks(&[disk], &[again]).unwrap();
        assert!(why.contains("goes within some seconds"), "{why}");
        let below = folder.path().join("none/web.img");
        assert!(
            site(&below, &Known::default(), &|_| true)
                .unwrap_err()
                .contains("there is no folder")
        );
        assert!(
            site(&path.join("web.img"), &Known::default(), &|_| true)
                .unwrap_err()
                .contains("no folder")
        );
        assert!(
            site(Path::new("web.img"), &Known::default(), &|_| true)
                .unwrap_err()
                .contains("no path")
        );
    }
}
