//! What an agent said of the time that was left when a quarter of the work was done, and how long it took.

use drover_api::MigrationView;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The part of what is sent in the end at which the word counts, in percent.
const AT_PERCENT: u64 = 25;

/// A prediction, and what became of it. From the first look with a quarter of the bytes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Foretold {
    /// What was expected, in milliseconds; none where nothing was said.
    pub expected_ms: Option<u64>,
    /// The least and the most, likewise.
    pub range_ms: [Option<u64>; 2],
    /// How long it took until the guest ran on the destination.
    pub took_ms: u64,
}

impl Foretold {
    /// How far what was expected was from what it took, as a part of that.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let took = self.took_ms.max(1) as f64;
        Some((self.expected_ms? as f64 - took) / took)
    }
}

/// Every look at one migration.
#[derive(Debug, Default)]
pub(crate) struct Looks(Vec<Look>);

#[derive(Debug)]
struct Look {
    at: Timestamp,
    sent: u64,
    said: [Option<u64>; 3],
}

impl Looks {
    /// One more.
    pub(crate) fn look(&mut self, view: &MigrationView) {
        self.0.push(Look {
            at: Timestamp::now(),
            sent: view.bytes.transferred.0,
            said: [
                view.time_left_ms,
                view.time_left_least_ms,
                view.time_left_most_ms,
            ],
        });
    }

    /// By the view at the end; none where the guest did not arrive, or too fast to be looked at.
    pub(crate) fn foretold(&self, end: &MigrationView) -> Option<Foretold> {
        let before = end.prepare_ms?.checked_add(end.total_ms?)?;
        let ran = end.started_at.as_millisecond() + i64::try_from(before).ok()?;
        let quarter = end.bytes.transferred.0 / 100 * AT_PERCENT;
        let look = self.0.iter().find(|look| look.sent >= quarter)?;
        let took_ms = u64::try_from(ran - look.at.as_millisecond()).ok()?;
        let [expected_ms, least, most] = look.said;
        (took_ms > 0).then_some(Foretold {
            expected_ms,
            range_ms: [least, most],
            took_ms,
        })
    }
}
