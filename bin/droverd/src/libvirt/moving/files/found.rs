//! What is at a path of this host: one look, which takes as long as the file system does.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use drover_api::FileSeen;
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, fstatvfs, open};
use rustix::io::Errno;

use super::mounts::{LIST, Mount};
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
        /// Somebody told libvirt of this host that hosts share it.
        is_shared_by_word: bool,
    },
    /// Nothing.
    Nothing,
    /// Something else.
    Other(&'static str),
    /// It cannot be told.
    NotKnown(String),
}

/// Looks at a path, by way of links and mounts.
pub fn look(path: &Path) -> Found {
    if OF_A_PROCESS.iter().any(|of| path.starts_with(of)) {
        return Found::Other("no file, but what one process has open");
    }
    match at(path) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => Found::Nothing,
        Err(Errno::ACCESS) => forbidden(path),
        Err(error) => Found::NotKnown(not_looked_at(path, &io::Error::from(error))),
    }
}

fn at(path: &Path) -> Result<Found, Errno> {
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
        None => of(&file, Some(stat.st_ino), path, Path::new("")),
    }
}

/// Neither read nor written, and not even permitted to be: looked at.
fn opened(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Where a server lets root of this host see no more than others (NFS's `root_squash`), QEMU's user may see more. What is told is what
/// holds of the last folder that root may look at.
fn forbidden(path: &Path) -> Found {
    let folder = path.ancestors().skip(1).find_map(|folder| {
        let file = opened(folder).ok()?;
        Some((folder, file))
    });
    let found = folder.map(|(folder, file)| {
        let beyond = path.strip_prefix(folder).unwrap_or(Path::new(""));
        of(&file, None, path, beyond)
    });
    match found {
        Some(Ok(found)) => found,
        Some(Err(error)) => Found::NotKnown(not_looked_at(path, &io::Error::from(error))),
        None => Found::NotKnown(not_looked_at(path, &io::Error::from(Errno::ACCESS))),
    }
}

fn not_looked_at(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be looked at: {error}", path.display())
}

/// Of an open file, or of a folder and what is beyond it.
fn of(file: &OwnedFd, inode: Option<u64>, path: &Path, beyond: &Path) -> Result<Found, Errno> {
    let statfs = fstatfs(file)?;
    let fsid = fstatvfs(file)?.f_fsid;
    let number = file.as_fd().as_raw_fd();
    // As the kernel knows it: without links.
    let real = fs::read_link(format!("/proc/self/fd/{number}"));
    let real = real.map_or_else(|_| path.to_owned(), |real| whole(&real, beyond));
    let mount = mount(number);
    let server = mount.as_ref();
    let server = server.and_then(|mount| mount.server(&real.to_string_lossy()));
    let named = mount.map(|mount| mount.file_system);
    let unnamed = || format!("file system {:#x}", statfs.f_type);
    let local = local(u64::try_from(statfs.f_type).unwrap_or_default());
    let told = word::folders(Path::new(word::QEMU_CONF));
    let is_in = |folder: &PathBuf| real.starts_with(folder) || path.starts_with(folder);
    Ok(Found::File {
        seen: FileSeen {
            file_system: local.map_or_else(|| named.unwrap_or_else(unnamed), str::to_owned),
            fsid: (fsid != 0).then(|| format!("{fsid:x}")),
            server,
            inode,
        },
        is_shared_by_word: told.iter().any(is_in),
    })
}

/// A path without a slash at its end.
fn whole(folder: &Path, beyond: &Path) -> PathBuf {
    folder.components().chain(beyond.components()).collect()
}

/// The mount that an open file was found by; none where the kernel does not list it.
fn mount(file: i32) -> Option<Mount> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{file}")).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    let list = fs::read(LIST).ok()?;
    Mount::find(&String::from_utf8_lossy(&list), id.trim().parse().ok()?)
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

/// Whether a file system of this name is one that a host has for itself.
pub fn is_local(name: &str) -> bool {
    LOCAL.iter().any(|(_, local)| *local == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

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
        let Found::File { seen, .. } = forbidden(&folder.path().join("a/web.img")) else {
            panic!("there is a folder above");
        };
        assert_eq!((seen.file_system.as_str(), seen.inode), ("tmpfs", None));
        assert_eq!(whole(Path::new("/a"), Path::new("")), Path::new("/a"));
        assert_eq!(
            whole(Path::new("/a"), Path::new("b/c")),
            Path::new("/a/b/c")
        );
    }
}
