//! The paths between hosts, as their agents find them.

use std::fmt::Write as _;

use drover_api::{ClusterPathsRequest, ClusterPathsView, MemberLeftOut, PathLeftOut};
use drover_tune::facts::Path;
use drover_tune::{Report, Skipped, Subject};
use drover_types::HostName;

use super::missing::Missing;
use super::show::clean;
use crate::cli::Agent;
use crate::command::client;
use crate::failure::Failure;

/// The rule by which an interface without a path is skipped.
const REACH: &str = "path-reach";

/// What was asked, and what was not.
#[derive(Debug, Default)]
pub struct Asked {
    /// Each path from both of its ends.
    pub paths: Vec<Path>,
    /// Interfaces without one, and pairs of hosts of which nothing could be asked.
    pub left_out: Vec<PathLeftOut>,
    /// Why the agent does not keep them, where all were asked.
    pub not_kept: Option<String>,
}

/// Has the paths of these hosts asked; members that are silent are added.
pub async fn ask(
    agent: &Agent,
    hosts: Vec<HostName>,
    silent: &mut Vec<MemberLeftOut>,
) -> Result<Asked, Failure> {
    let request = ClusterPathsRequest { hosts };
    let asked = client(agent)?.cluster_paths(&request).await;
    let ClusterPathsView {
        paths,
        paths_left_out: left_out,
        left_out: members,
        not_kept,
    } = asked.map_err(Failure::of_reading)?;
    let known = |member: &MemberLeftOut| silent.iter().any(|known| known.host == member.host);
    let new: Vec<_> = members.into_iter().filter(|one| !known(one)).collect();
    silent.extend(new);
    Ok(Asked {
        paths,
        left_out,
        not_kept,
    })
}

impl Asked {
    /// Adds interfaces without a path to what was skipped.
    pub fn skip(&self, report: &mut Report) {
        for left in &self.left_out {
            let Some(nic) = &left.nic else { continue };
            report.skipped.push(Skipped {
                rule: REACH.to_owned(),
                subject: Subject {
                    other: left.far.as_ref().map(ToString::to_string),
                    nic: Some(nic.clone()),
                    ..Subject::host(left.near.as_str())
                },
                because: left.why.clone(),
            });
        }
    }

    /// Pairs of hosts of which nothing could be asked.
    pub fn missing(&self) -> impl Iterator<Item = Missing> {
        let whole = self.left_out.iter().filter(|left| left.nic.is_none());
        whole.filter_map(|left| {
            let far = left.far.as_ref()?;
            Some(Missing::pair(&left.near, far, &left.why))
        })
    }

    /// One line about all of them, and one where they are not kept.
    pub fn summary(&self) -> String {
        let mut said = self.counted();
        if let Some(why) = &self.not_kept {
            let _ = writeln!(said, "the agent does not keep them: {}", clean(why));
        }
        said
    }

    fn counted(&self) -> String {
        let count = self.paths.len();
        let trips = self.paths.iter();
        let trips: Vec<u64> = trips
            .filter_map(|path| path.round_trip.known().copied())
            .collect();
        match trips.iter().min().zip(trips.iter().max()) {
            Some((least, most)) => {
                format!("{count} paths were asked: their round trips take {least} to {most} µs\n")
            }
            None => format!("{count} paths were asked\n"),
        }
    }
}
