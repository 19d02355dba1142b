//! Who sets what when the host comes up: interfaces, and settings of the kernel. Found out, never asked: nothing is started by it.
//!
//! Sources: `nm-config.c` for `/run/NetworkManager/devices`, `sd-network.c` for `/run/systemd/netif/links`, udev's `/run/udev/data`,
//! ifup(8) for `/run/network/ifstate`, sysctl.d(5), tuned.conf(5).

use std::collections::BTreeMap;
use std::path::Path;

use drover_tune::lasting::keyfile;
use drover_tune::lasting::{
    ACTIVE_PROFILE, LinkFile, NicOwner, Owners, SetUp, SettingOwner, Tuned, sysctl_name,
};

use crate::limits::PROFILES;
use crate::{files, keyfiles};

/// Folders of sysctl.d; a file hides those of its name in later ones.
const SYSCTL: [&str; 4] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
];

/// Where profiles of tuned are, the first ones first.
const TUNED: [&str; 4] = [
    "etc/tuned",
    "etc/tuned/profiles",
    "usr/lib/tuned",
    "usr/lib/tuned/profiles",
];

/// Who sets these interfaces up, and who sets the kernel. Which NetworkManager runs no file tells.
#[must_use]
pub fn owners(root: &Path, nics: &[&str]) -> Owners {
    let host = Files { root };
    let of = |nic: &&str| Some(((*nic).to_owned(), host.nic(nic)?));
    Owners {
        nics: nics.iter().filter_map(of).collect(),
        settings: host.settings(),
        tuned: host.tuned(),
        ..Owners::default()
    }
}

struct Files<'a> {
    root: &'a Path,
}

