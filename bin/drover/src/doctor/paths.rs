//! The paths between hosts, as their agents find them.

use std::fmt::Write as _;
use std::time::Duration;

use drover_api::{
    ClusterPathsRequest, ClusterPathsView, LoadRequest, LoadedTogether, MemberLeftOut, PathLeftOut,
};
use drover_tune::facts::{Fact, Joint, Path};
use drover_tune::{Report, Skipped, Subject};

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
    /// What loading several at once took, where that was asked for.
    pub loaded_together: Option<LoadedTogether>,
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

/// Has paths asked; members that are silent are added.
pub async fn ask(
    agent: &Agent,
    request: &ClusterPathsRequest,
    silent: &mut Vec<MemberLeftOut>,
) -> Result<Asked, Failure> {
    let asked = client(agent)?.cluster_paths(request).await;
    let ClusterPathsView {
        paths,
        paths_left_out: left_out,
        left_out: members,
        loaded_together,
        not_kept,
    } = asked.map_err(Failure::of_reading)?;
    let known = |member: &MemberLeftOut| silent.iter().any(|known| known.host == member.host);
    let new: Vec<_> = members.into_iter().filter(|one| !known(one)).collect();
    silent.extend(new);
    Ok(Asked {
        paths,
        left_out,
        loaded_together,
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

    /// One line about all of them, one for each that was loaded, and one where they are not kept.
    pub fn summary(&self) -> String {
        let mut said = self.counted();
        said.extend(self.paths.iter().filter_map(carried));
        said.extend(self.loaded_together.as_ref().map(budget));
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
    Some(format!("  {}: {told}{}\n", clean(&ends), together(path)))
}

/// What it carried with others; why not is told with what was skipped.
fn together(path: &Path) -> String {
    let Some(together) = &path.together else {
        return String::new();
    };
    if together.beside {
        return "; with others its line was loaded by another path of these hosts".to_owned();
    }
    let told = |joint: &Fact<Joint>| match joint.known() {
        Some(joint) => format!("{} Mbit/s", joint.carried.rate / 1_000_000),
        None => "not measured".to_owned(),
    };
    format!(
        "; with all that load {}: {}; while every host loads another: {}",
        clean(&path.far.host),
        told(&together.to_one),
        told(&together.each_other)
    )
}

/// What was made of loads of several hosts at once, and what that took of what it might.
fn budget(told: &LoadedTogether) -> String {
    let LoadedTogether {
        budget_ms,
        took_ms,
        to_one,
        each_other,
        wanted,
        paths,
        measured,
        share,
    } = *told;
    let share = match share {
        Some(share) => format!("{share} % of a link"),
        None => "a link, or half of it where guests run".to_owned(),
    };
    format!(
        "loaded together {} of {wanted} times: {to_one} times one host by all others, {each_other} times each by another; {measured} of {paths} paths; \
         took {} s of {} s at most, and {share} at most by all who load it\n",
        to_one.saturating_add(each_other),
        took_ms.div_ceil(1000),
        budget_ms / 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loads_of_several_hosts_took_is_told_beside_what_they_might_take() {
        let told = LoadedTogether {
            budget_ms: 120_000,
            took_ms: 20_100,
            to_one: 4,
            each_other: 2,
            wanted: 7,
            paths: 12,
            measured: 10,
            share: Some(2),
        };
        let said = "loaded together 6 of 7 times: 4 times one host by all others, 2 times each by another; 10 of 12 paths; \
                    took 21 s of 120 s at most, and 2 % of a link at most by all who load it\n";
        assert_eq!(budget(&told), said);
        let all = LoadedTogether {
            share: None,
            ..told
        };
        assert!(budget(&all).contains("half of it where guests run"));
    }
}
