//! How the bytes of a migration get through its relay, and where its threads run.

use std::fmt;

use drover_types::Placement;
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

/// Where the threads of the lanes over an interface run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementView {
    /// The NUMA nodes that its hardware is on, where they run near it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<u32>,
    /// The CPUs that they may use then, such as `0-15,32-47`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Why they run wherever the scheduler sees fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

impl From<&Placement> for PlacementView {
    fn from(placement: &Placement) -> Self {
        match placement {
            Placement::Near { nodes, cpus } => Self {
                nodes: nodes.clone(),
                cpus: Some(cpus.to_string()),
                why_not: None,
            },
            Placement::Anywhere { why } => Self {
                why_not: Some(why.clone()),
                ..Self::default()
            },
        }
    }
}

impl fmt::Display for PlacementView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(cpus) = &self.cpus else {
            f.write_str("not placed")?;
            let mut why = self.why_not.iter();
            return why.try_for_each(|why| write!(f, ", because {why}"));
        };
        let nodes: Vec<String> = self.nodes.iter().map(u32::to_string).collect();
        let node = if nodes.len() == 1 { "node" } else { "nodes" };
        write!(f, "{node} {}, CPUs {cpus}", nodes.join(" and "))
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
    #[test]
    fn a_placement_is_told_with_nodes_and_cpus_or_with_what_is_in_its_way() {
        let near = |nodes: &[u32]| Placement::Near {
            nodes: nodes.to_vec(),
            cpus: "16-31,48-63".parse().unwrap(),
        };
        for (placement, told) in [
            (near(&[1]), "node 1, CPUs 16-31,48-63"),
            (near(&[0, 2]), "nodes 0 and 2, CPUs 16-31,48-63"),
            (
                Placement::anywhere("it is virtual"),
                "not placed, because it is virtual",
            ),
        ] {
            assert_eq!(PlacementView::from(&placement).to_string(), told);
        }
    }
}
