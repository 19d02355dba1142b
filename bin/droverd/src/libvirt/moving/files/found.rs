//! What is at a path of this host: one look, which takes as long as the file system does.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_api::FileSeen;
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, fstatvfs, open};
use rustix::io::Errno;

use super::mounts::{Mount, Mounts};
use super::open::{Holds, Led, Open};
use super::way::{Leads, Way};
use super::word;

/// What QEMU is given as a path there is open in one process, and no file of a host's.
const OF_A_PROCESS: [&str; 2] = ["/dev/fd", "/proc"];

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A file, or one at which root may not look.
    File {
        /// What is seen of it.
        seen: FileSeen,
        /// It is on a file system that this host has for itself.
        is_local: bool,
        /// Somebody told libvirt of this host that hosts share it.
        is_shared_by_word: bool,
        /// Which of the processes that were asked about have it open.
        held: BTreeMap<u32, Holds>,
    },
    /// Nothing.
    Nothing,
    /// Something else.
    Other(&'static str),
    /// It cannot be told.
    NotKnown(String),
}

/// Whether this is open in one process, and no file of a host's.
pub fn is_of_a_process(path: &Path) -> bool {
    OF_A_PROCESS.iter().any(|of| path.starts_with(of))
}

/// What is known of file systems while files are looked at: each is asked for itself once, however many files it has.
#[derive(Debug)]
pub struct Sight {
    mounts: Arc<Mounts>,
    /// Folders that somebody said to be shared, once that was asked for.
    told: OnceCell<Vec<PathBuf>>,
    systems: BTreeMap<u64, System>,
    open: Open,
}

/// A file system, as one mount shows it.
#[derive(Debug, Clone)]
struct System {
    mount: Option<Mount>,
    name: String,
    is_local: bool,
    fsid: Option<String>,
}

impl Sight {
    /// By these mounts.
    pub fn new(mounts: Arc<Mounts>) -> Self {
        Self {
            mounts,
            told: OnceCell::new(),
            systems: BTreeMap::new(),
            open: Open::default(),
        }
    }

    /// Goes this way as far as it leads on this mount, and looks at what is at its end; nothing where it leads to another mount.
    pub fn at_end_of(&mut self, way: &mut Way, mount: &Path) -> Option<Found> {
        match way.follow(&self.mounts, mount) {
            Leads::Here => Some(self.look(&way.path(), &way.processes)),
            Leads::On => None,
            Leads::Round => Some(not_looked_at(&way.asked, Errno::LOOP)),
        }
    }

