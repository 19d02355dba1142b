//! Debian's kernel with every driver, as `scripts/setup --for-tests` unpacks it. Guests have the smaller one for clouds, which knows no
//! adapters and no 9p.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::modules::Modules;
use crate::guest::kernel::{cache, version_key};

/// What folders of such kernels begin with, in the lab's cache. Those of guests begin otherwise.
const FOLDER: &str = "full-kernel-";

/// A kernel and its modules.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The image, as QEMU loads it.
    pub image: PathBuf,
    pub(super) modules: Modules,
}

impl Kernel {
    /// The newest one in the lab's cache.
    ///
    /// # Errors
    /// There is none, and what to do; or its folder cannot be read.
    pub fn find() -> Result<Self> {
        let cache = cache();
        newest_in(&cache)?.with_context(|| {
            format!(
                "no {FOLDER}* is in {}: run scripts/setup --for-tests",
                cache.display()
            )
        })
    }
}

impl Kernel {
    /// Whether it has that module, or has it built in. Newer kernels lack some that older ones have.
    #[must_use]
    pub fn has(&self, module: &str) -> bool {
        self.modules.has(module)
    }
}

#[cfg(test)]
impl Kernel {
    /// One without modules.
    pub(super) fn at(image: &Path) -> Self {
        Self {
            image: image.to_owned(),
            modules: Modules::default(),
        }
    }
}

fn newest_in(cache: &Path) -> Result<Option<Kernel>> {
    let Ok(folders) = fs::read_dir(cache) else {
        return Ok(None);
    };
    let whole = folders.filter_map(|entry| {
        let path = entry.ok()?.path();
        let release = path.file_name()?.to_str()?.strip_prefix(FOLDER)?.to_owned();
        let image = path.join("boot").join(format!("vmlinuz-{release}"));
        let modules = path.join("lib/modules").join(&release);
        image
            .is_file()
            .then(|| (version_key(&release), image, modules))
    });
    let Some((_, image, modules)) = whole.max() else {
        return Ok(None);
    };
    let modules = Modules::of(&modules)?;
    Ok(Some(Kernel { image, modules }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_kernel_with_every_driver_is_used() {
        let cache = tempfile::tempdir().unwrap();
        assert!(newest_in(&cache.path().join("nowhere")).unwrap().is_none());
        for folder in [
            "full-kernel-6.1.0-50-amd64",
            "full-kernel-6.12.95+deb12-amd64",
            "full-kernel-6.20.1-amd64",
            "kernel-7.1.1-cloud-amd64",
        ] {
            let release = folder.trim_start_matches(FOLDER);
            let boot = cache.path().join(folder).join("boot");
            fs::create_dir_all(&boot).unwrap();
            let modules = cache.path().join(folder).join("lib/modules").join(release);
            fs::create_dir_all(modules).unwrap();
            // One was not unpacked to its end.
            if release != "6.20.1-amd64" {
                fs::write(boot.join(format!("vmlinuz-{release}")), "kernel").unwrap();
            }
        }
        let kernel = newest_in(cache.path()).unwrap().unwrap();
        assert!(
            kernel.image.ends_with("boot/vmlinuz-6.12.95+deb12-amd64"),
            "{kernel:?}"
        );
    }
}
