//! Programs that run in a guest beside the probe, with the libraries that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{find, run};
use crate::guest::cpio::Archive;
use crate::guest::kernel;
use crate::settings::{Contents, GuestSettings};

/// The loader of programs for x86-64, on every distribution (System V ABI, AMD64 supplement).
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Where a guest's loader looks for libraries. Debian's looks here by itself.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// Tells the files of the modules that the probe's program for Python imports, and the one by
/// which Python knows where its library is.
const PYTHON_FILES: &str = "
import gc, json, os, sys, zlib
for module in sys.modules.values():
    print(getattr(module, '__file__', None) or '')
";

/// A program that a guest runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Where it is here.
    path: PathBuf,
    /// Where the guest has it.
    name: &'static str,
    /// A folder with libraries that are not the system's.
    libraries: Option<PathBuf>,
}

/// What these guests run.
#[must_use]
pub fn needed(guests: &[GuestSettings]) -> BTreeSet<Contents> {
    let all = guests.iter().map(|guest| guest.contents);
    all.filter(|contents| matches!(contents, Contents::Store | Contents::Python))
        .collect()
}

/// Looks whether all is there that such contents are made with.
///
/// # Errors
/// What is missing, and what to do.
pub fn check(contents: Contents) -> Result<()> {
    match contents {
        Contents::Store | Contents::Python => Program::find(contents).map(drop),
        Contents::Compressed => super::compressed::check(),
        Contents::Mix | Contents::Userland | Contents::Idle => Ok(()),
    }
}

impl Program {
    /// The program that holds such contents.
    ///
    /// # Errors
    /// It is not there; what to install.
    pub fn find(contents: Contents) -> Result<Self> {
        if contents == Contents::Python {
            // Not what PATH has first: that may be built for this machine's user alone.
            let path = fs::canonicalize("/usr/bin/python3").context(
                "missing: /usr/bin/python3, which runs in the guest; install with: apt-get install python3",
            )?;
            return Ok(Self {
                path,
                name: "usr/bin/python3",
                libraries: None,
            });
        }
        let unpacked = kernel::cache().join("redis");
        let own = unpacked.join("usr/bin/redis-server");
        let (path, libraries) = if own.is_file() {
            (Some(own), Some(unpacked.join("usr").join(LIBRARIES)))
        } else {
            (find("redis-server"), None)
        };
        let path = path.with_context(|| {
            format!(
                "missing: redis-server, which runs in the guest; `scripts/setup --for-tests` unpacks \
                 Debian's into {}, without a service",
                unpacked.display()
            )
        })?;
        Ok(Self {
            path,
            name: "usr/bin/redis-server",
            libraries,
        })
    }

    /// Packs it, what it needs of its own library, and the libraries of all that.
    ///
    /// # Errors
    /// A library or file that is missing.
    pub async fn pack<W: Write>(&self, contents: Contents, archive: &mut Archive<W>) -> Result<()> {
        let mut files = BTreeMap::from([(self.name.to_owned(), self.path.clone())]);
        if contents == Contents::Python {
            files.extend(self.modules().await?);
        }
        let is_loaded = |path: &Path| path.extension().is_some_and(|kind| kind == "so");
        let loaded: Vec<_> = files
            .values()
            .filter(|path| **path == self.path || is_loaded(path))
            .cloned()
            .collect();
        for path in loaded {
            files.extend(self.libraries_of(&path).await?);
        }
        for (name, path) in files {
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            archive.file(&name, 0o755, &bytes)?;
        }
        Ok(())
    }

    /// Modules of Python, under the names that they have here.
    async fn modules(&self) -> Result<BTreeMap<String, PathBuf>> {
        let python = self.path.to_str().context("Python's path is no text")?;
        let told = run(python, &["-I", "-S", "-c", PYTHON_FILES]).await?;
        let named = told.lines().filter(|line| line.starts_with('/'));
        Ok(named
            .map(|path| (path.trim_start_matches('/').to_owned(), PathBuf::from(path)))
            .collect())
    }

    async fn libraries_of(&self, program: &Path) -> Result<BTreeMap<String, PathBuf>> {
        let own = self.libraries.as_deref().and_then(Path::to_str);
        let path = program.to_str().context("a program's path is no text")?;
        let mut arguments = vec!["--list", path];
        if let Some(own) = own {
            arguments.splice(..0, ["--library-path", own]);
        }
        libraries(&run(LOADER, &arguments).await?)
    }
}

/// The files that the loader's list names, under the names that the guest has them.
fn libraries(listed: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for line in listed.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        match (words.next(), words.next()) {
            (Some("=>"), Some("not")) => bail!("the library {name} is missing"),
            (Some("=>"), Some(path)) => {
                let name = Path::new(name).file_name().and_then(|name| name.to_str());
                let name = name.context("a library without a name")?;
                files.insert(format!("{LIBRARIES}/{name}"), path.into());
            }
            _ => {}
        }
    }
    files.insert(LOADER.trim_start_matches('/').to_owned(), LOADER.into());
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_the_loaders_list() {
        let files = libraries(
            "\tlinux-vdso.so.1 (0x00007ffd1b5e5000)\n\
             \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f1)\n\
             \t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n",
        )
        .unwrap();
        let names: Vec<_> = files.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "lib/x86_64-linux-gnu/libm.so.6",
                "lib64/ld-linux-x86-64.so.2"
            ]
        );
        let missing = libraries("\tliblzf.so.1 => not found\n").unwrap_err();
        assert!(missing.to_string().contains("liblzf.so.1"));
    }

    #[tokio::test]
    async fn python_is_packed_with_its_library_and_its_libraries() {
        let Ok(python) = Program::find(Contents::Python) else {
            println!("skipped, because there is no /usr/bin/python3");
            return;
        };
        let mut archive = Archive::new(Vec::new());
        python.pack(Contents::Python, &mut archive).await.unwrap();
        let bytes = archive.finish(4).unwrap();
        let has = |name: &[u8]| bytes.windows(name.len()).any(|part| part == name);
        for name in [
            "usr/bin/python3\0",
            "/json/decoder.py\0",
            "/os.py\0",
            "libc.so.6\0",
        ] {
            assert!(has(name.as_bytes()), "{name}");
        }
    }
}
