//! Who sets what when a host comes up.

use std::collections::BTreeMap;

use super::keyfile::Keyfile;
use super::network_manager::Version;

/// Who sets what, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners {
    /// Of interfaces, by their names.
    pub nics: BTreeMap<String, NicOwner>,
    /// Of settings of the kernel, by their names in sysctl: those that somebody sets.
    pub settings: BTreeMap<String, SettingOwner>,
    /// The version of NetworkManager that runs, or why it is not known. What it has no word for it passes over in silence.
    pub network_manager: Result<Version, String>,
    /// What tuned starts with.
    pub tuned: Tuned,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            nics: BTreeMap::new(),
            settings: BTreeMap::new(),
            network_manager: Err("NetworkManager was not asked".to_owned()),
            tuned: Tuned::default(),
        }
    }
}

impl Owners {
    /// Whether NetworkManager sets one of these interfaces up.
    #[must_use]
    pub fn has_profiles(&self) -> bool {
        let is_its = |nic: &NicOwner| matches!(nic.by, SetUp::NetworkManager { .. });
        self.nics.values().any(is_its)
    }
}

/// Who sets an interface up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicOwner {
    /// Its addresses, and what comes after its hardware.
    pub by: SetUp,
    /// By what udev sets its hardware up; none if that is not known.
    pub link: Option<LinkFile>,
}

/// Who gives an interface its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetUp {
    /// NetworkManager, by the profile of this id.
    NetworkManager {
        /// Its UUID.
        profile: String,
        /// The file that has it, or why that is not written.
        keyfile: Result<Keyfile, String>,
    },
    /// systemd-networkd, by this file.
    Networkd {
        /// Its path, from the root.
        file: String,
    },
    /// ifupdown, by a stanza in this file.
    Ifupdown {
        /// Its path.
        file: String,
    },
    /// None of these: what udev sets stays.
    Udev,
}

/// The `.link` by which udev sets an interface's hardware up. Source: systemd.link(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFile {
    /// Its path, from the root.
    pub file: String,
    /// The lines of its part `[Link]`.
    pub lines: Vec<String>,
    /// The interface's place in the host, by which one file is about it alone (`ID_PATH`).
    pub place: String,
}

/// Who sets a setting of the kernel last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOwner {
    /// A file of sysctl.d.
    File {
        /// Its path, from the root.
        path: String,
    },
    /// tuned, by this profile, after all files of sysctl.d.
    Tuned {
        /// The profile that is active.
        profile: String,
    },
}

/// What tuned starts with. Source: `tuned/consts.py` and `tuned/daemon/daemon.py` (`_get_startup_profile`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tuned {
    /// The profiles that are active, the last one with the say.
    pub active: Vec<String>,
    /// Where those of people are looked for, from the root.
    pub folder: String,
    /// Why a host would not come up with others that its file names, if it would not.
    pub chosen_elsewhere: Option<String>,
}
