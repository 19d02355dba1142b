//! The emulator of a domain: QEMU, with the lab's monitor beside libvirt's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use drover_types::VmName;

use crate::command::quoted;
use crate::guest::definition::monitor_options;

/// Writes a program to `folder` that starts this QEMU, and its path. `here` is where each host sees its own folder of
/// sockets.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(folder: &Path, qemu: &Path, guest: &VmName, here: &Path) -> Result<PathBuf> {
    let file = folder.join(format!("{guest}.qemu"));
    let context = || format!("cannot write {}", file.display());
    fs::write(&file, script(qemu, guest, here)?).with_context(context)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).with_context(context)?;
    Ok(file)
}

/// libvirt starts an emulator also to see what it can do; then it has another name.
fn script(qemu: &Path, guest: &VmName, here: &Path) -> Result<String> {
    let options = monitor_options(guest, here)?.map(|option| quoted(&option));
    Ok(format!(
        "#!/bin/sh\ncase \" $* \" in\n*' guest={guest},'*) set -- \"$@\" {} ;;\nesac\nexec {} \"$@\"\n",
        options.join(" "),
        quoted(&qemu.display().to_string())
    ))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_guests_qemu_has_the_labs_monitor_and_one_that_is_only_asked_has_not() {
        let folder = std::env::temp_dir().join(format!("drover-emulator-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (guest, here) = ("web".parse().unwrap(), Path::new("/run/it's here"));
        let file = write(&folder, Path::new("/bin/echo"), &guest, here).unwrap();
        let said = |words: &[&str]| {
            let said = Command::new("sh").arg(&file).args(words).output().unwrap();
            String::from_utf8(said.stdout).unwrap()
        };
        let started = said(&["-name", "guest=web,debug-threads=on", "-S"]);
        assert_eq!(
            started,
            "-name guest=web,debug-threads=on -S -chardev \
             socket,id=watch,path=/run/it's here/web.monitor,server=on,wait=off -mon chardev=watch,mode=control\n"
        );
        assert_eq!(said(&["-machine", "none"]), "-machine none\n");
        assert_eq!(
            said(&["-name", "guest=web2,x"]),
            "-name guest=web2,x\n",
            "another one's"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
