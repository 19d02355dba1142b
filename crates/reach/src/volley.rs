//! Loss and round trips, from small packets that are counted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Packets of which each is answered once, or not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Volley {
    sent: u32,
    microseconds: Vec<u64>,
}

/// What became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trips {
    /// That left this host.
    pub sent: u32,
    /// That were answered.
    pub answered: u32,
    /// How long that took; none where nothing was answered.
    pub round_trip: Option<RoundTrip>,
}

/// How long answers took, in microseconds, with the time in which both agents were woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// The shortest.
    pub least: u64,
    /// As many took longer as took less.
    pub median: u64,
    /// The longest.
    pub most: u64,
}

impl Volley {
    /// One has left.
    pub(crate) fn sent(&mut self) {
        self.sent += 1;
    }

    /// One was answered, after so long.
    pub(crate) fn answered(&mut self, after: Duration) {
        let microseconds = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.push(microseconds);
    }

    /// What became of all.
    pub(crate) fn trips(mut self) -> Trips {
        self.microseconds.sort_unstable();
        let all = &self.microseconds;
        let round_trip = all.first().zip(all.last()).map(|(least, most)| RoundTrip {
            least: *least,
            median: all[all.len() / 2],
            most: *most,
        });
        Trips {
            sent: self.sent,
            answered: u32::try_from(all.len()).unwrap_or(u32::MAX),
            round_trip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_told_by_the_shortest_the_one_in_the_middle_and_the_longest() {
        let mut volley = Volley::default();
        for after in [900, 100, 200, 300] {
            volley.sent();
            volley.answered(Duration::from_micros(after));
        }
        volley.sent();
        let round_trip = Some(RoundTrip {
            least: 100,
            median: 300,
            most: 900,
        });
        let trips = volley.trips();
        assert_eq!(
            (trips.sent, trips.answered, trips.round_trip),
            (5, 4, round_trip)
        );
        assert_eq!(Volley::default().trips(), Trips::default());
    }
}
