//! What a relay's report has that the one before it had not: lanes that are new or silent, paths that
//! were lost and are back, chunks that are late.
//!
//! The relay itself tells of lanes that it lost, and where it dials of paths. The rest can only be seen by
//! comparing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use drover_api::{EventKind, MigrationRole};
use drover_relay::{LaneEnd, LaneEnds, LaneId, LaneReport, Report};
use drover_types::{Path, PathId};

use super::outgoing::millis;
use crate::limits::HEDGING_OVER;

/// What was noticed so far.
#[derive(Debug, Default)]
pub struct Noticed {
    /// Each lane with how often it had been suspected.
    lanes: BTreeMap<LaneId, u32>,
    /// The lanes that each path had.
    living: BTreeMap<PathId, Vec<LaneId>>,
    /// Paths without a lane, and since when.
    lost: BTreeMap<PathId, Duration>,
    /// Paths of which a lane was seen that does not run between their addresses.
    elsewhere: BTreeSet<PathId>,
    hedged_chunks: u64,
    hedging: Option<Hedging>,
}

/// Chunks are late, and sent twice.
#[derive(Debug, Clone, Copy)]
struct Hedging {
    since: Duration,
    last: Duration,
    /// So many had been before.
    before: u64,
}

impl Noticed {
    /// Everything that is new in a report of `at`, by the relay's clock.
    pub fn in_report(
        &mut self,
        (at, report): (Duration, &Report),
        paths: &[Path],
        role: MigrationRole,
    ) -> Vec<EventKind> {
        let mut news = self.of_lanes(report);
        // Where lanes are dialled the relay tells of them itself, in the moment.
        if role == MigrationRole::Destination {
            news.extend(self.of_paths(at, report));
        }
        news.extend(self.of_addresses(paths, report, role));
        news.extend(self.of_late_chunks(at, report.session.hedged_chunks));
        news
    }

    /// Lanes that are new, and those that were suspected.
    fn of_lanes(&mut self, report: &Report) -> Vec<EventKind> {
        let mut news = Vec::new();
        for LaneReport { path, stats, .. } in &report.lanes {
            let (lane, path) = (stats.lane, *path);
            let before = self.lanes.get(&lane);
            if before.is_none() {
                news.push(EventKind::LaneUp { lane, path });
            }
            if stats.suspicions > before.copied().unwrap_or(0) {
                news.push(EventKind::LaneSuspected { lane, path });
            }
        }
        let seen = |lane: &LaneReport| (lane.stats.lane, lane.stats.suspicions);
        self.lanes = report.lanes.iter().map(seen).collect();
        news
    }

    /// Paths whose last lanes were lost, and those that have lanes again. Lanes that were closed, as at
    /// the end of a session, were not lost.
    fn of_paths(&mut self, at: Duration, report: &Report) -> Vec<EventKind> {
        let mut news = Vec::new();
        let mut living: BTreeMap<PathId, Vec<LaneId>> = BTreeMap::new();
        for lane in report.lanes.iter().filter(|lane| lane.ended.is_none()) {
            living.entry(lane.path).or_default().push(lane.stats.lane);
        }
        for (path, lanes) in &self.living {
            if !living.contains_key(path)
                && let Some(reason) = loss_of(lanes, report)
            {
                let (path, nics) = (*path, None);
                news.push(EventKind::PathLost { path, nics, reason });
                self.lost.insert(path, at);
            }
        }
        for path in living.keys() {
            if let Some(since) = self.lost.remove(path) {
                let lasted_ms = millis(at.saturating_sub(since));
                let (path, nics) = (*path, None);
                news.push(EventKind::PathBack {
                    path,
                    nics,
                    lasted_ms,
                });
            }
        }
        self.living = living;
        news
    }

    /// Lanes that do not run between the addresses of their path: said once for each path.
    fn of_addresses(
        &mut self,
        paths: &[Path],
        report: &Report,
        role: MigrationRole,
    ) -> Vec<EventKind> {
        let mut news = Vec::new();
        for lane in &report.lanes {
            let path = paths.iter().find(|path| path.id == lane.path);
            if let Some(what) = path.and_then(|path| elsewhere(path, &lane.ends, role))
                && self.elsewhere.insert(lane.path)
            {
                news.push(EventKind::Fallback { what });
            }
        }
        news
    }

    /// That chunks begin to be sent twice, and that none was for a while.
    fn of_late_chunks(&mut self, at: Duration, hedged_chunks: u64) -> Option<EventKind> {
        let before = std::mem::replace(&mut self.hedged_chunks, hedged_chunks);
        if hedged_chunks > before {
            let since = self.hedging.map_or(at, |hedging| hedging.since);
            let began = self.hedging.is_none();
            let before = self.hedging.map_or(before, |hedging| hedging.before);
            self.hedging = Some(Hedging {
                since,
                last: at,
                before,
            });
            return began.then_some(EventKind::HedgingBegan);
        }
        let over = |hedging: &Hedging| at.saturating_sub(hedging.last) >= HEDGING_OVER;
        let hedging = self.hedging.filter(over)?;
        self.hedging = None;
        Some(EventKind::HedgingEnded {
            chunks: hedged_chunks.saturating_sub(hedging.before),
            lasted_ms: millis(hedging.last.saturating_sub(hedging.since)),
        })
    }
}

/// Why all of these lanes are lost, by the last of them; nothing if one was closed.
fn loss_of(lanes: &[LaneId], report: &Report) -> Option<String> {
    let ended = report
        .lanes
        .iter()
        .filter(|lane| lanes.contains(&lane.stats.lane));
    let mut reason = None;
    for lane in ended {
        match &lane.ended {
            Some(LaneEnd::Lost(why)) => reason = Some(why.clone()),
            _ => return None,
        }
    }
    reason
}

