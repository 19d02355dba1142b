//! The source's table.

use super::*;
use drover_migrate::{Verdict, limits};
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

fn inputs(question: Question, attempt: Question) -> Vec<(String, Input)> {
    let mut inputs = vec![
        Input::DestinationReady {
            paths: vec![path()],
            channels: 2,
        },
        Input::DestinationRefused { reason: why() },
        Input::LanesUp,
        Input::DestinationListens,
        Input::SessionLives,
        Input::SessionFailed { reason: why() },
        Input::MigrationStarted,
        Input::MigrationRefused { reason: why() },
        Input::HypervisorGone { reason: why() },
        Input::DestinationGone { reason: why() },
        Input::HandOffUnreachable {
            question,
            reason: why(),
        },
        Input::GiveUpRequested,
        Input::PostcopyRequested,
        Input::PostcopyRefused { reason: why() },
        Input::DestinationArrived,
        Input::DestinationRuns,
        Input::DestinationAbandoned,
        Input::AbandonUnreachable { reason: why() },
        Input::GuestForgotten,
        Input::GuestReturned,
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
        ("filling", HandOffAnswer::Filling),
        ("cut-off", HandOffAnswer::CutOff),
        ("pending", HandOffAnswer::Pending { reason: why() }),
        ("gone", HandOffAnswer::Gone { reason: why() }),
        ("discarded", HandOffAnswer::Discarded),
    ] {
        for (question, late) in [(question, ""), (Question::default(), ", late")] {
            let answer = answer.clone();
            inputs.push((
                format!("hand-off-answered, {name}{late}"),
                Input::HandOffAnswered { question, answer },
            ));
        }
    }
    for (attempt, late) in [(attempt, ""), (Question::default(), ", late")] {
        let of_session = [
            Input::SessionReopened { attempt },
            Input::ReopenFailed {
                attempt,
                reason: why(),
            },
            Input::ResumeRefused {
                attempt,
                reason: why(),
            },
            Input::MigrationResumed { attempt },
            Input::LookedAgain {
                attempt,
                seen: seen(MigrationSeen::PostcopyPaused, GuestSeen::FinishMigrate),
            },
        ];
        let named = |input: Input| (format!("{}{late}", input.name()), input);
        inputs.extend(of_session.map(named));
    }
    let late = Input::HandOffUnreachable {
        question: Question::default(),
        reason: why(),
    };
    inputs.push(("hand-off-unreachable, late".into(), late));
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
    on(source, inputs)
}

/// Answers are to the last question.
fn on(mut source: Source, inputs: &[Input]) -> Source {
    for input in inputs {
        let (question, attempt) = (source.question(), source.page_attempt());
        let input = match input.clone() {
            Input::HandOffAnswered { answer, .. } => Input::HandOffAnswered { question, answer },
            Input::HandOffUnreachable { reason, .. } => {
                Input::HandOffUnreachable { question, reason }
            }
            Input::SessionReopened { .. } => Input::SessionReopened { attempt },
            Input::MigrationResumed { .. } => Input::MigrationResumed { attempt },
            Input::LookedAgain { seen, .. } => Input::LookedAgain { attempt, seen },
            Input::ReopenFailed { reason, .. } => Input::ReopenFailed { attempt, reason },
            other => other,
        };
        source.handle(Time::ZERO, input).unwrap();
        drain(&mut source, Time::ZERO);
    }
    source
}

/// The time that the machine waits for now passes.
fn later(mut source: Source) -> Source {
    let (_, until) = drain(&mut source, Time::ZERO);
    drain(&mut source, until.unwrap());
    source
}

/// Between the two, looks at the hypervisor have become as young as they need to be.
fn a_while_after(before: &[Input], then: &[Input]) -> Source {
    let mut source = after(before);
    drain(&mut source, limits::LOOK_AGE);
    for input in then {
        source.handle(Time::ZERO, input.clone()).unwrap();
        drain(&mut source, Time::ZERO);
    }
    source
}

