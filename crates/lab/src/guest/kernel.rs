//! The guest's kernel: Debian's own, downloaded once and unpacked beside the system, never
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::command::{run, run_within};
use crate::limits;

/// The package whose newest version names the kernel's.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// Where kernels are kept, unless `DROVER_LAB_CACHE` says otherwise.
const CACHE: &str = "/var/cache/drover-lab";

/// Modules of the kernel that the guest loads: the power button, the device that tells of it, and
/// the disk.
const MODULES: [&str; 3] = [
    "kernel/drivers/acpi/button.ko.xz",
    "kernel/drivers/input/evdev.ko.xz",
    "kernel/drivers/block/virtio_blk.ko.xz",
];

/// A kernel on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The image, as QEMU loads it.
    pub image: PathBuf,
    /// The modules it has of those that the guest likes to have.
    pub modules: Vec<PathBuf>,
}

/// Where kernels are kept, and what else is fetched for labs.
#[must_use]
pub fn cache() -> PathBuf {
    std::env::var_os("DROVER_LAB_CACHE").map_or_else(|| CACHE.into(), PathBuf::from)
}

/// Finds the kernel in the cache, or downloads it.
///
/// # Errors
/// It is not there and cannot be downloaded; what to do.
pub async fn find_or_fetch() -> Result<Kernel> {
    if let Some(image) = std::env::var_os("DROVER_LAB_KERNEL") {
        let image = PathBuf::from(image);
        if !image.is_file() {
            bail!("no file {} (from DROVER_LAB_KERNEL)", image.display());
        }
        return Ok(Kernel {
            image,
            modules: Vec::new(),
        });
    }
    let cache = cache();
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    if let Some(kernel) = newest_in(&cache) {
        return Ok(kernel);
    }
    fetch(&cache).await.context(
        "the lab's guest needs a Linux kernel: on Debian run `apt-get update` and try again, \
         elsewhere set DROVER_LAB_KERNEL to a kernel image with serial console and initramfs built in",
    )?;
    newest_in(&cache).with_context(|| format!("no kernel in {}", cache.display()))
}

fn newest_in(cache: &Path) -> Option<Kernel> {
    let folders = fs::read_dir(cache).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let release = path
            .file_name()?
            .to_str()?
            .strip_prefix("kernel-")?
            .to_owned();
        Some((version_key(&release), release, path))
    });
    let (_, release, path) = folders.max()?;
    let image = path.join("boot").join(format!("vmlinuz-{release}"));
    let modules = MODULES.map(|module| path.join("lib/modules").join(&release).join(module));
    image.is_file().then(|| Kernel {
        image,
        modules: modules.into_iter().filter(|m| m.is_file()).collect(),
    })
}

/// Downloads that this process has begun.
static FETCHES: AtomicU32 = AtomicU32::new(0);

/// Downloads into a folder of its own first: an interrupted download leaves no half kernel, and
/// two that run at once do no harm.
async fn fetch(cache: &Path) -> Result<()> {
    let known = run("apt-cache", &["show", META_PACKAGE]).await?;
    let mut failure = None;
    for package in kernel_packages(&known) {
        match fetch_package(cache, &package).await {
            Ok(()) => return Ok(()),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| anyhow::anyhow!("apt knows no {META_PACKAGE}")))
}

async fn fetch_package(cache: &Path, package: &str) -> Result<()> {
    let release = package.strip_prefix("linux-image-").unwrap_or(package);
    // Two at once may be of one process.
    let turn = FETCHES.fetch_add(1, Ordering::Relaxed);
    let work = cache.join(format!(".kernel-{}-{turn}-{release}", std::process::id()));
    let fetched = unpack_into(&work, package).await;
    if fetched.is_ok() {
        let place = cache.join(format!("kernel-{release}"));
        // Fails when another process was faster: its kernel is as good.
        let _ = fs::rename(&work, place);
    }
    let _ = fs::remove_dir_all(&work);
    fetched
}

async fn unpack_into(work: &Path, package: &str) -> Result<()> {
    let _ = fs::remove_dir_all(work);
    fs::create_dir_all(work).with_context(|| format!("cannot create {}", work.display()))?;
    let folder = work.to_str().context("the cache's path is no text")?;
    let script = "cd \"$1\" && apt-get download \"$2\" && dpkg -x ./*.deb . && rm -f ./*.deb";
    let arguments = ["-c", script, "sh", folder, package];
    run_within("sh", &arguments, limits::DOWNLOAD)
        .await
        .map(drop)
}

/// The packages that the versions of [`META_PACKAGE`] depend on, the newest kernel first.
fn kernel_packages(apt_cache_show: &str) -> Vec<String> {
    let depends = apt_cache_show
        .lines()
        .filter_map(|line| line.strip_prefix("Depends: "));
    let mut packages: Vec<String> = depends
        .flat_map(|list| list.split(','))
        .filter_map(|one| one.split_whitespace().next())
        .filter(|name| name.starts_with("linux-image-"))
        .map(str::to_owned)
        .collect();
    packages.sort_by_key(|name| std::cmp::Reverse(version_key(name)));
    packages.dedup();
    packages
}

/// The numbers in a text, so that 6.12 comes after 6.1.
pub(crate) fn version_key(text: &str) -> Vec<u64> {
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_that_apt_knows_comes_first() {
        let show = "Package: linux-image-cloud-amd64\nVersion: 6.1.176-1\n\
                    Depends: linux-image-6.1.0-50-cloud-amd64 (= 6.1.176-1)\n\n\
                    Package: linux-image-cloud-amd64\n\
                    Depends: linux-image-6.12.95+deb12-cloud-amd64 (= 6.12.95-1~bpo12+1), x\n";
        assert_eq!(
            kernel_packages(show),
            [
                "linux-image-6.12.95+deb12-cloud-amd64",
                "linux-image-6.1.0-50-cloud-amd64"
            ]
        );
        assert_eq!(kernel_packages(""), Vec::<String>::new());
    }

    #[test]
    fn the_newest_complete_kernel_of_the_cache_is_used() {
        let cache = tempfile::tempdir().unwrap();
        for release in ["6.1.0-50-cloud-amd64", "6.12.95+deb12-cloud-amd64"] {
            let boot = cache.path().join(format!("kernel-{release}/boot"));
            fs::create_dir_all(&boot).unwrap();
            fs::write(boot.join(format!("vmlinuz-{release}")), "kernel").unwrap();
        }
        fs::create_dir_all(cache.path().join("qemu-7.2")).unwrap();
        let kernel = newest_in(cache.path()).unwrap();
        assert!(
            kernel
                .image
                .ends_with("boot/vmlinuz-6.12.95+deb12-cloud-amd64")
        );
        assert_eq!(kernel.modules, Vec::<PathBuf>::new());
    }
}
