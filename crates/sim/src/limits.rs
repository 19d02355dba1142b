//! Times of simulated runs, each with its reason.

use std::time::Duration;

/// How long sessions wait for a lane where a test does not say: far more than one needs to return.
pub const OUTAGE_LIMIT: Duration = Duration::from_secs(1);

/// Time until a frame is there over a line of a data centre: some 0.1 ms to and fro.
pub const LINE_LATENCY: Duration = Duration::from_micros(50);
