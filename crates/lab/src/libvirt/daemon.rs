//! A host's own libvirtd, and what is asked of it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::Child;

use super::{HOST, Libvirt};
use crate::command::log_end;
use crate::host::Host;
use crate::limits;

/// The names of two logs: of what made the host's mounts, and of its libvirtd.
const LOGS: [&str; 2] = ["mounts", "libvirtd"];

/// The file with the process that holds a host's mounts.
const HOLDER: &str = "holder";

/// What a host has of its own beside its network: processes, too, as agents look among them for those of domains.
const ENTER: [&str; 8] = [
    "--mount",
    "--uts",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
    "bash",
    "-c",
];

/// Where a host with a libvirt has other files than this machine, to be read only; `host.sh` makes them.
const COVERED: [&str; 3] = ["/etc", "/usr", "/var"];

/// Gives a host mounts and processes of its own, among which everything is started from now on, and a libvirtd there;
/// waits until that answers. `lab` is the lab's folder, which is seen there too.
///
/// # Errors
/// The lab's folder is where the host has files of its own; one of both ends, or is not ready in time; with the end of its log.
pub(crate) async fn start(host: &Host, libvirt: &Libvirt, lab: &Path) -> Result<()> {
    check(lab)?;
    // What QEMU can do is the same on all hosts.
    let known = lab.join("qemu-known");
    for folder in [&host.libvirt(), &known] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let own = libvirt.folder().map(OsString::from).unwrap_or_default();
    let mut arguments: Vec<_> = ENTER.map(OsString::from).into();
    arguments.extend([HOST, "host"].map(OsString::from));
    arguments.extend([own, host.libvirt().into(), known.into(), lab.into()]);
    let mut mounts = host.start(LOGS[0], Path::new("unshare"), &arguments)?;
    let ready = host.libvirt().join("ready");
    wait(host, LOGS[0], &mut mounts, || ready.exists()).await?;
    note_holder(host, mounts.id())?;
    let none: [&str; 0] = [];
    let mut libvirtd = host.start(LOGS[1], Path::new("libvirtd"), &none)?;
    let socket = socket(host);
    let answers = || UnixStream::connect(&socket).is_ok();
    wait(host, LOGS[1], &mut libvirtd, answers).await
}

/// Whether hosts with a libvirt see the lab's folder.
fn check(lab: &Path) -> Result<()> {
    let Some(covered) = COVERED.iter().find(|folder| lab.starts_with(folder)) else {
        return Ok(());
    };
    bail!(
        "the lab's folder {} is below {covered}, where hosts with a libvirt have files of their own that nobody writes to: \
         have DROVER_LAB_RUN name one elsewhere, such as below /run",
        lab.display()
    )
}

/// Writes down which process is the host's first, as numbered here: the only child of the one that made its namespaces.
fn note_holder(host: &Host, parent: Option<u32>) -> Result<()> {
    let parent = parent.with_context(|| format!("the mounts of host {} ended", host.name))?;
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(&children).with_context(|| format!("no {children}"))?;
    let file = host.libvirt().join(HOLDER);
    fs::write(&file, children.trim()).with_context(|| format!("cannot write {}", file.display()))
}

async fn wait(
    host: &Host,
    what: &str,
    child: &mut Child,
    mut is_ready: impl FnMut() -> bool,
) -> Result<()> {
    let deadline = Instant::now() + limits::LIBVIRT_START;
    while !is_ready() {
        let (name, log) = (&host.name, host.log(what));
        if let Some(status) = child.try_wait().context("cannot watch a process")? {
            bail!("{what} of host {name} ended ({status}): {}", log_end(&log));
        }
        if Instant::now() > deadline {
            bail!(
                "{what} of host {name} is not ready within {} s: {}",
                limits::LIBVIRT_START.as_secs(),
                log_end(&log)
            );
        }
        tokio::time::sleep(limits::POLL).await;
    }
    Ok(())
}

/// The first process of a host with a libvirt, as numbered here: it holds the host's mounts and numbers of processes.
pub(crate) fn holder(host: &Host) -> Option<u32> {
    let told = fs::read_to_string(host.libvirt().join(HOLDER)).ok()?;
    told.trim().parse().ok()
}

/// The socket of a host's libvirtd, as anybody on this machine sees it.
fn socket(host: &Host) -> PathBuf {
    host.libvirt().join("run/libvirt-sock")
}

/// The URI of a host's libvirtd, for anybody on this machine.
pub(crate) fn uri(host: &Host) -> String {
    format!("qemu+unix:///system?socket={}", socket(host).display())
}

/// Runs `virsh` on a host, and gives what it prints.
///
/// # Errors
/// Its words, or it does not end in time.
pub(crate) async fn virsh(host: &Host, arguments: &[&str], within: Duration) -> Result<String> {
    let done = host
        .run("virsh", &[&["--quiet"], arguments].concat(), within)
        .await;
    done.with_context(|| format!("libvirt of host {}", host.name))
}

/// The version of a host's libvirt, as it says.
///
/// # Errors
/// As [`virsh`].
pub(crate) async fn version(host: &Host) -> Result<String> {
    let told = virsh(host, &["--version"], limits::LIBVIRT).await?;
    Ok(told.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_that_its_hosts_would_not_see_is_refused_with_where_it_may_be() {
        for seen in ["/run/drover-lab", "/tmp/lab", "/variety/lab"] {
            check(Path::new(seen)).unwrap();
        }
        let told = check(Path::new("/var/tmp/lab")).unwrap_err().to_string();
        let words = "folder /var/tmp/lab is below /var, where";
        assert!(
            told.contains(words) && told.contains("DROVER_LAB_RUN"),
            "{told}"
        );
    }
}
