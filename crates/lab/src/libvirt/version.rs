//! Which libvirt hosts have.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::command;
use crate::guest::kernel::cache;

/// The machine's own.
const INSTALLED: &str = "installed";

/// What every host with a libvirt needs of it, and the Debian packages that have it.
const PROGRAMS: [(&str, &str); 2] = [
    ("usr/sbin/libvirtd", "libvirt-daemon"),
    ("usr/bin/virsh", "libvirt-clients"),
];

/// A libvirt, by `installed`, a version that was unpacked for tests, or a folder that it was unpacked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Libvirt {
    /// The machine's own.
    Installed,
    /// Its packages are unpacked in this folder.
    Unpacked(PathBuf),
}

impl FromStr for Libvirt {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
        match text {
            INSTALLED => Ok(Self::Installed),
            folder if folder.starts_with('/') => Ok(Self::Unpacked(folder.into())),
            version if !version.is_empty() && digits(version) => {
                Ok(Self::Unpacked(cache().join(format!("libvirt-{version}"))))
            }
            other => bail!(
                "{other:?} is no libvirt: write {INSTALLED}, a version such as 11.3, or the path of a folder"
            ),
        }
    }
}

impl TryFrom<String> for Libvirt {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Libvirt> for String {
    fn from(libvirt: Libvirt) -> Self {
        libvirt.to_string()
    }
}

impl fmt::Display for Libvirt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed => f.write_str(INSTALLED),
            Self::Unpacked(folder) => write!(f, "{}", folder.display()),
        }
    }
}

impl Libvirt {
    /// The folder whose `usr` stands over the machine's; none where the machine's is meant.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Installed => None,
            Self::Unpacked(folder) => Some(folder),
        }
    }

    /// Checks that it is there.
    ///
    /// # Errors
    /// What of it is missing, with what to do.
    pub fn check(&self) -> Result<()> {
        let root = self.folder().unwrap_or(Path::new("/"));
        for (program, package) in PROGRAMS {
            if root.join(program).is_file() {
                continue;
            }
            let program = root.join(program);
            match self {
                Self::Installed => bail!(
                    "there is no {}: apt-get install {package}, or name another libvirt",
                    program.display()
                ),
                Self::Unpacked(_) => bail!(
                    "there is no {}: scripts/setup --for-tests unpacks libvirt 9.0 and 11.3",
                    program.display()
                ),
            }
        }
        if command::find("bash").is_none() {
            bail!("missing: bash; install with: apt-get install bash");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_libvirt_is_named_by_a_word_a_version_or_a_folder_and_read_again_as_it_is_written() {
        let named = |text: &str| text.parse::<Libvirt>().unwrap();
        assert_eq!(named("installed"), Libvirt::Installed);
        assert_eq!(
            named("11.3"),
            Libvirt::Unpacked(cache().join("libvirt-11.3"))
        );
        for libvirt in [named("installed"), named("9.0"), named("/opt/libvirt")] {
            assert_eq!(named(&libvirt.to_string()), libvirt);
        }
    }

    #[test]
    fn what_is_no_libvirt_or_not_there_is_refused_with_what_to_do() {
        for bad in ["", "newest", "some/folder"] {
            let refused = bad.parse::<Libvirt>().unwrap_err().to_string();
            assert!(refused.contains("such as 11.3"), "{refused}");
        }
        let missing = Libvirt::Unpacked("/no/libvirt".into()).check();
        let missing = missing.unwrap_err().to_string();
        for words in ["/no/libvirt/usr/sbin/libvirtd", "scripts/setup"] {
            assert!(missing.contains(words), "{missing}");
        }
    }
}
