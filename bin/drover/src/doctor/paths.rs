//! The paths between hosts, as their agents find them.

use std::fmt::Write as _;
use std::time::Duration;

use drover_api::{ClusterPathsRequest, ClusterPathsView, LoadRequest, MemberLeftOut, PathLeftOut};
use drover_tune::facts::{Fact, Path};
use drover_tune::{Report, Skipped, Subject};
use drover_types::HostName;

use super::missing::Missing;
use super::show::clean;
use crate::cli::{Agent, duration};
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

/// Longest time that agents load a path.
const LOAD_MOST: Duration = Duration::from_secs(10);

/// How long each path is loaded, as it is given.
pub fn load_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time > LOAD_MOST {
        let most = LOAD_MOST.as_secs();
        return Err(format!("a path is loaded for 1s to {most}s"));
    }
    Ok(time)
}

/// What the agents are asked for.
pub fn load(time: Option<Duration>, share: Option<u8>) -> Option<LoadRequest> {
    let time_ms = u64::try_from(time?.as_millis()).unwrap_or(u64::MAX);
    Some(LoadRequest { time_ms, share })
}

/// Has the paths of these hosts asked; members that are silent are added.
pub async fn ask(
    agent: &Agent,
    hosts: Vec<HostName>,
    load: Option<LoadRequest>,
    silent: &mut Vec<MemberLeftOut>,
) -> Result<Asked, Failure> {
    let request = ClusterPathsRequest { hosts, load };
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
        said.extend(self.paths.iter().filter_map(carried));
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

/// A line about what a path carries, where that was to be measured.
fn carried(path: &Path) -> Option<String> {
    let (near, far) = (&path.near, &path.far);
    let told = match path.carried.as_ref()? {
        Fact::Unknown(why) => format!("not measured, because {}", clean(why)),
        Fact::Known(carried) => {
            let mbit = |rate: u64| rate / 1_000_000;
            let of = |what: &str, rate: Option<u64>| {
                rate.map_or_else(String::new, |rate| format!("{what}{}", mbit(rate)))
            };
            format!(
                "{} Mbit/s{}{}; {} of {} packets were sent again",
                mbit(carried.rate),
                of(", its slower link has ", carried.line),
                of(", allowed were ", carried.allowed),
                carried.again,
                carried.packets
            )
        }
    };
    let ends = format!("{} {} to {} {}", near.host, near.nic, far.host, far.nic);
    Some(format!("  {}: {told}\n", clean(&ends)))
}
