//! The result as a person reads it.

use std::fmt::Write as _;

use super::{HostHeld, Soaked};
use crate::compare::{Spread, aligned, spread};
use crate::network::HOSTS;

/// What was held at first, at most and in the end, and what the moves took.
#[must_use]
pub fn table(soaked: &Soaked) -> String {
    let columns = ["", "first", "smallest", "largest", "last"];
    let mut rows = vec![columns.map(str::to_owned)];
    for (number, name) in HOSTS.iter().enumerate() {
        let mut row = |what: &str, value: fn(&HostHeld) -> f64| {
            let held = soaked.rounds.iter().filter_map(|round| round.held.as_ref());
            let hosts = held.filter_map(|held| held.hosts.get(number));
            let values: Vec<_> = hosts.map(value).collect();
            let Some(all) = Spread::of(values.iter().copied()) else {
                return;
            };
            let number = |value: Option<&f64>| value.map_or("-".to_owned(), |v| format!("{v:.1}"));
            rows.push([
                format!("{what} of {name}"),
                number(values.first()),
                format!("{:.1}", all.min),
                format!("{:.1}", all.max),
                number(values.last()),
            ]);
        };
        row("agent's MiB", |host| {
            host.agent.memory.0 as f64 / f64::from(1 << 20)
        });
        row("agent's threads", |host| host.agent.threads as f64);
        row("agent's descriptors", |host| host.agent.descriptors as f64);
        row("processes", |host| host.processes.len() as f64);
        row("files", |host| host.files.len() as f64);
        row("records", |host| host.records as f64);
    }
    let mut text = aligned(&rows);
    let measured = |value: fn(&crate::Measured) -> f64| {
        let good = soaked.rounds.iter().filter(|round| round.run.verified);
        Spread::of(good.filter_map(|round| round.run.measured.as_ref().map(value)))
    };
    let verified = soaked
        .rounds
        .iter()
        .filter(|round| round.run.verified)
        .count();
    let harmed = soaked
        .rounds
        .iter()
        .filter(|round| !round.faults.is_empty())
        .count();
    let _ = writeln!(
        text,
        "\n{verified} of {} moves arrived and were verified, {harmed} of them with faults of seed {}\n\
         total {} ms, downtime {} ms, guest silent {} ms: medians (smallest-largest)",
        soaked.settings.migrations,
        soaked.settings.guest.seed,
        spread(measured(|m| m.total_ms), 1.0, 0),
        spread(measured(|m| m.downtime_ms), 1.0, 0),
        spread(measured(|m| m.guest_gap_ms), 1.0, 0),
    );
    let _ = match &soaked.wrong {
        Some(wrong) => writeln!(text, "WRONG: {wrong}"),
        None => writeln!(text, "nothing grew"),
    };
    text
}
