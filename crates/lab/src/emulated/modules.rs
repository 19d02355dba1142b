//! Modules of a kernel that was unpacked and not installed, so that no `depmod` has listed which of them need others. Each says it
//! itself (`depends=` and `softdep=` among what `modinfo` shows).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::command::find;
use crate::limits::{COMMAND, FOLDER_DEPTH};

/// Programs that unpack, by the ends of files' names.
const UNPACK: [(&str, &str); 3] = [("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")];

/// Those of a kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct Modules {
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

/// One that is ready to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) image: Vec<u8>,
}

impl Modules {
    /// Those of a folder such as `/lib/modules/6.12.95-amd64`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn of(folder: &Path) -> Result<Self> {
        let mut all = Self::default();
        all.look(folder, FOLDER_DEPTH)
            .with_context(|| format!("cannot read {}", folder.display()))?;
        let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        all.built_in = built_in.lines().filter_map(name_of).collect();
        Ok(all)
    }

    fn look(&mut self, folder: &Path, depth: usize) -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                if depth > 0 {
                    self.look(&path, depth - 1)?;
                }
            } else if let Some(name) = path.to_str().and_then(name_of) {
                self.files.insert(name, path);
            }
        }
        Ok(())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let name = normal(name);
        self.files.contains_key(&name) || self.built_in.contains(&name)
    }

    /// These and all that they need, each behind what it needs. What the kernel has built in is left out.
    ///
    /// # Errors
    /// The kernel has none of that name, or it cannot be unpacked.
    pub(super) async fn in_order(&self, wanted: &[String]) -> Result<Vec<Module>> {
        let mut ordered = Vec::new();
        let mut begun = BTreeSet::new();
        // From the last one, as each is taken from the end: a module, or that all that it needs are there.
        let mut left: Vec<Next> = wanted.iter().rev().map(|name| Next::of(name)).collect();
        while let Some(next) = left.pop() {
            let name = match next {
                Next::Is(module) => {
                    ordered.push(module);
                    continue;
                }
                Next::Look(name) => name,
            };
            if self.built_in.contains(&name) || !begun.insert(name.clone()) {
                continue;
            }
            let Some(file) = self.files.get(&name) else {
                bail!("the kernel has no module {name}");
            };
            let image = unpacked(file).await?;
            let needs = needs(&image);
            left.push(Next::Is(Module { name, image }));
            left.extend(needs.iter().rev().map(|name| Next::of(name)));
        }
        Ok(ordered)
    }
}

enum Next {
    Look(String),
    Is(Module),
}

impl Next {
    fn of(name: &str) -> Self {
        Self::Look(normal(name))
    }
}

/// The kernel takes both for the same.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// Of a path such as `kernel/drivers/dca/dca.ko.xz`.
fn name_of(path: &str) -> Option<String> {
    let (_, file) = path.rsplit_once('/')?;
    let (name, end) = file.split_once(".ko")?;
    let packed = UNPACK
        .iter()
        .any(|(known, _)| end.strip_prefix('.') == Some(*known));
    (end.is_empty() || packed).then(|| normal(name))
}

async fn unpacked(file: &Path) -> Result<Vec<u8>> {
    let shown = file.display();
    let end = file.extension().and_then(|end| end.to_str());
    let program = UNPACK.iter().find(|(known, _)| end == Some(*known));
    let Some((_, program)) = program else {
        return fs::read(file).with_context(|| format!("cannot read {shown}"));
    };
    let mut command = Command::new(find(program).unwrap_or_else(|| (*program).into()));
    command.arg("-dc").arg(file).stdin(Stdio::null());
    command.kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND, command.output())
        .await
        .with_context(|| format!("{program} does not come to an end with {shown}"))?
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{program} cannot unpack {shown}: {}", words.trim());
    }
    Ok(output.stdout)
}

/// Modules that one needs, or wants to have before it.
fn needs(image: &[u8]) -> Vec<String> {
    let mut needs = Vec::new();
    for text in image.split(|byte| *byte == 0) {
        let told = |key: &str| {
            let value = text.strip_prefix(key.as_bytes())?;
            std::str::from_utf8(value).ok()
        };
        if let Some(names) = told("depends=") {
            needs.extend(names.split(',').map(normal));
        } else if let Some(words) = told("softdep=pre:") {
            let before = words.split_ascii_whitespace();
            needs.extend(before.take_while(|word| !word.ends_with(':')).map(normal));
        }
    }
    needs.retain(|name| !name.is_empty());
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, path: &str, told: &[&str]) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("\x7fELF\0{}\0", told.join("\0"))).unwrap();
    }

    fn kernel() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        write(at, "kernel/a/a.ko", &["license=GPL", "depends=b-x,c"]);
        write(
            at,
            "kernel/b/b-x.ko",
            &["depends=c", "softdep=pre: d post: a"],
        );
        write(at, "kernel/c.ko", &["depends=", "name=c"]);
        write(at, "kernel/d.ko", &["depends=inside"]);
        fs::write(at.join("modules.builtin"), "kernel/lib/inside.ko\n").unwrap();
        folder
    }

    async fn names(modules: &Modules, wanted: &[&str]) -> Result<Vec<String>> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let ordered = modules.in_order(&wanted).await?;
        Ok(ordered.into_iter().map(|module| module.name).collect())
    }

    #[tokio::test]
    async fn each_module_comes_once_and_behind_what_it_needs() {
        let folder = kernel();
        let modules = Modules::of(folder.path()).unwrap();
        let ordered = names(&modules, &["a", "inside", "c"]).await.unwrap();
        assert_eq!(ordered, ["c", "d", "b_x", "a"]);
        assert!(["b-x", "inside"].iter().all(|name| modules.has(name)));
        assert!(!modules.has("outside"));
    }

    #[tokio::test]
    async fn a_circle_ends_and_a_module_that_is_not_there_is_named() {
        let folder = kernel();
        write(folder.path(), "kernel/e.ko", &["softdep=pre: f"]);
        write(folder.path(), "kernel/f.ko", &["depends=e"]);
        write(folder.path(), "kernel/g.ko", &["depends=h"]);
        let modules = Modules::of(folder.path()).unwrap();
        assert_eq!(names(&modules, &["e"]).await.unwrap().len(), 2);
        let missing = names(&modules, &["g"]).await.unwrap_err().to_string();
        assert_eq!(missing, "the kernel has no module h");
    }

    #[test]
    fn packed_modules_count_by_their_names_and_other_files_do_not() {
        for path in ["k/i2c-algo-bit.ko", "k/i2c-algo-bit.ko.xz"] {
            assert_eq!(name_of(path), Some("i2c_algo_bit".to_owned()));
        }
        for path in ["k/modules.order", "k/a.ko.debug", "k/a.c"] {
            assert_eq!(name_of(path), None, "{path}");
        }
    }
}
