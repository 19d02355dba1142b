//! How many multifd channels QEMU is told to open.

use drover_types::{BitRate, Path};
use serde::{Deserialize, Serialize};

use crate::limits::CHANNELS;

/// What one multifd channel carries at least, thread and copy included: 4.5 to 5 Gbit/s were
/// measured for one TCP stream on one core ten years ago, and 1.6 GiB/s on 100 Gbit/s
/// (cloud-hypervisor issue 7669). Counting less per channel opens more of them.
const PER_CHANNEL: BitRate = BitRate(5_000_000_000);

/// Even one slow path gets two: while one waits for its socket the other reads pages.
const FEWEST: u64 = 2;

/// A number of channels and what decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelCount {
    /// multifd channels, 1 to 8.
    pub count: u8,
    /// What kept it from being larger.
    pub limit: ChannelLimit,
}

/// What decides a number of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelLimit {
    /// The paths carry no more.
    Paths,
    /// The host with fewer cores: each channel keeps one busy at both ends.
    Cores,
    /// More were measured to be slower.
    Most,
    /// The operator's configuration.
    Configured,
}

/// Chooses the number of channels: enough for the paths' rates, one for each path, and no more
/// than the cores that may be used at either end.
#[must_use]
pub fn channels(paths: &[Path], source_cores: u32, destination_cores: u32) -> ChannelCount {
    let known: u64 = paths
        .iter()
        .filter_map(|path| path.rate)
        .map(|rate| rate.0)
        .sum();
    let for_rate = known.div_ceil(PER_CHANNEL.0);
    let for_paths = u64::try_from(paths.len()).unwrap_or(u64::MAX);
    let wanted = for_rate.max(for_paths).max(FEWEST);
    let cores = u64::from(source_cores.min(destination_cores).max(1));
    let most = u64::from(CHANNELS);
    let (count, limit) = if wanted <= cores.min(most) {
        (wanted, ChannelLimit::Paths)
    } else if cores < most {
        (cores, ChannelLimit::Cores)
    } else {
        (most, ChannelLimit::Most)
    };
    ChannelCount {
        count: u8::try_from(count).unwrap_or(CHANNELS),
        limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_types::{PathEnd, PathId};
    use std::net::{IpAddr, Ipv4Addr};

    fn paths(rates: &[u64]) -> Vec<Path> {
        let end = PathEnd {
            interface: "a".into(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let path = |gbit: &u64| Path {
            id: PathId(0),
            source: end.clone(),
            destination: end.clone(),
            rate: (*gbit > 0).then(|| BitRate(gbit * 1_000_000_000)),
            mtu: 1500,
        };
        rates.iter().map(path).collect()
    }

    fn chosen(rates: &[u64], source: u32, destination: u32) -> (u8, ChannelLimit) {
        let ChannelCount { count, limit } = channels(&paths(rates), source, destination);
        (count, limit)
    }

    #[test]
    fn every_path_has_a_channel_and_one_slow_path_has_two() {
        assert_eq!(chosen(&[1], 16, 16), (2, ChannelLimit::Paths));
        assert_eq!(chosen(&[1, 1, 1], 16, 16), (3, ChannelLimit::Paths));
        assert_eq!(chosen(&[0, 0], 16, 16), (2, ChannelLimit::Paths));
    }

    #[test]
    fn fast_paths_have_more_channels_until_more_is_slower() {
        assert_eq!(chosen(&[10, 10], 16, 16), (4, ChannelLimit::Paths));
        assert_eq!(chosen(&[100], 64, 64), (8, ChannelLimit::Most));
    }

    #[test]
    fn the_host_with_fewer_cores_decides() {
        assert_eq!(chosen(&[1, 1, 1], 2, 64), (2, ChannelLimit::Cores));
        assert_eq!(chosen(&[100], 64, 1), (1, ChannelLimit::Cores));
        assert_eq!(chosen(&[], 0, 0), (1, ChannelLimit::Cores));
    }
}
