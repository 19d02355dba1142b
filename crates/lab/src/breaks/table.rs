//! What the doctor found, as a person reads it.

use std::fmt::Write as _;

use super::trial::{Look, Trials};
use crate::compare::{Spread, aligned, spread};

/// All of it.
#[must_use]
pub fn table(trials: &Trials) -> String {
    let columns = ["wrong", "how", "rule", "first", "found", "ms"];
    let mut rows = vec![columns.map(str::to_owned)];
    for clean in &trials.clean {
        let whole = clean.looks.iter().filter(|look| look.findings == 0);
        rows.push([
            format!("nothing: {}", clean.what),
            String::new(),
            "none".to_owned(),
            first_of(&clean.looks, |look| look.findings == 0),
            format!("{}/{}", whole.count(), clean.looks.len()),
            milliseconds(&clean.looks),
        ]);
    }
    for found in &trials.breaks {
        let is_right = |look: &Look| look.first.as_deref() == Some(found.rule.as_str());
        let right = found.looks.iter().filter(|look| is_right(look)).count();
        rows.push([
            found.name.clone(),
            if found.written { "written" } else { "done" }.to_owned(),
            found.rule.clone(),
            first_of(&found.looks, is_right),
            format!("{right}/{}", found.looks.len()),
            milliseconds(&found.looks),
        ]);
    }
    let mut text = aligned(&rows);
    text += "found: how often the rule's was the first finding, or nothing was found where nothing is wrong. ms: the\n\
             doctor from its start to its end, median (smallest-largest). written: into what was captured of a host.\n";
    let held = trials.breaks.iter().filter(|found| found.holds()).count();
    let _ = writeln!(text, "\n{held} of {} found", trials.breaks.len());
    text
}

/// The first finding where it is not the right one, else that of the first look.
fn first_of(looks: &[Look], is_right: impl Fn(&Look) -> bool) -> String {
    let shown = looks.iter().find(|look| !is_right(look)).or(looks.first());
    let first = shown.and_then(|look| look.first.clone());
    first.unwrap_or_else(|| "none".to_owned())
}

fn milliseconds(looks: &[Look]) -> String {
    spread(Spread::of(looks.iter().map(|look| look.took_ms)), 1.0, 0)
}
