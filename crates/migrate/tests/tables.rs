//! The whole table phase x input of both machines, as golden files. A line that changes is a
//! decision that changes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

use std::fmt::Write as _;
use std::time::Duration;

use drover_migrate::{
    CancelledBy, DestinationRecord, DestinationStep, GuestSeen, HandOffAnswer, JournalVersion,
    Migration, MigrationSeen, Observation, Output, Reason, Refused, SourceRecord, SourceStep, Time,
    Verdict, destination, source,
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
    ]
}

/// What a machine does, in one line.
fn result(phase: &str, before: &str, done: &[String], refused: Option<Refused>) -> String {
    let done = done.join(", ");
    match refused {
        Some(Refused::TooLate) => "refused, too late".to_owned(),
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

mod source_side {
    use super::*;
    use source::{Action, Input, Phase, Source};

    fn path() -> Path {
        let end = |host: u8| PathEnd {
            interface: "eth0".into(),
            address: std::net::Ipv4Addr::new(10, 0, 0, host).into(),
        };
        Path {
            id: PathId(0),
            source: end(1),
            destination: end(2),
            rate: None,
            mtu: 1500,
        }
    }

    fn inputs() -> Vec<(String, Input)> {
        let mut inputs = vec![
            Input::DestinationReady {
                paths: vec![path()],
                channels: 2,
            },
            Input::DestinationRefused { reason: why() },
            Input::LanesUp,
            Input::DestinationListens,
            Input::SessionFailed { reason: why() },
            Input::MigrationStarted,
            Input::MigrationRefused { reason: why() },
            Input::HypervisorGone { reason: why() },
            Input::DestinationGone { reason: why() },
            Input::HandOffUnreachable { reason: why() },
            Input::DestinationAbandoned,
            Input::AbandonUnreachable { reason: why() },
            Input::GuestForgotten,
            Input::LeaveFailed { reason: why() },
            Input::CancelRequested {
                by: CancelledBy::Operator,
            },
            Input::Journaled,
            Input::JournalFailed { reason: why() },
        ]
        .into_iter()
        .map(|input| (input.name().to_owned(), input))
        .collect::<Vec<_>>();
        let none = Input::DestinationReady {
            paths: Vec::new(),
            channels: 2,
        };
        inputs.insert(1, ("destination-ready, no path".into(), none));
        for (sent, name) in [(true, "sent"), (false, "not sent")] {
            let input = Input::DestinationUnreachable {
                sent,
                reason: why(),
            };
            inputs.push((format!("destination-unreachable, {name}"), input));
        }
        for (name, answer) in [
            ("running", HandOffAnswer::Running),
            ("pending", HandOffAnswer::Pending { reason: why() }),
            ("gone", HandOffAnswer::Gone { reason: why() }),
        ] {
            inputs.push((
                format!("hand-off-answered, {name}"),
                Input::HandOffAnswered(answer),
            ));
        }
        let look = |(name, look)| (format!("hypervisor, {name}"), Input::Hypervisor(look));
        inputs.extend(looks().into_iter().map(look));
        inputs
    }

    /// Everything that comes out until `Wait`; records are acknowledged.
    fn drain(source: &mut Source, now: Time) -> (Vec<String>, Option<Time>) {
        let mut done = Vec::new();
        loop {
            match source.poll(now) {
                Output::Wait(until) => return (done, until),
                Output::Do(Action::Finish(outcome)) => {
                    done.push(format!("Finish({})", name(&outcome)));
                }
                Output::Do(action) => done.push(name(&action)),
                Output::Journal(record) => {
                    done.push(format!("journal {}", name(&record.step)));
                    source.handle(now, Input::Journaled).unwrap();
                }
            }
        }
    }

    fn after(inputs: &[Input]) -> Source {
        let mut source = Source::new(migration(), Time::ZERO);
        drain(&mut source, Time::ZERO);
        for input in inputs {
            source.handle(Time::ZERO, input.clone()).unwrap();
            drain(&mut source, Time::ZERO);
        }
        source
    }

    fn recovered(step: SourceStep) -> Source {
        let record = SourceRecord {
            version: JournalVersion,
            migration: migration(),
            step,
        };
        let mut source = Source::recover(record, Time::ZERO);
        drain(&mut source, Time::ZERO);
        source
    }

    fn phases() -> Vec<(&'static str, Source)> {
        let ready = Input::DestinationReady {
            paths: vec![path()],
            channels: 2,
        };
        let cancel = Input::CancelRequested {
            by: CancelledBy::Operator,
        };
        let completed = Input::Hypervisor(seen(MigrationSeen::Completed, GuestSeen::PostMigrate));
        let told = vec![ready.clone(), Input::LanesUp, Input::DestinationListens];
        let begun = [told.clone(), vec![Input::MigrationStarted]].concat();
        let handed_off = [begun.clone(), vec![completed]].concat();
        let runs = Input::HandOffAnswered(HandOffAnswer::Running);
        let leaving = [handed_off.clone(), vec![runs]].concat();
        let left = [
            Input::HypervisorGone { reason: why() },
            Input::GuestForgotten,
        ];
        vec![
            ("preparing", after(&[])),
            ("connecting", after(std::slice::from_ref(&ready))),
            ("starting", after(&[ready, Input::LanesUp])),
            ("transferring, not accepted yet", after(&told)),
            ("transferring", after(&begun)),
            (
                "cancelling, not accepted yet",
                after(&[told, vec![cancel.clone()]].concat()),
            ),
            ("cancelling", after(&[begun, vec![cancel.clone()]].concat())),
            ("handing-off", after(&handed_off)),
            ("leaving", after(&leaving)),
            (
                "leaving, hypervisor gone",
                after(&[leaving.clone(), left[..1].to_vec()].concat()),
            ),
            ("abandoning", after(&[cancel])),
            ("recovering, preparing", recovered(SourceStep::Preparing)),
            (
                "recovering, transferring",
                recovered(SourceStep::Transferring),
            ),
            ("completed", after(&[leaving, left.to_vec()].concat())),
            (
                "refused",
                after(&[Input::DestinationRefused { reason: why() }]),
            ),
        ]
    }

    #[test]
    fn the_table_of_the_source_is_the_committed_one() {
        let mut table = String::new();
        for (title, source) in phases() {
            let before = source.phase().name();
            let mut lines = Vec::new();
            for (input, value) in inputs() {
                let mut source = source.clone();
                let refused = source.handle(LATER, value).err();
                let (done, _) = drain(&mut source, LATER);
                lines.push((input, result(source.phase().name(), before, &done, refused)));
            }
            lines.extend(deadline(source.clone(), before));
            section(&mut table, title, &lines);
        }
        insta::assert_snapshot!("source", table);
    }

    fn deadline(mut source: Source, before: &str) -> Option<(String, String)> {
        let (_, until) = drain(&mut source, Time::ZERO);
        let until = until?;
        let (done, _) = drain(&mut source, until);
        let result = result(source.phase().name(), before, &done, None);
        Some((format!("deadline, {} s", until.as_secs()), result))
    }

    #[test]
    fn every_phase_has_a_deadline_or_waits_for_something_that_an_operator_can_act_on() {
        for (title, mut source) in phases() {
            let (_, until) = drain(&mut source, Time::ZERO);
            let Some(waiting) = source.waiting() else {
                assert!(matches!(source.phase(), Phase::Ended { .. }), "{title}");
                continue;
            };
            assert!(
                until.is_some() || waiting.on.what_to_do().is_some(),
                "{title}"
            );
        }
    }
}

mod destination_side {
    use super::*;
    use destination::{Action, Destination, Input, Phase};

    fn inputs() -> Vec<(String, Input)> {
        let mut inputs = vec![
            Input::HypervisorStarted,
            Input::StartFailed { reason: why() },
            Input::ListenRequested,
            Input::Listening,
            Input::ListenFailed { reason: why() },
            Input::HypervisorGone { reason: why() },
            Input::SessionFailed { reason: why() },
            Input::AbandonRequested,
            Input::RunRequested,
            Input::VerdictUnreachable { reason: why() },
            Input::GuestResumed,
            Input::ResumeFailed { reason: why() },
            Input::GuestAdopted,
            Input::AdoptFailed { reason: why() },
            Input::Journaled,
            Input::JournalFailed { reason: why() },
        ]
        .into_iter()
        .map(|input| (input.name().to_owned(), input))
        .collect::<Vec<_>>();
        for verdict in [Verdict::Undecided, Verdict::HandedOff, Verdict::Kept] {
            let input = Input::VerdictAnswered(verdict);
            inputs.push((format!("verdict-answered, {}", name(&verdict)), input));
        }
        let look = |(name, look)| (format!("hypervisor, {name}"), Input::Hypervisor(look));
        inputs.extend(looks().into_iter().map(look));
        let settled = [
            ("active", seen(MigrationSeen::Active, GuestSeen::InMigrate)),
            (
                "completed",
                seen(MigrationSeen::Completed, GuestSeen::Paused),
            ),
        ];
        let settled =
            settled.map(|(name, look)| (format!("settled, {name}"), Input::Settled(look)));
        inputs.extend(settled);
        inputs
    }

    fn drain(destination: &mut Destination, now: Time) -> (Vec<String>, Option<Time>) {
        let mut done = Vec::new();
        loop {
            match destination.poll(now) {
                Output::Wait(until) => return (done, until),
                Output::Do(Action::Finish(ending)) => {
                    done.push(format!("Finish({})", name(&ending)));
                }
                Output::Do(action) => done.push(name(&action)),
                Output::Journal(record) => {
                    done.push(format!("journal {}", name(&record.step)));
                    destination.handle(now, Input::Journaled).unwrap();
                }
            }
        }
    }

    fn after(inputs: &[Input]) -> Destination {
        let mut destination = Destination::new(migration(), Time::ZERO);
        drain(&mut destination, Time::ZERO);
        for input in inputs {
            destination.handle(Time::ZERO, input.clone()).unwrap();
            drain(&mut destination, Time::ZERO);
        }
        destination
    }

    fn recovering() -> Destination {
        let step = DestinationStep::Incoming;
        let record = DestinationRecord {
            version: JournalVersion,
            migration: migration(),
            step,
        };
        let mut destination = Destination::recover(record, Time::ZERO);
        drain(&mut destination, Time::ZERO);
        destination
    }

    fn phases() -> Vec<(&'static str, Destination)> {
        let prepared = vec![Input::HypervisorStarted];
        let opening = [prepared.clone(), vec![Input::ListenRequested]].concat();
        let listening = [opening.clone(), vec![Input::Listening]].concat();
        let active = Input::Hypervisor(seen(MigrationSeen::Active, GuestSeen::InMigrate));
        let receiving = [listening.clone(), vec![active]].concat();
        let told = [receiving.clone(), vec![Input::RunRequested]].concat();
        let cut = Input::SessionFailed { reason: why() };
        let settling = [receiving.clone(), vec![cut]].concat();
        let all = Input::Hypervisor(seen(MigrationSeen::Completed, GuestSeen::Paused));
        let arrived = [receiving.clone(), vec![all]].concat();
        let resuming = [arrived.clone(), vec![Input::RunRequested]].concat();
        let adopting = [resuming.clone(), vec![Input::GuestResumed]].concat();
        let running = [adopting.clone(), vec![Input::GuestAdopted]].concat();
        let abandoning = [receiving.clone(), vec![Input::AbandonRequested]].concat();
        let gone = Input::HypervisorGone { reason: why() };
        vec![
            ("starting", after(&[])),
            ("prepared", after(&prepared)),
            ("opening", after(&opening)),
            ("receiving, nothing yet", after(&listening)),
            ("receiving", after(&receiving)),
            ("receiving, handed off", after(&told)),
            ("settling", after(&settling)),
            ("arrived", after(&arrived)),
            ("resuming", after(&resuming)),
            ("adopting", after(&adopting)),
            ("abandoning", after(&abandoning)),
            ("recovering", recovering()),
            ("running", after(&running)),
            (
                "abandoned",
                after(&[abandoning, vec![gone.clone()]].concat()),
            ),
            ("lost", after(&[arrived, vec![gone]].concat())),
        ]
    }

    #[test]
    fn the_table_of_the_destination_is_the_committed_one() {
        let mut table = String::new();
        for (title, destination) in phases() {
            let before = destination.phase().name();
            let mut lines = Vec::new();
            for (input, value) in inputs() {
                let mut destination = destination.clone();
                let refused = destination.handle(LATER, value).err();
                let (done, _) = drain(&mut destination, LATER);
                lines.push((
                    input,
                    result(destination.phase().name(), before, &done, refused),
                ));
            }
            lines.extend(deadline(destination.clone(), before));
            section(&mut table, title, &lines);
        }
        insta::assert_snapshot!("destination", table);
    }

    fn deadline(mut destination: Destination, before: &str) -> Option<(String, String)> {
        let (_, until) = drain(&mut destination, Time::ZERO);
        let until = until?;
        let (done, _) = drain(&mut destination, until);
        let result = result(destination.phase().name(), before, &done, None);
        Some((format!("deadline, {} s", until.as_secs()), result))
    }

    #[test]
    fn every_phase_has_a_deadline_or_waits_for_something_that_an_operator_can_act_on() {
        for (title, mut destination) in phases() {
            let (_, until) = drain(&mut destination, Time::ZERO);
            let Some(waiting) = destination.waiting() else {
                assert!(matches!(destination.phase(), Phase::Ended(_)), "{title}");
                continue;
            };
            assert!(
                until.is_some() || waiting.on.what_to_do().is_some(),
                "{title}"
            );
        }
    }
}
