//! Scenarios as a person reads them.

use std::fmt::Write as _;

use super::Shown;
use super::judge::Found;
use crate::compare::{aligned, spread};

/// One scenario's verdict, in one line.
pub(super) fn line(found: &Found) -> String {
    let verdict = if found.holds() {
        "holds"
    } else {
        "DOES NOT HOLD"
    };
    format!("{}: {verdict}", found.name)
}

/// All of them as a table, medians with the smallest and largest in brackets, and below it what
/// each was held against.
#[must_use]
pub fn table(shown: &Shown) -> String {
    let columns = [
        "scenario",
        "verified",
        "total ms",
        "ideal ms",
        "extra ms",
        "downtime ms",
        "guest gap ms",
        "resent MiB",
        "verdict",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    for found in &shown.scenarios {
        let verified = found.runs.iter().filter(|run| run.verified).count();
        rows.push([
            found.name.clone(),
            format!("{verified}/{}", found.runs.len()),
            spread(found.total_ms, 1.0, 0),
            spread(found.ideal_ms, 1.0, 0),
            spread(found.extra_ms, 1.0, 0),
            spread(found.downtime_ms, 1.0, 0),
            spread(found.guest_gap_ms, 1.0, 0),
            spread(found.resent_bytes, 1.0 / f64::from(1 << 20), 1),
            if found.holds() { "holds" } else { "FAILS" }.to_owned(),
        ]);
    }
    let mut text = aligned(&rows);
    text += "Medians (smallest-largest) of verified runs. Ideal: the lines that were left, from the\n\
             moment of the fault on; extra: beyond that.\n\n";
    for found in &shown.scenarios {
        let _ = writeln!(text, "{}: {}", found.name, found.what);
        for check in &found.checks {
            let mark = if check.holds { "holds" } else { "FAILS" };
            let _ = writeln!(text, "  {mark}  {}: {}", check.wanted, check.found);
        }
    }
    let held = shown.scenarios.iter().filter(|found| found.holds()).count();
    let _ = writeln!(text, "\n{held} of {} scenarios hold", shown.scenarios.len());
    text
}
