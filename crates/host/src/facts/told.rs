//! What the kernel tells by other ways than files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use drover_types::Interface;
use serde::{Deserialize, Serialize};

use super::asked::Asked;
use crate::error::HostError;
use crate::ethtool::Question;
use crate::files::optional;
use crate::interfaces::listed;
use crate::limits::{LINKS, PROCESSES};
use crate::netlink::Answer;

/// An interface, and what ethtool says of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToldNic {
    /// As netlink lists it.
    pub interface: Interface,
    /// Its folder in `/sys` is that of this network namespace.
    pub has_folder: bool,
    /// The device that has its interrupts, by its path from the root, where that is not its own: of virtio's it is the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_on: Option<String>,
    /// Those of its interrupts that nobody may move, by who may write their files: what is captured are texts.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub fixed: BTreeSet<u32>,
    /// Administratively up, with carrier or without.
    pub enabled: bool,
    /// Several adapters as one, by `teamd`.
    #[serde(default)]
    pub team: bool,
    /// Its queueing discipline, where netlink tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qdisc: Option<String>,
    /// Attributes of ethtool's answers, as the kernel gave them.
    pub ethtool: BTreeMap<Question, Answered>,
    /// Attributes of data centre bridging; none where it was not asked.
    #[serde(default)]
    pub dcb: Option<Answered>,
    /// The same as the language of before the standard has it, and who negotiates.
    #[serde(default)]
    pub cee: Option<Answered>,
    /// What its driver says of itself and the adapter (`struct ethtool_drvinfo`), the same way.
    #[serde(default)]
    pub drvinfo: Option<Answered>,
    /// Versions that run on the adapter, by devlink, the same way.
    #[serde(default)]
    pub versions: Option<Answered>,
    /// What parts of the adapter tell of their health, by devlink, the same way.
    #[serde(default)]
    pub health: Option<Answered>,
    /// What neighbours said by LLDP, as it is kept, the same way.
    #[serde(default)]
    pub neighbours: Option<Answered>,
    /// Options of a team, the same way.
    #[serde(default)]
    pub options: Option<Answered>,
}

/// What ethtool answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answered {
    /// The attributes of its answer; base64 where they are written down.
    Attributes(#[serde(with = "base64")] Vec<u8>),
    /// Nothing, because.
    Nothing(String),
}

impl From<Answer> for Answered {
    fn from(answer: Answer) -> Self {
        match answer {
            Ok(attributes) => Self::Attributes(attributes),
            Err(why) => Self::Nothing(why),
        }
    }
}

mod base64 {
    use data_encoding::BASE64;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        BASE64.decode(text.as_bytes()).map_err(Error::custom)
    }
}

/// All of it, of one host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    /// What the host is called.
    pub host: String,
    /// Its interfaces, loopback left out.
    pub nics: Vec<ToldNic>,
    /// Whether irqbalance is running; not known where there are too many processes to look at.
    pub irqbalance: Option<bool>,
    /// Whether lldpad is running, the same way.
    #[serde(default)]
    pub lldpad: Option<bool>,
}

impl Told {
    /// Asks the kernel, in this process's network namespace; `root` is where `/sys` and `/proc` are below.
    ///
    /// # Errors
    /// As [`crate::interfaces`], and [`HostError::Asking`].
    pub async fn ask(root: &Path, host: &str) -> Result<Self, HostError> {
        let all = listed(root).await?.into_iter();
        let all: Vec<_> = all.filter(|listed| !listed.interface.loopback).collect();
        let (root, host) = (root.to_owned(), host.to_owned());
        // The memory of a module takes some 20 ms, and of one that is broken seconds: nobody else's thread waits for that.
        let ask = move || {
            let mut asked = Asked::open(&root);
            Self {
                host,
                nics: all.into_iter().map(|listed| asked.of(listed)).collect(),
                irqbalance: runs(&root, "irqbalance"),
                lldpad: runs(&root, "lldpad"),
            }
        };
        let asked = tokio::task::spawn_blocking(ask).await;
        asked.map_err(|source| HostError::Asking { source })
    }
}

/// What is told in the name of a host that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    /// Paths are made of names.
    #[error("{0:?} is no name of an interface or a device")]
    Name(String),
    /// More than any host has.
    #[error("{0} interfaces are more than any host has")]
    Nics(usize),
}

impl Told {
    /// Whether a kernel can have told it: somebody else may have written it down.
    ///
    /// # Errors
    /// [`Untold`].
    pub fn check(&self) -> Result<(), Untold> {
        if self.nics.len() > LINKS {
            return Err(Untold::Nics(self.nics.len()));
        }
        for ToldNic { interface, .. } in &self.nics {
            for name in std::iter::once(&interface.name).chain(&interface.rdma) {
                let odd =
                    |letter: char| letter == '/' || letter.is_whitespace() || letter.is_control();
                let is_name = (1..=63).contains(&name.len()) && !name.contains(odd);
                if !is_name || name == "." || name == ".." {
                    return Err(Untold::Name(name.clone()));
                }
            }
        }
        Ok(())
    }
}

/// Whether there is a process of that program; not known where there are too many. Names of others are nobody's business.
pub(crate) fn runs(root: &Path, program: &str) -> Option<bool> {
    let mut looked = 0;
    for process in fs::read_dir(root.join("proc")).ok()? {
        looked += 1;
        if looked > PROCESSES {
            return None;
        }
        let process = process.ok()?.path();
        let name = process.file_name().and_then(|name| name.to_str());
        let is_process = name.is_some_and(|name| name.parse::<u32>().is_ok());
        if is_process && optional(&process.join("comm")).as_deref() == Some(program) {
            return Some(true);
        }
    }
    Some(false)
}
