//! Whether a hypervisor has that very file open which a path leads to: the storage that it began with may be another by now, which is
//! mounted there no more, or was replaced.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whether a process has it open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holds {
    /// It has.
    It,
    /// It has other files open, and not this one.
    Others,
    /// It cannot be told.
    NotKnown(String),
}

/// What a path leads to.
#[derive(Debug, Clone, Copy)]
pub struct Led<'a> {
    /// As the kernel knows it: without links.
    pub real: &'a Path,
    /// Device and inode; none where root may not look.
    pub number: Option<(u64, u64)>,
}

/// What processes have open, each of which is asked once. None of it waits for a file system, but for that of a file that seems to be the
/// one that is looked for.
#[derive(Debug, Default)]
pub struct Open(BTreeMap<u32, Result<Vec<File>, String>>);

/// One that is open.
#[derive(Debug)]
struct File {
    /// By which it can be looked at, wherever it is mounted.
    link: PathBuf,
    /// Its path there, where it has one.
    path: PathBuf,
    /// Its inode; none before Linux 5.14.
    inode: Option<u64>,
}

impl Open {
    /// Whether that process has this open.
    pub fn holds(&mut self, pid: u32, led: Led<'_>) -> Holds {
        let open = self.0.entry(pid).or_insert_with(|| {
            let open = open(pid);
            open.map_err(|error| format!("what process {pid} has open is not told: {error}"))
        });
        match open {
            Ok(open) if open.iter().any(|file| file.is(led)) => Holds::It,
            Ok(_) => Holds::Others,
            Err(why) => Holds::NotKnown(why.clone()),
        }
    }
}

impl File {
    fn is(&self, led: Led<'_>) -> bool {
        let is_path = self.path == led.real;
        // Where root may not look by the path, all that there is to compare is what the kernel calls it.
        let Some((device, inode)) = led.number else {
            return is_path;
        };
        if !is_path && self.inode.is_some_and(|own| own != inode) {
            return false;
        }
        let found = fs::metadata(&self.link);
        found.is_ok_and(|found| (found.dev(), found.ino()) == (device, inode))
    }
}

/// A process of this host that has it open.
///
/// # Errors
/// This host's processes are not told.
pub fn holder(path: &Path, found: &Metadata) -> io::Result<Option<u32>> {
    let led = Led {
        real: path,
        number: Some((found.dev(), found.ino())),
    };
    let processes = fs::read_dir("/proc")?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut open = Open::default();
    let mut unknown = None;
    for pid in pids {
        match open.holds(pid, led) {
            Holds::It => return Ok(Some(pid)),
            Holds::Others => {}
            // One that has ended meanwhile holds nothing.
            Holds::NotKnown(why) if Path::new(&format!("/proc/{pid}")).exists() => {
                unknown = Some(why)
            }
            Holds::NotKnown(_) => {}
        }
    }
    unknown.map_or(Ok(None), |why| Err(io::Error::other(why)))
}

/// What a process has open by a path.
fn open(pid: u32) -> io::Result<Vec<File>> {
    let mut open = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let link = entry?.path();
        // What was closed since is not open. One that root may not look at, as it may happen in a container, cannot keep all files for ever.
        let Ok(path) = fs::read_link(&link) else {
            continue;
        };
        if path.is_absolute() {
            let number = link.file_name().unwrap_or_default().to_string_lossy();
            let inode = inode(&format!("/proc/{pid}/fdinfo/{number}"));
            open.push(File { link, path, inode });
        }
    }
    Ok(open)
}

/// As the kernel tells it without asking the file system (proc_pid_fdinfo(5)).
fn inode(info: &str) -> Option<u64> {
    let info = fs::read_to_string(info).ok()?;
    let inode = info.lines().find_map(|line| line.strip_prefix("ino:"))?;
    inode.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::stat;

    fn led(path: &Path) -> Led<'_> {
        let found = stat(path).unwrap();
        Led {
            real: path,
            number: Some((found.st_dev, found.st_ino)),
        }
    }

    fn holds(led: Led<'_>) -> Holds {
        Open::default().holds(std::process::id(), led)
    }

    #[test]
    fn a_file_that_took_the_name_of_the_open_one_is_another() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["web.img", "restored.img"] {
            fs::write(at(name), "contents").unwrap();
        }
        let opened = fs::File::open(at("web.img")).unwrap();
        assert_eq!(holds(led(&at("web.img"))), Holds::It);
        assert_eq!(holds(led(&at("restored.img"))), Holds::Others);
        // By another name it is the same one.
        fs::hard_link(at("web.img"), at("link.img")).unwrap();
        assert_eq!(holds(led(&at("link.img"))), Holds::It);
        fs::rename(at("restored.img"), at("web.img")).unwrap();
        assert_eq!(holds(led(&at("web.img"))), Holds::Others);
        assert_eq!(holds(led(&at("link.img"))), Holds::It);
        drop(opened);
        assert_eq!(holds(led(&at("link.img"))), Holds::Others);
    }

    #[test]
    fn where_root_may_not_look_the_kernels_name_of_what_is_open_has_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().canonicalize().unwrap().join("web.img");
        fs::write(&file, "contents").unwrap();
        let unseen = Led {
            real: &file,
            number: None,
        };
        assert_eq!(holds(unseen), Holds::Others);
        let _opened = fs::File::open(&file).unwrap();
        assert_eq!(holds(unseen), Holds::It);
    }

    #[test]
    fn of_a_process_that_is_gone_nothing_is_known() {
        let led = Led {
            real: Path::new("/web.img"),
            number: None,
        };
        let Holds::NotKnown(why) = Open::default().holds(u32::MAX, led) else {
            panic!("there is no such process");
        };
        assert!(why.starts_with("what process 4294967295 has open"), "{why}");
    }
}