    /// Looks at a path in which are no links, and at whether these processes have open what is there.
    fn look(&mut self, path: &Path, processes: &BTreeSet<u32>) -> Found {
        if is_of_a_process(path) {
            return Found::Other("no file, but what one process has open");
        }
        match self.at(path, processes) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => Found::Nothing,
            Err(Errno::ACCESS) => self.forbidden(path, processes),
            Err(error) => not_looked_at(path, error),
        }
    }

    fn at(&mut self, path: &Path, processes: &BTreeSet<u32>) -> Result<Found, Errno> {
        let file = opened(path)?;
        let stat = fstat(&file)?;
        let other = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some("a folder"),
            FileType::BlockDevice => Some("a block device"),
            _ => Some("no file"),
        };
        match other {
            Some(other) => Ok(Found::Other(other)),
            None => {
                let number = Some((stat.st_dev, stat.st_ino));
                self.of(&file, Led { real: path, number }, processes)
            }
        }
    }

    /// Where a server lets root of this host see no more than others (NFS's `root_squash`), QEMU's user may see more. What is told is
    /// what holds of the last folder that root may look at.
    fn forbidden(&mut self, path: &Path, processes: &BTreeSet<u32>) -> Found {
        let folder = path
            .ancestors()
            .skip(1)
            .find_map(|folder| opened(folder).ok());
        let led = Led {
            real: path,
            number: None,
        };
        let found = folder.map(|folder| self.of(&folder, led, processes));
        found
            .unwrap_or(Err(Errno::ACCESS))
            .unwrap_or_else(|error| not_looked_at(path, error))
    }

    /// Of an open file, or of a folder above it.
    fn of(
        &mut self,
        file: &OwnedFd,
        led: Led<'_>,
        processes: &BTreeSet<u32>,
    ) -> Result<Found, Errno> {
        let system = self.system(file)?;
        let server = system.mount.as_ref();
        let server = server.and_then(|mount| mount.server(&led.real.to_string_lossy()));
        let told = || word::folders(Path::new(word::QEMU_CONF));
        let mut told = self.told.get_or_init(told).iter();
        let held = processes.iter();
        Ok(Found::File {
            seen: FileSeen {
                file_system: system.name,
                fsid: system.fsid,
                server,
                inode: led.number.map(|(_, inode)| inode),
            },
            is_local: system.is_local,
            is_shared_by_word: told.any(|folder| led.real.starts_with(folder)),
            held: held.map(|pid| (*pid, self.open.holds(*pid, led))).collect(),
        })
    }

    /// The one that an open file is on.
    fn system(&mut self, file: &OwnedFd) -> Result<System, Errno> {
        let id = mount_id(file.as_fd().as_raw_fd());
        if let Some(known) = id.and_then(|id| self.systems.get(&id)) {
            return Ok(known.clone());
        }
        let mount = id.and_then(|id| self.mount(id));
        let statfs = fstatfs(file)?;
        let fsid = fstatvfs(file)?.f_fsid;
        let named = mount.as_ref().map(|mount| mount.file_system.clone());
        let unnamed = || format!("file system {:#x}", statfs.f_type);
        let local = local(u64::try_from(statfs.f_type).unwrap_or_default());
        let name = local.map_or_else(|| named.unwrap_or_else(unnamed), str::to_owned);
        let has_device = mount.as_ref().is_some_and(|mount| mount.has_device);
        let system = System {
            is_local: is_of_one_host(&name, has_device),
            name,
            fsid: (fsid != 0).then(|| format!("{fsid:x}")),
            mount,
        };
        if let Some(id) = id {
            self.systems.insert(id, system.clone());
        }
        Ok(system)
    }

    /// One that was mounted a moment ago, as automounters do for who looks there, is in no older list.
    fn mount(&mut self, id: u64) -> Option<Mount> {
        let known = self.mounts.find(id);
        known.or_else(|| {
            self.mounts = Arc::new(Mounts::now());
            self.mounts.find(id)
        })
    }
}

/// Neither read nor written, and not even permitted to be: looked at.
fn opened(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn not_looked_at(path: &Path, error: Errno) -> Found {
    let error = io::Error::from(error);
    Found::NotKnown(format!("{} cannot be looked at: {error}", path.display()))
}

/// The number of the mount that an open file was found by.
fn mount_id(file: i32) -> Option<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{file}")).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    id.trim().parse().ok()
}

/// Those that one host has for itself, by their magic numbers (statfs(2)). Others may be shared, or stand upon one that is.
fn local(magic: u64) -> Option<&'static str> {
    LOCAL
        .iter()
        .find_map(|(of, name)| (*of == magic).then_some(*name))
}

/// Magic numbers and names of file systems that one host has for itself.
const LOCAL: [(u64, &str); 6] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlay"),
];

/// Those that several hosts have at once on one block device.
const CLUSTERED: [&str; 4] = ["ocfs2", "gfs2", "gpfs", "vxfs"];

/// Whether a file system of this name is one that a host has for itself, whatever it is on.
pub fn is_local(name: &str) -> bool {
    LOCAL.iter().any(|(_, local)| *local == name)
}

