//! What guests boot from: a kernel, an initramfs with busybox, the probe, a corpus and what their
//! contents need, and a disk with files for their page cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::{contents, corpus, kernel};
use crate::command;
use crate::settings::GuestSettings;

/// The guest's first program: it mounts what the probe needs and becomes the probe.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox stty -F /dev/ttyS0 raw -echo
exec /probe </dev/ttyS0 >/dev/ttyS0 2>&1
";

/// Folders that something is mounted on, or made in.
const FOLDERS: [&str; 3] = ["dev", "proc", "sys"];

/// Archives begin and end at a multiple of this.
const ALIGNED: u64 = 4;

/// The probe's file name.
const PROBE: &str = "drover-probe";

/// Files that QEMU boots a guest from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Image {
    /// Makes in `folder` what these guests boot from, and downloads the kernel if it is not in the
    /// cache.
    ///
    /// # Errors
    /// A part that is missing, with what to do.
    pub async fn build(folder: &Path, guests: &[GuestSettings]) -> Result<Self> {
        let kernel = kernel::find_or_fetch().await?;
        let initramfs = folder.join("initramfs");
        let archive = pack(&kernel, guests).await?;
        fs::write(&initramfs, archive)
            .with_context(|| format!("cannot write {}", initramfs.display()))?;
        let image = Self {
            kernel: kernel.image,
            initramfs,
            folder: folder.to_owned(),
        };
        for guest in guests {
            // Guests that have the same have one disk: nobody writes to it.
            if let Some(disk) = image.disk(guest).filter(|disk| !disk.exists()) {
                let guest = guest.clone();
                // To compress so much takes long, and an interrupt is to be heard meanwhile.
                let written = move || contents::write_disk(&disk, &guest);
                tokio::task::spawn_blocking(written).await??;
            }
        }
        Ok(image)
    }

    /// The disk of such a guest, if it has one.
    #[must_use]
    pub fn disk(&self, guest: &GuestSettings) -> Option<PathBuf> {
        contents::disk_path(&self.folder, guest)
    }
}

async fn pack(kernel: &Kernel, guests: &[GuestSettings]) -> Result<Vec<u8>> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let busybox = command::find("busybox")
        .context("busybox is missing; install with: apt-get install busybox-static")?;
    let probe = find_probe()?;
    let mut archive = Archive::new(Vec::new());
    for folder in FOLDERS {
        archive.directory(folder)?;
    }
    archive.device("dev/console", 0o600, [5, 1])?;
    archive.file("init", 0o755, INIT.as_bytes())?;
    archive.file(
        "bin/busybox",
        0o755,
        &static_program(&busybox, "busybox-static")?,
    )?;
    archive.file(
        "probe",
        0o755,
        &static_program(&probe, "what `make build` makes")?,
    )?;
    for module in &kernel.modules {
        let name = module
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("module");
        archive.file(&format!("modules/{name}"), 0o644, &read(module)?)?;
    }
    archive.file("corpus", 0o644, &corpus::collect())?;
    add_contents(&mut archive, guests).await?;
    Ok(archive.finish(ALIGNED)?)
}

/// Programs that hold documents, and what these quote from.
async fn add_contents(archive: &mut Archive<Vec<u8>>, guests: &[GuestSettings]) -> Result<()> {
    let needed = contents::needed(guests);
    if needed.is_empty() {
        return Ok(());
    }
    archive.file("prose", 0o644, &contents::prose())?;
    for contents in needed {
        let program = contents::Program::find(contents)?;
        program.pack(contents, archive).await?;
    }
    Ok(())
}

/// The probe: `DROVER_PROBE`, or beside this program, or where it is installed or the build of a checkout leaves it.
///
/// # Errors
/// It is nowhere; how to build it.
pub fn find_probe() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("DROVER_PROBE") {
        let path = PathBuf::from(path);
        if path.is_file() {
            return Ok(path);
        }
        bail!("no file {} (from DROVER_PROBE)", path.display());
    }
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = program.ancestors().skip(1).take(3).flat_map(|folder| {
        let built = folder
            .join("probe/x86_64-unknown-linux-gnu/release")
            .join(PROBE);
        let installed = folder.join("lib/drover").join(PROBE);
        [folder.join(PROBE), installed, built]
    });
    let mut places = beside.filter(|path| is_static(path));
    places.next().with_context(|| {
        format!(
            "{PROBE}, the program inside the lab's guest, is not beside {}; `make build` makes \
             it, or set DROVER_PROBE to it",
            program.display()
        )
    })
}

fn is_static(path: &Path) -> bool {
    fs::read(path).is_ok_and(|program| needs_no_loader(&program))
}

/// The bytes of a program that needs no libraries.
///
/// # Errors
/// It does, or cannot be read; what to use instead.
pub(crate) fn static_program(path: &Path, instead: &str) -> Result<Vec<u8>> {
    let program = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !needs_no_loader(&program) {
        bail!(
            "{} is not a statically linked program for x86-64, so it cannot run in the guest; \
             use {instead}",
            path.display()
        );
    }
    Ok(program)
}

/// Whether this is an ELF64 program for x86-64 without an interpreter segment (elf(5)).
fn needs_no_loader(program: &[u8]) -> bool {
    const X86_64: u16 = 62;
    const INTERPRETER: u32 = 3;
    let number = |at: usize, bytes: usize| {
        let part = program.get(at..at.checked_add(bytes)?)?;
        Some(
            part.iter()
                .rev()
                .fold(0_u64, |value, byte| value << 8 | u64::from(*byte)),
        )
    };
    let read = || {
        let elf64 = program.starts_with(b"\x7fELF\x02");
        let right = elf64 && number(18, 2)? == u64::from(X86_64);
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let mut dynamic = false;
        for index in 0..count {
            let at = usize::try_from(table.checked_add(index * size)?).ok()?;
            dynamic |= number(at, 4)? == u64::from(INTERPRETER);
        }
        Some(right && !dynamic)
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_need_a_loader_are_told_apart() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!needs_no_loader(&own));
        assert!(!needs_no_loader(b"#!/bin/sh\n"));
        assert!(!needs_no_loader(&own[..60]));
        match command::find("busybox") {
            Some(path) if is_static(&path) => {}
            _ => println!(
                "skipped, because busybox-static is not installed: what it is was not tested"
            ),
        }
    }

    #[test]
    fn a_program_that_cannot_run_in_the_guest_is_refused_by_name() {
        let own = std::env::current_exe().unwrap();
        let refused = static_program(&own, "busybox-static")
            .unwrap_err()
            .to_string();
        assert!(refused.contains("not a statically linked"), "{refused}");
    }
}