impl Files<'_> {
    fn text(&self, path: &str) -> Option<String> {
        files::read(self.root, path.trim_start_matches('/')).ok()
    }

    /// The value behind `KEY=` of a file.
    fn value(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let of_key = |line: &str| {
            let (found, value) = line.split_once('=')?;
            (found.trim() == key).then(|| value.trim().to_owned())
        };
        text.lines().find_map(of_key)
    }

    fn nic(&self, nic: &str) -> Option<NicOwner> {
        let index = self.text(&format!("sys/class/net/{nic}/ifindex"))?;
        let index = index.trim();
        let by = self
            .network_manager(index)
            .or_else(|| self.networkd(index))
            .or_else(|| self.ifupdown(nic));
        Some(NicOwner {
            by: by.unwrap_or(SetUp::Udev),
            link: self.link(index),
        })
    }

    fn network_manager(&self, index: &str) -> Option<SetUp> {
        let state = format!("run/NetworkManager/devices/{index}");
        let managed = self.value(&state, "managed")?;
        let profile = self.value(&state, "connection-uuid")?;
        if !matches!(managed.as_str(), "true" | "1") {
            return None;
        }
        let found = keyfiles::all(self.root);
        let is_others = keyfile::is_looked_on_at(&profile, &found);
        let keyfile = keyfile::keyfile(&profile, &found);
        (!is_others).then_some(SetUp::NetworkManager { profile, keyfile })
    }

    fn networkd(&self, index: &str) -> Option<SetUp> {
        let state = format!("run/systemd/netif/links/{index}");
        let file = self.value(&state, "NETWORK_FILE")?;
        let managed = self.value(&state, "ADMIN_STATE")?;
        (managed != "unmanaged").then_some(SetUp::Networkd { file })
    }

    fn ifupdown(&self, nic: &str) -> Option<SetUp> {
        let state = self.text("run/network/ifstate")?;
        let is_up = |line: &str| line.split_once('=').is_some_and(|(name, _)| name == nic);
        state.lines().find(|line| is_up(line))?;
        let more = files::entries(&self.root.join("etc/network/interfaces.d"));
        let more = more.iter().filter_map(|path| path.file_name()?.to_str());
        let more = more.map(|name| format!("/etc/network/interfaces.d/{name}"));
        let mut all = ["/etc/network/interfaces".to_owned()]
            .into_iter()
            .chain(more);
        let has_stanza = |line: &str| {
            let mut words = line.split_whitespace();
            words.next() == Some("iface") && words.next() == Some(nic)
        };
        let file = all.find(|file| {
            self.text(file)
                .is_some_and(|text| text.lines().any(has_stanza))
        })?;
        Some(SetUp::Ifupdown { file })
    }

    fn link(&self, index: &str) -> Option<LinkFile> {
        let data = format!("run/udev/data/n{index}");
        let file = self.value(&data, "E:ID_NET_LINK_FILE")?;
        let place = self.value(&data, "E:ID_PATH")?;
        let text = self.text(&file)?;
        let lines = in_part(&text, "[Link]").map(str::to_owned).collect();
        Some(LinkFile { file, lines, place })
    }

    fn settings(&self) -> BTreeMap<String, SettingOwner> {
        let mut owners = BTreeMap::new();
        for path in self.sysctl_files().into_values() {
            let text = self.text(&path).unwrap_or_default();
            for name in text.lines().filter_map(sysctl_name) {
                let path = path.clone();
                owners.insert(name, SettingOwner::File { path });
            }
        }
        let reapplied = self.value("etc/tuned/tuned-main.conf", "reapply_sysctl");
        let files_win = !matches!(reapplied.as_deref(), Some("0" | "false" | "no"));
        for name in self.of_tuned().unwrap_or_default() {
            if files_win && owners.get(&name).is_some_and(is_reapplied) {
                continue;
            }
            let profile = self.tuned_profile().unwrap_or_default();
            owners.insert(name, SettingOwner::Tuned { profile });
        }
        owners
    }

    /// By their names, which is the order in which they count.
    fn sysctl_files(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for folder in SYSCTL {
            for path in files::entries(&self.root.join(folder)) {
                let name = path.file_name().and_then(|name| name.to_str());
                if let Some(name) = name.filter(|name| name.ends_with(".conf")) {
                    let path = format!("/{folder}/{name}");
                    found.entry(name.to_owned()).or_insert(path);
                }
            }
        }
        found
    }

    fn tuned(&self) -> Tuned {
        let active = self.text(ACTIVE_PROFILE).unwrap_or_default();
        let mode = self.text("etc/tuned/profile_mode").unwrap_or_default();
        let dirs = self.value("etc/tuned/tuned-main.conf", "profile_dirs");
        let is_there = |path: &str| self.root.join(path).exists();
        let chosen_elsewhere = if mode.trim() == "auto" {
            Some("tuned chooses its profile by itself: /etc/tuned/profile_mode is auto")
        } else if is_there("etc/tuned/ppd_base_profile") {
            Some("tuned-ppd chooses the profile of tuned: it has /etc/tuned/ppd_base_profile")
        } else if dirs.is_some() {
            Some("tuned looks for profiles where profile_dirs of /etc/tuned/tuned-main.conf says")
        } else {
            None
        };
        // Since 2.24 it looks nowhere else.
        let is_newer = is_there("usr/lib/tuned/profiles");
        Tuned {
            active: active.split_whitespace().map(str::to_owned).collect(),
            folder: if is_newer {
                "/etc/tuned/profiles"
            } else {
                "/etc/tuned"
            }
            .to_owned(),
            chosen_elsewhere: chosen_elsewhere.map(str::to_owned),
        }
    }

    fn tuned_profile(&self) -> Option<String> {
        // Several are merged, and the last one has the say.
        let last = self.tuned().active.pop()?;
        let is_name = !last.contains('/') && !last.starts_with('.');
        is_name.then_some(last)
    }

    /// What the active profile sets, and those that it includes.
    fn of_tuned(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut profile = Some(self.tuned_profile()?);
        for _ in 0..PROFILES {
            let Some(name) = profile.take() else { break };
            let paths = TUNED.map(|folder| format!("{folder}/{name}/tuned.conf"));
            let Some(text) = paths.iter().find_map(|path| self.text(path)) else {
                break;
            };
            names.extend(in_part(&text, "[sysctl]").filter_map(sysctl_name));
            let included = in_part(&text, "[main]").find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == "include").then(|| value.trim().to_owned())
            });
            profile = included.filter(|name| !name.contains('/') && !name.starts_with('.'));
        }
        Some(names)
    }
}

