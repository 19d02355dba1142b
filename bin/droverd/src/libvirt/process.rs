//! The process of a domain, by libvirt's own note of it.

use std::io::Read as _;
use std::path::Path;

use uuid::Uuid;

use crate::limits;

/// Where the system's libvirtd notes the process of each QEMU that it started, by the domain's name.
const NOTES: &str = "run/libvirt/qemu";

/// The process id of a domain's QEMU, below this root. None where libvirt has noted none, or another process has that number.
pub fn pid(root: &Path, name: &str, uuid: Uuid) -> Option<u32> {
    // It names a file.
    if name.contains('/') {
        return None;
    }
    let note = root.join(NOTES).join(format!("{name}.pid"));
    let note = read(&note, limits::PID_BYTES)?;
    let pid: u32 = std::str::from_utf8(&note).ok()?.trim().parse().ok()?;
    let command = root.join(format!("proc/{pid}/cmdline"));
    let command = read(&command, limits::COMMAND_BYTES)?;
    let wanted = uuid.to_string();
    let mut arguments = command.split(|byte| *byte == 0);
    arguments
        .any(|argument| argument == wanted.as_bytes())
        .then_some(pid)
}

fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_only_if_it_is_the_domains() {
        let root = tempfile::TempDir::new().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let uuid = Uuid::from_u128(7);
        let found = |name: &str| pid(root.path(), name, uuid);
        assert_eq!(found("Käfer 1"), None);
        write("run/libvirt/qemu/Käfer 1.pid", "4711\n");
        assert_eq!(found("Käfer 1"), None, "no such process");
        write("proc/4711/cmdline", &format!("qemu\0-uuid\0{uuid}\0-S\0"));
        assert_eq!(found("Käfer 1"), Some(4711));
        write("proc/4711/cmdline", "sleep\0infinity\0");
        assert_eq!(found("Käfer 1"), None, "another process");
        write("run/libvirt/qemu/web.pid", "no number");
        assert_eq!((found("web"), found("../web")), (None, None));
    }
}
