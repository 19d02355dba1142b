//! The ways to empty a host that are compared.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// A way to empty a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Emptying {
    /// `drover drain`: one order, everything else as it is when nothing is configured.
    Drover,
    /// Each guest by QEMU's multifd on the fastest NIC, one after another.
    MultifdInTurn,
    /// The same, all at once.
    MultifdAtOnce,
    /// A shell script with `virsh migrate --live` for each guest, as libvirt has QEMU move it then:
    /// one TCP connection on one NIC, one guest after another.
    Script,
}

impl Emptying {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 4] = [
        Self::Drover,
        Self::MultifdInTurn,
        Self::MultifdAtOnce,
        Self::Script,
    ];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Drover => "drover",
            Self::MultifdInTurn => "multifd-in-turn",
            Self::MultifdAtOnce => "multifd-at-once",
            Self::Script => "script",
        }
    }

    /// Whether agents keep the guests that it moves.
    #[must_use]
    pub fn is_managed(self) -> bool {
        self == Self::Drover
    }
}

impl fmt::Display for Emptying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Emptying {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|method| method.name() == text);
        let Some(method) = found else {
            let names = Self::ALL.map(Self::name).join(", ");
            bail!("{text:?} is no way to empty a host: {names}");
        };
        Ok(method)
    }
}
