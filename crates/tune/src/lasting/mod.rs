//! What makes a setting last beyond a restart: through whoever sets it when the host comes up, and never beside him.
//!
//! Owns no host and writes nothing: it is told who sets what, and answers with the file, the lines or the commands, to the letter.
//!
//! ```text
//! steps, Owners ─▶ lasting ─▶ Lasting: of each place what is to be there; and of which settings nobody keeps them, because
//!                                └─▶ rewrites ─▶ Rewrite: a file before and after; and what people have to do, because
//! ```

mod edit;
pub mod keyfile;
mod link;
mod network_manager;
mod owners;
mod rewrite;
mod settings;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::edit::edited;
pub use self::network_manager::{BY as NETWORK_MANAGER, Version};
pub use self::owners::{LinkFile, NicOwner, Owners, SetUp, SettingOwner, Tuned};
pub use self::rewrite::{ByHand, End, Place, Rewrite, rewrites};
pub use self::settings::{ACTIVE_PROFILE, sysctl_name};
use crate::change::{NicSetting, Step};

/// What is to be done, where, that settings last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lasting {
    /// Who sets them when the host comes up.
    pub by: Cow<'static, str>,
    /// What is to be done.
    pub how: How,
    /// Of commands, why no file is written in place of them, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl Lasting {
    fn by(by: &'static str, how: How) -> Self {
        let (by, because) = (Cow::Borrowed(by), None);
        Self { by, how, because }
    }

    fn because(self, why: String) -> Self {
        let because = Some(why);
        Self { because, ..self }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// A file is to be there, with these lines and no others.
    File {
        /// Its path, from the root.
        path: String,
        /// What is in it.
        lines: Vec<String>,
    },
    /// A file that chooses others is to have these lines in place of all that is in it.
    Choice {
        /// Its path.
        path: String,
        /// What is in it then.
        lines: Vec<String>,
        /// The file that is chosen: while it is not as told, whoever reads the choice may not even start.
        of: String,
        /// What people say to choose it.
        command: String,
    },
    /// A file of somebody's is to have these lines.
    Lines {
        /// Its path.
        path: String,
        /// In which part of it, if it has parts.
        part: Option<String>,
        /// What is to be there, in place of other lines about the same.
        lines: Vec<String>,
    },
    /// Commands for a shell.
    Commands(Vec<String>),
}

/// A setting that nobody keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotKept {
    /// The command that sets it until the next restart.
    pub step: String,
    /// Why not.
    pub why: String,
}

/// What makes these steps last, one answer for each place; and which of them do not.
#[must_use]
pub fn lasting<'a>(
    steps: impl Iterator<Item = &'a Step>,
    owners: &Owners,
) -> (Vec<Lasting>, Vec<NotKept>) {
    let mut places = Places::default();
    let mut not_kept = Vec::new();
    for step in steps {
        if let Err(why) = places.take(step, owners) {
            let step = step.to_string();
            not_kept.push(NotKept { step, why });
        }
    }
    (places.told(owners), not_kept)
}

/// What goes where, gathered until all steps were seen.
#[derive(Default)]
struct Places {
    /// Settings of the kernel, by their names.
    settings: BTreeMap<String, String>,
    /// Of interfaces whose hardware udev sets up: lines of a `.link`.
    links: BTreeMap<String, Vec<String>>,
    /// Of those of NetworkManager: properties of their profiles.
    profiles: BTreeMap<String, Vec<network_manager::Property>>,
    /// Lines of a stanza of ifupdown, or of a `.network`.
    stanzas: BTreeMap<String, Vec<String>>,
}