fn recovered(step: SourceStep, inputs: &[Input]) -> Source {
    let record = SourceRecord {
        version: JournalVersion,
        migration: migration(),
        step,
    };
    let mut source = Source::recover(record, Time::ZERO);
    drain(&mut source, Time::ZERO);
    for input in inputs {
        source.handle(Time::ZERO, input.clone()).unwrap();
        drain(&mut source, Time::ZERO);
    }
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
    let accepted = [told.clone(), vec![Input::MigrationStarted]].concat();
    let handed_off = [accepted.clone(), vec![completed]].concat();
    let question = Question::default();
    let runs = Input::HandOffAnswered {
        question,
        answer: HandOffAnswer::Running,
    };
    let leaving = [handed_off.clone(), vec![runs]].concat();
    let left = [
        Input::HypervisorGone { reason: why() },
        Input::GuestForgotten,
    ];
    let silent = Input::HandOffUnreachable {
        question,
        reason: why(),
    };
    let doubtful = [handed_off.clone(), vec![silent.clone()]].concat();
    let asking = later(after(&doubtful));
    let waits = on(asking, &[Input::GiveUpRequested]);
    let over = on(waits.clone(), std::slice::from_ref(&silent));
    let asks = later(over.clone());
    let taking_back = on(asks.clone(), std::slice::from_ref(&silent));
    let taken_back = [left[0].clone(), Input::GuestReturned];
    let transferring = a_while_after(&accepted, &[]);
    let switching = on(transferring.clone(), &[Input::PostcopyRequested]);
    let look = |migration| Input::Hypervisor(seen(migration, GuestSeen::FinishMigrate));
    let pages_follow = look(MigrationSeen::Postcopy { pages: true });
    let paused = look(MigrationSeen::PostcopyPaused);
    let broken = on(switching.clone(), &[Input::SessionFailed { reason: why() }]);
    let has_left = on(switching.clone(), &[pages_follow]);
    let cut_early = on(has_left.clone(), std::slice::from_ref(&paused));
    let unsure = on(cut_early.clone(), std::slice::from_ref(&silent));
    let early = on(has_left.clone(), &[Input::DestinationArrived]);
    let fills = Input::HandOffAnswered {
        question,
        answer: HandOffAnswer::Filling,
    };
    let serving = on(early.clone(), &[fills]);
    let cut_in_hand_off = on(early.clone(), &[Input::SessionFailed { reason: why() }]);
    let attempt = question;
    let broke = Input::LookedAgain {
        attempt,
        seen: seen(MigrationSeen::PostcopyPaused, GuestSeen::FinishMigrate),
    };
    let reopening = on(serving.clone(), std::slice::from_ref(&broke));
    let resuming = on(reopening.clone(), &[Input::SessionReopened { attempt }]);
    let resumed = on(resuming.clone(), &[Input::MigrationResumed { attempt }]);
    let failed = Input::ReopenFailed {
        attempt,
        reason: why(),
    };
    let waiting = on(resuming.clone(), &[failed]);
    let asked = later(waiting.clone());
    let unanswered = on(asked.clone(), std::slice::from_ref(&silent));
    let sends_no_more = on(
        serving.clone(),
        &[look(MigrationSeen::Failed { reason: why() })],
    );
    let gone = on(serving.clone(), &left[..1]);
    let cut_off = Input::HandOffAnswered {
        question,
        answer: HandOffAnswer::CutOff,
    };
    let cut_off = on(gone.clone(), &[cut_off]);
    vec![
        ("preparing", after(&[])),
        ("connecting", after(std::slice::from_ref(&ready))),
        ("starting", after(&[ready, Input::LanesUp])),
        ("transferring, not accepted yet", after(&told)),
        ("transferring, just accepted", after(&accepted)),
        ("transferring", transferring),
        (
            "cancelling, not accepted yet",
            after(&[told, vec![cancel.clone()]].concat()),
        ),
        (
            "cancelling, just accepted",
            after(&[accepted.clone(), vec![cancel.clone()]].concat()),
        ),
        (
            "cancelling",
            a_while_after(&accepted, std::slice::from_ref(&cancel)),
        ),
        ("switching", switching),
        ("switching, session failed", broken),
        ("switching, has left", has_left),
        ("switching, has left, session failed", cut_early),
        ("switching, has left, nobody answers", unsure),
        ("handing-off, pages to follow", early),
        (
            "handing-off, pages to follow, session failed",
            cut_in_hand_off,
        ),
        ("serving", serving),
        ("serving, reopening", reopening),
        ("serving, resuming", resuming),
        ("serving, over another session", resumed),
        ("serving, waiting", waiting),
        ("serving, waiting, asking", asked),
        ("serving, waiting, nobody answers", unanswered),
        ("serving, hypervisor failed", sends_no_more),
        ("serving, hypervisor gone", gone),
        ("serving, recovered", recovered(SourceStep::Serving, &[])),
        ("leaving, cut off", cut_off),
        ("handing-off", after(&handed_off)),
        ("handing-off, not answered", after(&doubtful)),
        ("handing-off, to be given up, asking", waits),
        ("handing-off, to be given up", over),
        ("handing-off, asked for the last time", asks),
        ("taking-back", taking_back.clone()),
        (
            "taking-back, recovered",
            recovered(
                SourceStep::GivenUp {
                    on: GivenUpOn::Source,
                },
                &[],
            ),
        ),
        ("given-up", on(taking_back, &taken_back)),
        ("leaving", after(&leaving)),
        (
            "leaving, hypervisor gone",
            after(&[leaving.clone(), left[..1].to_vec()].concat()),
        ),
        ("abandoning", after(std::slice::from_ref(&cancel))),
        (
            "abandoning, hypervisor gone",
            after(&[cancel.clone(), left[0].clone()]),
        ),
        (
            "recovering, preparing",
            recovered(SourceStep::Preparing, &[]),
        ),
        (
            "recovering, preparing, session lives",
            recovered(SourceStep::Preparing, &[Input::SessionLives]),
        ),
        (
            "recovering, transferring",
            recovered(SourceStep::Transferring, &[]),
        ),
        (
            "recovering, transferring, session lives",
            recovered(SourceStep::Transferring, &[Input::SessionLives]),
        ),
        (
            "recovering, transferring, session lives, cancelled",
            recovered(
                SourceStep::Transferring,
                &[Input::SessionLives, cancel.clone()],
            ),
        ),
        (
            "recovering, transferring, session gone",
            recovered(
                SourceStep::Transferring,
                &[Input::SessionFailed { reason: why() }],
            ),
        ),
        (
            "recovering, postcopy begun, session lives",
            recovered(SourceStep::PostcopyBegun, &[Input::SessionLives]),
        ),
        (
            "recovering, postcopy begun, session gone",
            recovered(
                SourceStep::PostcopyBegun,
                &[Input::SessionFailed { reason: why() }],
            ),
        ),
        (
            "handing-off, pages to follow, recovered",
            recovered(SourceStep::PostcopyHandedOff, &[]),
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
        for (input, value) in inputs(source.question(), source.page_attempt()) {
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

#[test]
fn a_hand_off_that_is_taken_back_is_told_to_nobody_while_the_disk_is_full() {
    let asked = |(name, _): &(&str, Source)| *name == "handing-off, asked for the last time";
    let (_, mut source) = phases().into_iter().find(asked).unwrap();
    let silent = Input::HandOffUnreachable {
        question: source.question(),
        reason: why(),
    };
    let mut now = Time::ZERO;
    source.handle(now, silent).unwrap();
    let full = Input::JournalFailed { reason: why() };
    for disk in [full.clone(), full, Input::Journaled] {
        loop {
            assert_eq!(source.verdict(), Verdict::Undecided);
            match source.poll(now) {
                Output::Journal(_) => break source.handle(now, disk).unwrap(),
                Output::Wait(until) => now = until.unwrap(),
                Output::Do(_) => {}
            }
        }
    }
    assert_eq!(source.verdict(), Verdict::Kept);
}

/// Told to migrate while its disk is full: nothing comes out but the record, again and again.
fn told_to_migrate_with_a_full_disk() -> Source {
    let ready = Input::DestinationReady {
        paths: vec![path()],
        channels: 2,
    };
    let mut source = after(&[ready, Input::LanesUp]);
    source
        .handle(Time::ZERO, Input::DestinationListens)
        .unwrap();
    assert!(matches!(source.poll(Time::ZERO), Output::Journal(_)));
    let full = Input::JournalFailed { reason: why() };
    source.handle(Time::ZERO, full).unwrap();
    source
}

#[test]
fn a_migration_that_was_cancelled_while_the_disk_was_full_is_never_begun() {
    let mut source = told_to_migrate_with_a_full_disk();
    let by = CancelledBy::Operator;
    source
        .handle(Time::ZERO, Input::CancelRequested { by })
        .unwrap();
    let (done, _) = drain(&mut source, limits::JOURNAL_RETRY);
    assert_eq!(
        done,
        [
            "journal Transferring",
            "journal Kept",
            "CloseSession",
            "AbandonDestination"
        ]
    );
}

#[test]
fn a_migration_that_was_not_begun_in_time_because_the_disk_was_full_is_never_begun() {
    let mut source = told_to_migrate_with_a_full_disk();
    let (done, _) = drain(&mut source, limits::MIGRATE_ANSWER);
    assert_eq!(
        done,
        [
            "journal Transferring",
            "journal Kept",
            "CloseSession",
            "AbandonDestination"
        ]
    );
}

#[test]
fn what_cut_a_guest_off_is_said_as_it_was() {
    let mut phases = phases().into_iter();
    for (title, said) in [
        ("serving", "an operator gave them up"),
        (
            "serving, hypervisor failed",
            "the hypervisor failed the migration: because",
        ),
        ("serving, hypervisor gone", "the hypervisor ended: because"),
    ] {
        let (_, source) = phases.find(|(name, _)| *name == title).unwrap();
        let question = source.question();
        let answer = HandOffAnswer::CutOff;
        let source = on(source, &[Input::HandOffAnswered { question, answer }]);
        let Phase::Leaving {
            outcome: Outcome::CutOff { reason },
            ..
        } = source.phase()
        else {
            panic!("{title}: {:?}", source.phase());
        };
        assert_eq!(reason.as_str(), said, "{title}");
    }
}
