use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use drover_types::MigrationId;

/// Where the sockets for domains' memory are, the same on every host: the destination's QEMU makes one by the name by which the
/// source's connects.
const MEMORY: &str = "/run/drover-libvirt";

/// Whoever QEMU runs as makes its socket there, and removes it; nobody sees what is there, nor takes away what is another's.
const MODE: u32 = 0o1733;

/// The socket for the memory of this migration's domain.
pub fn memory_socket(migration: MigrationId) -> PathBuf {
    Path::new(MEMORY).join(migration.to_string())
}

/// Makes the folder for such sockets, where it is not there.
///
/// # Errors
/// It cannot be made, or there is something else, or something of somebody else's.
pub fn make_folder() -> io::Result<()> {
    make(Path::new(MEMORY))
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(MODE).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let found = fs::symlink_metadata(folder)?;
    let ours = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != ours {
        let what = format!("{} is no folder of user {ours}", folder.display());
        return Err(io::Error::other(what));
    }
    // What was asked for when it was made has been cut by the mask of this process.
    fs::set_permissions(folder, Permissions::from_mode(MODE))
}

/// Gives a socket there to the user that a process runs as, who alone may connect to it then.
///
/// # Errors
/// There is no such process or socket, or this process may not.
pub fn give_to_user_of(socket: &Path, pid: u32) -> io::Result<()> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let told = effective(&status, "Uid:").zip(effective(&status, "Gid:"));
    let (user, group) =
        told.ok_or_else(|| io::Error::other("the kernel does not tell its user"))?;
    std::os::unix::fs::chown(socket, Some(user), Some(group))
}

/// The second of four numbers (proc_pid_status(5)). Who owns `/proc/PID` is root where the process may not be traced.
fn effective(status: &str, which: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(which))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Removes a socket there. That there is none is as good.
pub fn remove(socket: &Path) {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(socket = %socket.display(), %error, "not removed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_may_make_a_socket_there_and_nobody_sees_the_others() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("sockets");
        for _ in 0..2 {
            make(&folder).unwrap();
            let mode = fs::metadata(&folder).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, MODE);
        }
    }

    #[test]
    fn whom_a_process_runs_as_is_read_from_its_status() {
        let status = "Name:\tqemu\nUid:\t0\t64055\t64055\t64055\nGid:\t0\t108\t108\t108\n";
        assert_eq!(effective(status, "Uid:"), Some(64055));
        assert_eq!(effective(status, "Gid:"), Some(108));
        assert_eq!(effective("Name:\tqemu\n", "Uid:"), None);
        let socket = tempfile::NamedTempFile::new().unwrap();
        give_to_user_of(socket.path(), std::process::id()).unwrap();
    }

    #[test]
    fn what_somebody_put_in_its_place_is_not_used() {
        let above = tempfile::tempdir().unwrap();
        let (link, file) = (above.path().join("link"), above.path().join("file"));
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        fs::write(&file, b"").unwrap();
        for wrong in [link, file] {
            let refused = make(&wrong).unwrap_err().to_string();
            assert!(refused.contains("is no folder of user"), "{refused}");
        }
    }
}
