//! Which disks of a guest are its host's alone.

use std::path::PathBuf;

use drover_api::{NewDisk, Refusal};
use drover_hypervisor::{Drive, Machine};
use drover_types::{VmName, with_sources};

use super::not_copied;
use crate::agent::Context;
use crate::disks::{Bitmaps, described, few_enough};
use crate::libvirt::{Hang, Whose, whose};

/// One that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// As it goes to another host.
    pub new: NewDisk,
    /// By what QEMU here knows it.
    pub node: String,
}

/// Those that the guest may write to, in files that no other host has; what is to be told of the others.
///
/// # Errors
/// One cannot be copied, or it is not known whose it is.
pub async fn local(
    context: &Context,
    vm: &VmName,
    machine: &dyn Machine,
) -> Result<(Vec<Local>, Vec<String>), Refusal> {
    let drives = machine.drives().await;
    let drives = drives.map_err(|error| not_copied(vm, &[with_sources(&error)]))?;
    let pid = machine.process().pid;
    let (mut files, mut why_not) = (Vec::new(), Vec::new());
    for drive in drives.into_iter().filter(|drive| !drive.read_only) {
        match file(&drive) {
            Ok(Some(path)) => files.push((drive, path)),
            Ok(None) => {}
            Err(why) => why_not.push(why),
        }
    }
    let paths = files.iter().map(|(_, path)| path.clone());
    let looked = context.libvirt.looked(paths, pid).await;
    let (mut locals, mut notes) = (Vec::new(), Vec::new());
    for (drive, path) in files {
        let name = &drive.name;
        // All of them were looked at.
        let found = looked.get(&path).cloned().unwrap_or(Err(Hang::Before));
        match whose(name, &path, Some(pid), found) {
            Err(why) => why_not.push(why),
            Ok(Whose::Shared(seen)) => notes.push(format!(
                "its disk {name} is not copied, as it is in a file on {}, which hosts may share",
                seen.file_system
            )),
            Ok(Whose::Local { .. }) => {
                match described(name, &path, format(&drive), Bitmaps::Lost).await {
                    Ok(new) => locals.push(Local {
                        new,
                        node: drive.node,
                    }),
                    Err(why) => {
                        why_not.push(format!("its disk {name} ({}) {why}", path.display()));
                    }
                }
            }
        }
    }
    why_not.extend(few_enough(locals.len()).err());
    if !why_not.is_empty() {
        return Err(not_copied(vm, &why_not));
    }
    if locals.is_empty() {
        notes.push("it has no disks that are this host's alone: none is copied".to_owned());
    }
    Ok((locals, notes))
}

/// The files that the guest may write to.
pub fn written_to(drives: &[Drive]) -> impl Iterator<Item = PathBuf> {
    let drives = drives.iter().filter(|drive| !drive.read_only);
    drives.filter_map(|drive| file(drive).ok().flatten())
}

/// The file that a drive is in; none where it is elsewhere.
///
/// # Errors
/// It is in none that could be copied.
fn file(drive: &Drive) -> Result<Option<PathBuf>, String> {
    let (name, file) = (&drive.name, &drive.file);
    if file.starts_with("json:") {
        return Err(format!(
            "its disk {name} is described in more than a file's name: {file}"
        ));
    }
    // What begins with a protocol is at a server (QEMU's `path_has_protocol`).
    let first = file.split('/').next();
    let is_at_a_server = first.is_some_and(|first| first.contains(':'));
    Ok((!is_at_a_server).then(|| drive.path()))
}

/// As `qemu-img` calls it.
fn format(drive: &Drive) -> &str {
    match drive.format.as_str() {
        "file" => "raw",
        format => format,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_in_a_file_of_its_host_or_at_a_server_or_not_understood() {
        let of = |at: &str| {
            file(&Drive {
                name: "virtio0".to_owned(),
                node: "#block1".to_owned(),
                format: "raw".to_owned(),
                file: at.to_owned(),
                read_only: false,
            })
        };
        let path = |path: &str| Ok(Some(PathBuf::from(path)));
        assert_eq!(of("/images/a:b.img"), path("/images/a:b.img"));
        assert_eq!(of("images/web.img"), path("/images/web.img"));
        assert_eq!(of("nbd://nas/web"), Ok(None));
        assert_eq!(of("rbd:pool/web"), Ok(None));
        assert!(
            of("json:{\"driver\":\"raw\"}")
                .unwrap_err()
                .contains("virtio0")
        );
    }
}