/// The lines of a part of a file, without comments.
fn in_part<'a>(text: &'a str, part: &'a str) -> impl Iterator<Item = &'a str> {
    let mut is_in = false;
    text.lines().map(str::trim).filter(move |line| {
        if line.starts_with('[') {
            is_in = *line == part;
            return false;
        }
        is_in && !line.is_empty() && !line.starts_with(['#', ';'])
    })
}

/// Whether tuned reads that file once more after its own, unless `reapply_sysctl` says otherwise: what comes with the system it does not.
fn is_reapplied(owner: &SettingOwner) -> bool {
    let SettingOwner::File { path } = owner else {
        return false;
    };
    let folders = ["/etc/sysctl.d/", "/run/sysctl.d/"];
    path == "/etc/sysctl.conf" || folders.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use drover_tune::lasting::keyfile::Keyfile;

    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn whoever_gave_an_interface_its_addresses_is_found_with_his_file() {
        let root = tempfile::tempdir().unwrap();
        let link = "/usr/lib/systemd/network/99-default.link";
        let lan = "/etc/NetworkManager/system-connections/lan.nmconnection";
        let udev = format!("I:1\nE:ID_PATH=pci-0000:03:00.0\nE:ID_NET_LINK_FILE={link}\n");
        write(
            root.path(),
            &[
                ("sys/class/net/nm0/ifindex", "2\n"),
                (
                    "run/NetworkManager/devices/2",
                    "[device]\nmanaged=true\nconnection-uuid=0f2c\n",
                ),
                (
                    &lan[1..],
                    "[connection]\nuuid=0F2C\ntype=ethernet\ninterface-name=nm0\n",
                ),
                (
                    "etc/NetworkManager/system-connections/lan.nmconnection~",
                    "[connection]\nuuid=0f2c\ntype=ethernet\ninterface-name=nm0\n",
                ),
                ("sys/class/net/seen0/ifindex", "6\n"),
                (
                    "run/NetworkManager/devices/6",
                    "[device]\nmanaged=true\nconnection-uuid=aa\n",
                ),
                (
                    "run/NetworkManager/system-connections/seen0.nmconnection",
                    "[connection]\nuuid=aa\n[.nmmeta]\nexternal=true\n",
                ),
                ("sys/class/net/nd0/ifindex", "3\n"),
                ("run/NetworkManager/devices/3", "[device]\nmanaged=false\n"),
                (
                    "run/systemd/netif/links/3",
                    "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/a.network\n",
                ),
                ("sys/class/net/if0/ifindex", "4\n"),
                ("run/systemd/netif/links/4", "ADMIN_STATE=unmanaged\n"),
                ("run/network/ifstate", "lo=lo\nif0=if0\n"),
                (
                    "etc/network/interfaces",
                    "source interfaces.d/*\niface lo inet loopback\n",
                ),
                (
                    "etc/network/interfaces.d/lan",
                    "auto if0\niface if0 inet dhcp\n",
                ),
                ("sys/class/net/none0/ifindex", "5\n"),
                ("run/udev/data/n5", &udev),
                (
                    &link[1..],
                    "# x\n[Match]\nOriginalName=*\n\n[Link]\n# y\nNamePolicy=keep kernel\n",
                ),
            ],
        );
        let all = ["nm0", "nd0", "if0", "none0", "gone0", "seen0"];
        let owners = owners(root.path(), &all);
        assert!(owners.has_profiles());
        let nics = owners.nics;
        let by = |nic: &str| nics[nic].by.clone();
        let profile = "0f2c".to_owned();
        let keyfile = Ok(Keyfile {
            path: lan.to_owned(),
            ethernet: "[ethernet]".to_owned(),
        });
        assert_eq!(by("nm0"), SetUp::NetworkManager { profile, keyfile });
        assert_eq!(by("seen0"), SetUp::Udev);
        let file = "/etc/systemd/network/a.network".to_owned();
        assert_eq!(by("nd0"), SetUp::Networkd { file });
        let file = "/etc/network/interfaces.d/lan".to_owned();
        assert_eq!(by("if0"), SetUp::Ifupdown { file });
        assert_eq!(by("none0"), SetUp::Udev);
        let expected = LinkFile {
            file: link.to_owned(),
            lines: vec!["NamePolicy=keep kernel".to_owned()],
            place: "pci-0000:03:00.0".to_owned(),
        };
        assert_eq!(nics["none0"].link, Some(expected));
        assert_eq!(nics["nm0"].link, None);
        assert!(!nics.contains_key("gone0"));
    }

    #[test]
    fn the_last_file_that_sets_something_has_it_and_tuned_comes_after_those_of_the_system() {
        let root = tempfile::tempdir().unwrap();
        let both = "net.ipv4.tcp_rmem = 1 2 3\n-net/ipv4/tcp_wmem=1 2 3\n# net.core.x = 1\n";
        write(
            root.path(),
            &[
                ("usr/lib/sysctl.d/50-a.conf", both),
                ("etc/sysctl.d/60-b.conf", "net.ipv4.tcp_rmem=4 5 6\n"),
                // Hides the one below, which comes last otherwise.
                ("etc/sysctl.d/99-c.conf", "vm.swappiness = 1\n"),
                ("usr/lib/sysctl.d/99-c.conf", both),
                ("etc/sysctl.d/note.txt", both),
                ("etc/tuned/active_profile", "mine\n"),
                (
                    "etc/tuned/mine/tuned.conf",
                    "[main]\ninclude=virtual-host\n[sysctl]\nvm.swappiness=2\nnet.ipv4.tcp_wmem=1 2 3\n",
                ),
                (
                    "usr/lib/tuned/virtual-host/tuned.conf",
                    "[main]\ninclude=mine\n[sysctl]\nkernel.x=1\n[cpu]\ngovernor=performance\n",
                ),
            ],
        );
        let settings = owners(root.path(), &[]).settings;
        let file = |path: &str| SettingOwner::File { path: path.into() };
        let tuned = SettingOwner::Tuned {
            profile: "mine".into(),
        };
        assert_eq!(
            settings["net.ipv4.tcp_rmem"],
            file("/etc/sysctl.d/60-b.conf")
        );
        assert_eq!(settings["net.ipv4.tcp_wmem"], tuned);
        assert_eq!(settings["vm.swappiness"], file("/etc/sysctl.d/99-c.conf"));
        assert_eq!(settings["kernel.x"], tuned);
        assert_eq!(settings.len(), 4);
        // Unless tuned is told to leave its own.
        let found = owners(root.path(), &[]).tuned;
        let expected = Tuned {
            active: vec!["mine".into()],
            folder: "/etc/tuned".into(),
            chosen_elsewhere: None,
        };
        assert_eq!(found, expected);
        for (path, text, why) in [
            (
                "etc/tuned/tuned-main.conf",
                "profile_dirs = /a\n",
                "profile_dirs",
            ),
            ("etc/tuned/ppd_base_profile", "balanced\n", "tuned-ppd"),
            ("etc/tuned/profile_mode", "auto\n", "by itself"),
            ("usr/lib/tuned/profiles/mine/tuned.conf", "", "by itself"),
        ] {
            write(root.path(), &[(path, text)]);
            let said = owners(root.path(), &[]).tuned.chosen_elsewhere;
            assert!(
                said.as_ref().is_some_and(|said| said.contains(why)),
                "{said:?}"
            );
        }
        let found = owners(root.path(), &[]).tuned;
        assert_eq!(found.folder, "/etc/tuned/profiles");
        let told = ("etc/tuned/tuned-main.conf", "# x\nreapply_sysctl = 0\n");
        write(root.path(), &[told]);
        let settings = owners(root.path(), &[]).settings;
        assert_eq!(settings["vm.swappiness"], tuned);
    }
}
