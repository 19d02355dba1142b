//! Where the memory and disks of domains pass from libvirt's QEMU to a relay.
//!
//! The socket has the same name on both hosts, as the source's QEMU connects to the name by which the destination's listens. Where
//! AppArmor confines QEMU, its profile has no other sockets than those that libvirt itself would tunnel a migration through: below
//! `/run/libvirt`, with a name that ends with the domain's.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use drover_types::MigrationId;

/// What is libvirt's own there.
const LIBVIRT: &str = "/run/libvirt";

/// The folder of such sockets below it.
const FOLDER: &str = "drover";

/// What stands before a domain's name (`virt-aa-helper.c`).
const BEFORE_NAME: &str = ".tunnelmigrate.dest.";

/// Of a migration's id, the end: which is random, and distinguishes the sockets that a domain of one name leaves.
const ID_DIGITS: usize = 12;

/// The longest path of a socket: `sun_path` without its end (unix(7)).
const PATH_BYTES: usize = 107;

/// The longest name of a domain that a socket's name can end with.
pub const NAME_BYTES: usize =
    PATH_BYTES - LIBVIRT.len() - FOLDER.len() - BEFORE_NAME.len() - ID_DIGITS - 2;

/// Where libvirtd keeps what it shares with its QEMUs: they are of this folder's group.
const OF_QEMU: &str = "/var/lib/libvirt/qemu";

/// Whoever QEMU runs as makes its socket there and removes it, and takes away nothing that is another's. Everybody else may connect to
/// what is given to them, and sees nothing.
const MODE: u32 = 0o1731;

/// The same where it is not known as which group QEMU runs.
const MODE_WITHOUT_GROUP: u32 = 0o1733;

/// The socket for the memory of this migration's domain.
pub fn memory_socket(migration: MigrationId, called: &str) -> PathBuf {
    socket(&migration.0.simple().to_string(), called)
}

/// The same for its disks: as long, and with a digit that no id has.
pub fn disks_socket(migration: MigrationId, called: &str) -> PathBuf {
    let mut id = migration.0.simple().to_string();
    id.pop();
    id.push('n');
    socket(&id, called)
}

fn socket(id: &str, called: &str) -> PathBuf {
    let folder = Path::new(LIBVIRT).join(FOLDER);
    folder.join(match is_named(called) {
        true => format!("{}{BEFORE_NAME}{called}", &id[id.len() - ID_DIGITS..]),
        false => id.to_owned(),
    })
}

/// Whether the socket's name ends with the domain's, which may be any text.
pub fn is_named(called: &str) -> bool {
    let fits = !called.is_empty() && called.len() <= NAME_BYTES;
    fits && !called.contains(|c: char| c == '/' || c.is_control())
}

/// Makes the folder for such sockets, where it is not there.
///
/// # Errors
/// It cannot be made, or there is something else, or something of somebody else's.
pub fn make_folder() -> io::Result<()> {
    let group = fs::metadata(OF_QEMU).ok().map(|found| found.gid());
    make(Path::new(LIBVIRT), group)
}

fn make(above: &Path, group: Option<u32>) -> io::Result<()> {
    // As libvirtd itself makes it.
    fs::create_dir_all(above)?;
    let folder = &above.join(FOLDER);
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
    let mode = match group {
        Some(group) => {
            std::os::unix::fs::chown(folder, None, Some(group))?;
            MODE
        }
        None => MODE_WITHOUT_GROUP,
    };
    // What was asked for when it was made has been cut by the mask of this process.
    fs::set_permissions(folder, Permissions::from_mode(mode))
}

