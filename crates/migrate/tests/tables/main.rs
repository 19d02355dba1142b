//! The whole table phase x input of both machines, as golden files. A line that changes is a
//! decision that changes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod destination_side;
mod source_side;

use std::fmt::Write as _;
use std::time::Duration;

use drover_migrate::{
    CancelledBy, DestinationRecord, DestinationStep, GivenUpOn, GuestSeen, HandOffAnswer,
    JournalVersion, Migration, MigrationSeen, Observation, Outcome, Output, Question, Reason,
    Refused, Resolution, SourceRecord, SourceStep, Time, Verdict, destination, source,
};
use drover_types::{MigrationId, Path, PathEnd, PathId};

/// When every table is made; the machines begin at zero.
const LATER: Time = Duration::from_millis(10);

fn migration() -> Migration {
    Migration {
        id: MigrationId::from_bytes([7; 16]),
        vm: "web1".parse().unwrap(),
        source: "alpha".parse().unwrap(),
        destination: "beta".parse().unwrap(),
    }
}

fn why() -> Reason {
    Reason::from("because")
}

fn seen(migration: MigrationSeen, guest: GuestSeen) -> Observation {
    Observation { migration, guest }
}

/// Every look at a hypervisor that means something of its own.
fn looks() -> Vec<(&'static str, Observation)> {
    use GuestSeen as Guest;
    use MigrationSeen as Seen;
    vec![
        ("none, running", seen(Seen::None, Guest::Running)),
        ("none, paused", seen(Seen::None, Guest::Paused)),
        ("active, running", seen(Seen::Active, Guest::Running)),
        ("active, in-migrate", seen(Seen::Active, Guest::InMigrate)),
        (
            "active, finish-migrate",
            seen(Seen::Active, Guest::FinishMigrate),
        ),
        ("completed, running", seen(Seen::Completed, Guest::Running)),
        ("completed, paused", seen(Seen::Completed, Guest::Paused)),
        (
            "completed, finish-migrate",
            seen(Seen::Completed, Guest::FinishMigrate),
        ),
        (
            "completed, post-migrate",
            seen(Seen::Completed, Guest::PostMigrate),
        ),
        (
            "failed, running",
            seen(Seen::Failed { reason: why() }, Guest::Running),
        ),
        (
            "failed, paused",
            seen(Seen::Failed { reason: why() }, Guest::Paused),
        ),
        (
            "failed, other",
            seen(Seen::Failed { reason: why() }, Guest::Other),
        ),
        ("cancelled, running", seen(Seen::Cancelled, Guest::Running)),
        (
            "postcopy, no page yet",
            seen(Seen::Postcopy { pages: false }, Guest::FinishMigrate),
        ),
        ("postcopy, finish-migrate", {
            seen(Seen::Postcopy { pages: true }, Guest::FinishMigrate)
        }),
        (
            "postcopy, in-migrate",
            seen(Seen::Postcopy { pages: false }, Guest::InMigrate),
        ),
        (
            "postcopy, paused",
            seen(Seen::Postcopy { pages: false }, Guest::Paused),
        ),
        (
            "postcopy-paused, finish-migrate",
            seen(Seen::PostcopyPaused, Guest::FinishMigrate),
        ),
        (
            "postcopy-paused, running",
            seen(Seen::PostcopyPaused, Guest::Running),
        ),
    ]
}

/// What a machine does, in one line.
fn result(phase: &str, before: &str, done: &[String], refused: Option<Refused>) -> String {
    let done = done.join(", ");
    match refused {
        Some(Refused::TooLate) => "refused, too late".to_owned(),
        Some(Refused::RunsHere) => "refused, runs here".to_owned(),
        Some(Refused::TooOld { .. }) => "refused, too old".to_owned(),
        Some(Refused::PagesMissing) => "refused, pages missing".to_owned(),
        Some(Refused::Over) => "refused, over".to_owned(),
        Some(Refused::Unexpected { .. }) => "refused, unexpected".to_owned(),
        None if phase == before && done.is_empty() => "stays".to_owned(),
        None if phase == before => format!("stays; {done}"),
        None if done.is_empty() => format!("to {phase}"),
        None => format!("to {phase}; {done}"),
    }
}

/// Adds a phase: each result with the inputs that lead to it, the refused ones last.
fn section(table: &mut String, title: &str, lines: &[(String, String)]) {
    writeln!(table, "{title}").unwrap();
    let mut results: Vec<&str> = Vec::new();
    for (_, result) in lines {
        if !results.contains(&result.as_str()) {
            results.push(result);
        }
    }
    results.sort_by_key(|result| (result.starts_with("refused,"), *result == "stays"));
    for result in results {
        writeln!(table, "  {result}").unwrap();
        let inputs = lines.iter().filter(|(_, other)| other == result);
        for names in inputs
            .map(|(input, _)| input.as_str())
            .collect::<Vec<_>>()
            .chunks(4)
        {
            writeln!(table, "      {}", names.join(" | ")).unwrap();
        }
    }
    table.push('\n');
}

/// The name of an enum's value without what it carries.
fn name(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split([' ', '(', '{'])
        .next()
        .unwrap_or_default()
        .to_owned()
}