/// What is to be said of a lane whose connection has other addresses than its path.
fn elsewhere(path: &Path, ends: &LaneEnds, role: MigrationRole) -> Option<String> {
    let (near, far) = match role {
        MigrationRole::Source => (&path.source, &path.destination),
        MigrationRole::Destination => (&path.destination, &path.source),
    };
    let real = |end: SocketAddr| end.ip().to_canonical();
    let (local, peer) = (real(ends.local), real(ends.peer));
    ((local, peer) != (near.address, far.address)).then(|| {
        format!(
            "path {} is from {} to {}, but its lanes run between {peer} and {local}: addresses \
             are translated between the hosts, or packets take another way",
            path.id, far.address, near.address
        )
    })
}

#[cfg(test)]
mod tests {
    use drover_relay::{DataPath, LaneStats, Stats};
    use drover_types::PathEnd;

    use super::*;

    fn end(address: &str) -> PathEnd {
        PathEnd {
            interface: "nic0".into(),
            address: address.parse().unwrap(),
        }
    }

    fn ends(local: &str, peer: &str) -> LaneEnds {
        LaneEnds {
            local: local.parse().unwrap(),
            peer: peer.parse().unwrap(),
        }
    }

    fn lane(lane: LaneId, path: u16, ended: Option<LaneEnd>) -> LaneReport {
        LaneReport {
            path: PathId(path),
            stats: LaneStats {
                lane,
                ..LaneStats::default()
            },
            ends: ends("10.0.0.2:7471", "10.0.0.1:40000"),
            tcp: None,
            ended,
        }
    }

    fn report(lanes: Vec<LaneReport>, hedged_chunks: u64) -> Report {
        Report {
            lanes,
            nics: Vec::new(),
            paths: Vec::new(),
            session: Stats {
                hedged_chunks,
                ..Stats::default()
            },
            data_path: DataPath::Splice {
                except: None,
                reduced: false,
            },
            reduced: None,
            expanded: None,
            stored: None,
            bulk: None,
        }
    }

    fn lost(why: &str) -> Option<LaneEnd> {
        Some(LaneEnd::Lost(why.into()))
    }

    /// What is new as the destination in each of these reports, a second apart, lanes left out.
    fn noticed(reports: Vec<Report>) -> Vec<Vec<String>> {
        let mut noticed = Noticed::default();
        let mut at = Duration::ZERO;
        let mut news = |report| {
            at += Duration::from_secs(1);
            let news = noticed.in_report((at, &report), &[], MigrationRole::Destination);
            let news = news.iter().map(ToString::to_string);
            news.filter(|text| !text.starts_with("lane")).collect()
        };
        reports.into_iter().map(&mut news).collect()
    }

    #[test]
    fn a_destination_tells_of_a_path_that_was_lost_and_is_back() {
        let told = noticed(vec![
            report(vec![lane(0, 0, None), lane(1, 1, None)], 0),
            report(vec![lane(0, 0, None), lane(1, 1, lost("link down"))], 0),
            report(vec![lane(0, 0, None), lane(1, 1, lost("link down"))], 0),
            report(
                vec![
                    lane(0, 0, None),
                    lane(1, 1, lost("link down")),
                    lane(2, 1, None),
                ],
                0,
            ),
        ]);
        let lost = "path 1 has no lane left, and is dialled again: link down";
        let back = "path 1 has lanes again after 2000 ms";
        assert_eq!(told, [vec![], vec![lost], vec![], vec![back]]);
    }

    #[test]
    fn lanes_that_are_closed_at_the_end_are_no_lost_path() {
        let told = noticed(vec![
            report(vec![lane(0, 0, None), lane(1, 0, None)], 0),
            report(
                vec![
                    lane(0, 0, Some(LaneEnd::Closed)),
                    lane(1, 0, lost("reset by the peer that closes, too")),
                ],
                0,
            ),
        ]);
        assert_eq!(told, [Vec::<String>::new(), vec![]]);
    }

    #[test]
    fn chunks_that_are_late_are_told_when_that_begins_and_when_it_is_over() {
        let counts = [0, 3, 5, 5, 5, 6];
        let reports = counts.map(|count| report(Vec::new(), count));
        let told = noticed(reports.into());
        let began = "chunks are late on their lane: they are sent on a second one as well";
        let over = "no chunk is late any more: 5 were sent on a second lane within 1000 ms";
        assert_eq!(
            told,
            [vec![], vec![began], vec![], vec![over], vec![], vec![began]]
        );
    }

    #[test]
    fn a_lane_that_runs_between_other_addresses_than_its_path_is_told() {
        let path = Path {
            id: PathId(3),
            source: end("10.0.0.1"),
            destination: end("10.0.0.2"),
            rate: None,
            mtu: 1500,
        };
        let source = ends("10.0.0.1:40000", "10.0.0.2:7471");
        assert_eq!(elsewhere(&path, &source, MigrationRole::Source), None);
        // As a listener for both families sees it.
        let there = ends("[::ffff:10.0.0.2]:7471", "[::ffff:10.0.0.1]:40000");
        assert_eq!(elsewhere(&path, &there, MigrationRole::Destination), None);
        let translated = ends("10.0.0.2:7471", "10.9.9.9:1024");
        let said = elsewhere(&path, &translated, MigrationRole::Destination).unwrap();
        assert!(
            said.contains("path 3") && said.contains("10.9.9.9"),
            "{said}"
        );
        let other_nic = ends("10.0.1.2:7471", "10.0.0.1:1024");
        assert!(elsewhere(&path, &other_nic, MigrationRole::Destination).is_some());
    }
}