impl Places {
    fn take(&mut self, step: &Step, owners: &Owners) -> Result<(), String> {
        match step {
            Step::File { path, to, .. } => {
                let name = path.strip_prefix("proc/sys/");
                let name = name.ok_or(match path.starts_with("sys/devices/system/cpu/") {
                    true => "no file keeps it: `tuned-adm profile virtual-host` does",
                    false => {
                        "nobody keeps it: whoever pins interrupts and queues does so at each start"
                    }
                })?;
                self.settings.insert(name.replace('/', "."), to.clone());
                Ok(())
            }
            Step::Nic {
                nic,
                what,
                from,
                to,
            } => {
                let owner = owners.nics.get(nic);
                let owner = owner.ok_or_else(|| format!("it is not known who sets {nic} up"))?;
                if let SetUp::NetworkManager { .. } = owner.by {
                    let properties = network_manager::properties(what, (from, to), owners)?;
                    let all = self.profiles.entry(nic.clone()).or_default();
                    all.extend(properties);
                    return Ok(());
                }
                self.take_nic(nic, what, (from, to), owner)
            }
        }
    }

    fn take_nic(
        &mut self,
        nic: &str,
        what: &NicSetting,
        (from, to): (&str, &str),
        owner: &NicOwner,
    ) -> Result<(), String> {
        let line = match (&owner.by, what) {
            // These set it after udev has.
            (SetUp::Ifupdown { .. }, NicSetting::Mtu) => format!("mtu {to}"),
            (SetUp::Networkd { file }, NicSetting::Mtu) => {
                check_place(file)?;
                format!("MTUBytes={to}")
            }
            _ => {
                let lines = link::lines(what, from, to)?;
                let found = owner.link.as_ref();
                let found =
                    found.ok_or_else(|| format!("udev tells nothing of how it sets {nic} up"))?;
                check_place(&found.file)?;
                self.links.entry(nic.to_owned()).or_default().extend(lines);
                return Ok(());
            }
        };
        self.stanzas.entry(nic.to_owned()).or_default().push(line);
        Ok(())
    }

    fn told(self, owners: &Owners) -> Vec<Lasting> {
        let mut told = settings::told(&self.settings, owners);
        let owned = |nic: &String| owners.nics.get(nic);
        for (nic, lines) in self.stanzas {
            told.extend(owned(&nic).and_then(|owner| stanza(&nic, lines, owner)));
        }
        for (nic, lines) in self.links {
            let found = owned(&nic).and_then(|owner| owner.link.as_ref());
            told.extend(found.map(|found| link::told(&nic, lines, found)));
        }
        for (nic, properties) in self.profiles {
            let told_of = |owner| network_manager::told(&properties, owner, owners);
            told.extend(owned(&nic).into_iter().flat_map(told_of));
        }
        told
    }
}

/// What is below `/run` is made anew at each start.
fn check_place(file: &str) -> Result<(), String> {
    if file.starts_with("/run/") {
        let by = if file.contains("netplan") {
            "netplan, in whose files it belongs (/etc/netplan)"
        } else {
            "somebody whom the file should name"
        };
        return Err(format!("{file} is made anew at each start, by {by}"));
    }
    Ok(())
}

fn stanza(nic: &str, lines: Vec<String>, owner: &NicOwner) -> Option<Lasting> {
    let (by, how) = match &owner.by {
        SetUp::Ifupdown { file } => {
            let (path, part) = (file.clone(), Some(format!("iface {nic}")));
            ("ifupdown", How::Lines { path, part, lines })
        }
        SetUp::Networkd { file } => ("systemd-networkd", beside(file, lines)),
        SetUp::NetworkManager { .. } | SetUp::Udev => return None,
    };
    Some(Lasting::by(by, how))
}

/// A file of ours that is read behind a `.network`, whoever may replace that. Source: systemd.network(5).
fn beside(file: &str, lines: Vec<String>) -> How {
    let name = file.rsplit('/').next().unwrap_or_default();
    let head = [
        "# For every interface that the file is about".to_owned(),
        "[Link]".to_owned(),
    ];
    How::File {
        path: format!("/etc/systemd/network/{name}.d/90-drover.conf"),
        lines: head.into_iter().chain(lines).collect(),
    }
}

#[cfg(test)]
mod tests;