/// Whether one host alone has this: what else is on a block device is (F2FS, JFS, NTFS), whatever it is called.
fn is_of_one_host(name: &str, has_device: bool) -> bool {
    is_local(name) || (has_device && !CLUSTERED.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// By way of links and mounts.
    fn look(path: &Path) -> Found {
        let mounts = Arc::new(Mounts::now());
        found(
            &mut Sight::new(Arc::clone(&mounts)),
            &mounts,
            path.to_owned(),
        )
    }

    fn found(sight: &mut Sight, mounts: &Mounts, path: PathBuf) -> Found {
        let mut way = Way::to(path);
        loop {
            let mount = way.mount(mounts);
            if let Some(found) = sight.at_end_of(&mut way, &mount) {
                return found;
            }
        }
    }

    fn seen(path: &Path) -> FileSeen {
        match look(path) {
            Found::File { seen, .. } => seen,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_known_again_by_its_number_and_file_system_whatever_links_lead_to_it() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = folder.path().join("web.img");
        fs::write(&file, "contents").unwrap();
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        let first = seen(&file);
        assert_eq!(first.file_system, "tmpfs");
        assert_eq!(first.inode, Some(fs::metadata(&file).unwrap().ino()));
        assert_eq!(first.server, None);
        assert_eq!(seen(&link), first);
        assert_eq!(look(&folder.path().join("gone")), Found::Nothing);
        assert_eq!(look(&file.join("below")), Found::Nothing);
        symlink("loop", folder.path().join("loop")).unwrap();
        let Found::NotKnown(why) = look(&folder.path().join("loop")) else {
            panic!("a link to itself");
        };
        assert!(why.contains("loop cannot be looked at"), "{why}");
    }

    #[test]
    fn a_file_system_is_asked_for_itself_once_and_one_that_is_in_no_list_yet_is_found() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut sight = Sight::new(Arc::new(Mounts::listed(String::new())));
        for name in ["a.img", "b.img"] {
            let file = folder.path().join(name);
            fs::write(&file, "contents").unwrap();
            assert!(matches!(
                sight.look(&file, &BTreeSet::new()),
                Found::File { .. }
            ));
        }
        let [system] = &Vec::from_iter(sight.systems.into_values())[..] else {
            panic!("they are on one mount");
        };
        assert!(system.mount.is_some(), "it was listed meanwhile");
    }

    #[test]
    fn what_is_said_of_a_folder_holds_of_files_that_are_in_it_and_not_of_those_to_which_a_link_there_leads()
     {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (shared, own) = (root.join("shared"), root.join("own"));
        for place in [&shared, &own] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("web.img"), "contents").unwrap();
        }
        symlink(own.join("web.img"), shared.join("link.img")).unwrap();
        let mounts = Arc::new(Mounts::now());
        let by_word = |path: PathBuf| {
            let mut sight = Sight::new(Arc::clone(&mounts));
            sight.told = OnceCell::from(vec![shared.clone()]);
            match found(&mut sight, &mounts, path) {
                Found::File {
                    is_shared_by_word, ..
                } => is_shared_by_word,
                other => panic!("{other:?}"),
            }
        };
        assert!(by_word(shared.join("web.img")));
        assert!(!by_word(shared.join("link.img")));
        assert!(!by_word(shared.join("../own/web.img")));
        assert!(by_word(own.join("../shared/web.img")));
    }

    #[test]
    fn what_is_on_a_block_device_is_one_hosts_but_for_what_clusters_have_there() {
        for (name, has_device, is_ones) in [
            ("f2fs", true, true),
            ("fuseblk", true, true),
            ("btrfs", false, true),
            ("ocfs2", true, false),
            ("gfs2", true, false),
            ("nfs4", false, false),
            ("fuse.sshfs", false, false),
        ] {
            assert_eq!(is_of_one_host(name, has_device), is_ones, "{name}");
        }
    }

    #[test]
    fn what_is_no_file_is_told_from_one() {
        assert_eq!(look(Path::new("/")), Found::Other("a folder"));
        assert_eq!(look(Path::new("/dev/null")), Found::Other("no file"));
        let of_a_process = Found::Other("no file, but what one process has open");
        assert_eq!(look(Path::new("/dev/fd/0")), of_a_process);
        assert_eq!(look(Path::new("/proc/self/exe")), of_a_process);
    }

    #[test]
    fn of_what_root_may_not_look_at_the_file_system_is_told_and_not_the_number() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut sight = Sight::new(Arc::new(Mounts::now()));
        let Found::File { seen, .. } =
            sight.forbidden(&folder.path().join("a/web.img"), &BTreeSet::new())
        else {
            panic!("there is a folder above");
        };
        assert_eq!((seen.file_system.as_str(), seen.inode), ("tmpfs", None));
    }
}