/// Gives a socket of ours there to the user that a process runs as, who alone may connect to it then.
///
/// # Errors
/// There is no such process or socket, it is somebody else's, or this process may not.
pub fn give_to_user_of(socket: &Path, pid: u32) -> io::Result<()> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let told = effective(&status, "Uid:").zip(effective(&status, "Gid:"));
    let (user, group) =
        told.ok_or_else(|| io::Error::other("the kernel does not tell its user"))?;
    let found = fs::symlink_metadata(socket)?;
    let ours = rustix::process::geteuid().as_raw();
    if !found.file_type().is_socket() || found.uid() != ours {
        let what = format!("{} is no socket of user {ours}", socket.display());
        return Err(io::Error::other(what));
    }
    std::os::unix::fs::lchown(socket, Some(user), Some(group))
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
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use uuid::Uuid;

    const ID: MigrationId = MigrationId(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));

    #[test]
    fn the_socket_of_a_domain_has_a_name_that_its_profile_allows() {
        let socket = |called: &str| memory_socket(ID, called).display().to_string();
        assert_eq!(
            socket("Käfer 1"),
            "/run/libvirt/drover/456789abcdef.tunnelmigrate.dest.Käfer 1"
        );
        assert_eq!(
            disks_socket(ID, "Käfer 1").display().to_string(),
            "/run/libvirt/drover/456789abcden.tunnelmigrate.dest.Käfer 1"
        );
        let longest = "x".repeat(NAME_BYTES);
        assert_eq!(socket(&longest).len(), PATH_BYTES);
        // Others move where nothing confines their QEMU.
        let by_id = "/run/libvirt/drover/0123456789abcdef0123456789abcdef";
        for other in [&format!("{longest}x"), "", "../../../etc/shadow", "a\nb"] {
            assert_eq!(socket(other), by_id, "{other:?}");
        }
    }

    #[test]
    fn qemus_group_may_make_a_socket_there_and_nobody_sees_the_others() {
        let above = tempfile::tempdir().unwrap();
        let group = rustix::process::getegid().as_raw();
        for (group, mode) in [
            (Some(group), MODE),
            (Some(group), MODE),
            (None, MODE_WITHOUT_GROUP),
        ] {
            make(above.path(), group).unwrap();
            let made = fs::metadata(above.path().join(FOLDER)).unwrap();
            assert_eq!(made.permissions().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn whom_a_process_runs_as_is_read_from_its_status() {
        let status = "Name:\tqemu\nUid:\t0\t64055\t64055\t64055\nGid:\t0\t108\t108\t108\n";
        assert_eq!(effective(status, "Uid:"), Some(64055));
        assert_eq!(effective(status, "Gid:"), Some(108));
        assert_eq!(effective("Name:\tqemu\n", "Uid:"), None);
    }

    #[test]
    fn a_socket_of_ours_is_given_to_the_user_of_a_process_and_nothing_else_is() {
        let above = tempfile::tempdir().unwrap();
        let at = |name: &str| above.path().join(name);
        let (socket, link, file) = (at("socket"), at("link"), at("file"));
        let _listens = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        fs::write(&file, b"").unwrap();
        for wrong in [&link, &file] {
            let refused = give_to_user_of(wrong, std::process::id()).unwrap_err();
            assert!(refused.to_string().contains("is no socket of user"));
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped, because not root: a socket is given to another user");
            return;
        }
        let mut other = Command::new("setpriv");
        other.args([
            "--reuid=64055",
            "--regid=64055",
            "--clear-groups",
            "sleep",
            "60",
        ]);
        let mut other = other.spawn().unwrap();
        // It is root until it has become the other one.
        let is_other = || {
            let status = fs::read_to_string(format!("/proc/{}/status", other.id()));
            status.is_ok_and(|status| effective(&status, "Uid:") == Some(64055))
        };
        while !is_other() {
            std::thread::yield_now();
        }
        let given = give_to_user_of(&socket, other.id());
        other.kill().unwrap();
        other.wait().unwrap();
        given.unwrap();
        let owner = fs::symlink_metadata(&socket).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (64055, 64055));
    }

    #[test]
    fn what_somebody_put_in_its_place_is_not_used() {
        for wrong in ["link", "file"] {
            let above = tempfile::tempdir().unwrap();
            let folder = above.path().join(FOLDER);
            match wrong {
                "link" => std::os::unix::fs::symlink("/tmp", &folder).unwrap(),
                _ => fs::write(&folder, b"").unwrap(),
            }
            let refused = make(above.path(), None).unwrap_err().to_string();
            assert!(refused.contains("is no folder of user"), "{refused}");
        }
    }
}
