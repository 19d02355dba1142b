//! How the bytes of a migration get through its relay.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where bytes are between QEMU's socket and a lane's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DataPathKind {
    /// They stay in the kernel.
    Splice,
    /// They are copied through the relay's memory.
    Copy,
    /// Something of a newer agent.
    #[serde(other)]
    Unknown,
}

/// How the bytes of a migration get through the relay of one host; the other's may choose otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DataPathView {
    /// Which way.
    pub kind: DataPathKind,
    /// Why they are copied, all of them or, with `splice`, some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// They are copied although they were to stay in the kernel.
    #[serde(default)]
    pub fallback: bool,
}

impl fmt::Display for DataPathView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, because) = match self.kind {
            DataPathKind::Splice => ("splice", "some bytes copied, because"),
            DataPathKind::Copy => ("copy", "because"),
            DataPathKind::Unknown => ("unknown", "because"),
        };
        f.write_str(kind)?;
        let mut why = self.why.iter();
        why.try_for_each(|why| write!(f, ", {because} {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_path_is_told_with_its_reason() {
        let told = |kind, why: Option<&str>| {
            let why = why.map(str::to_owned);
            let fallback = false;
            DataPathView {
                kind,
                why,
                fallback,
            }
            .to_string()
        };
        assert_eq!(told(DataPathKind::Splice, None), "splice");
        assert_eq!(
            told(DataPathKind::Copy, Some("verify is on")),
            "copy, because verify is on"
        );
        assert_eq!(
            told(DataPathKind::Splice, Some("9 pipes are all")),
            "splice, some bytes copied, because 9 pipes are all"
        );
    }
}
